from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_calib.calibration.groups import make_family
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.errors import TooFewPositivesError, TooFewRowsError
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.configured_fit import fit_base, fit_configuration
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import StructureFit, refit_level
from stream_calib.refit.fit import fit_structure as fit_chosen
from stream_calib.refit.labelled import fit_data
from stream_calib.refit.reference import build_reference
from stream_calib.snapshot.compiled import map_document
from tests.unit.refit.world import FIRST_PANE, IDENTITY, REGIONS, SIGNATURES, Rows, config


def values_of(hashes: Any) -> dict[int, tuple[str, ...]]:
    return {h: SIGNATURES[h] for h in hashes}


def evidence_of(configuration: Config, panes: int = 80, rows: int = 60, change_at: int | None = None) -> Evidence:
    """From `change_at` on, outcomes are half as likely in odds."""
    rng = np.random.default_rng(3)
    made = Evidence(FIRST_PANE, configuration)
    for pane in range(panes):
        drawn = Rows(rng, rows)
        if change_at is not None and pane >= change_at:
            positive = drawn.label == 1
            drawn.label[positive & (rng.random(rows) < 0.5)] = 0
        made.advance(FIRST_PANE + pane, drawn.cells()[1].pack())
    return made


def fit_structure(evidence: Evidence, signatures: Any, configuration: Config) -> StructureFit:
    """Without forward evidence."""
    return fit_chosen(evidence, choose(variants(configuration), [], "", configuration), signatures, configuration)


def test_offsets_find_the_group_that_differs() -> None:
    made = config()
    fit = fit_structure(evidence_of(made, panes=200), values_of, made)
    (family,) = fit.parts.families
    offsets = {key[0]: offset for key, offset in family.offsets.items()}
    assert list(offsets) == sorted(REGIONS)
    assert offsets["north"] - offsets["south"] == pytest.approx(np.log(3), abs=0.25)
    assert offsets["north"] == pytest.approx(offsets["west"], abs=0.15)


def test_the_level_follows_a_late_change_faster_than_the_rest() -> None:
    made = Config.model_validate(
        {
            "model": {"name": "m"},
            "scores": {"attributes": {"region": "r"}},
            "windows": {"horizon": "2h"},
            "calibration": {"level_half_life": "5h"},
            "refit": {"min_rows": 600, "min_positives": 20},
        }
    )
    steady = fit_structure(evidence_of(made, panes=200), values_of, made)
    changed = fit_structure(evidence_of(made, panes=200, change_at=180), values_of, made)
    assert abs(steady.parts.level) < 0.1
    assert changed.parts.level < -0.15


def test_a_level_refit_keeps_the_structure_and_finds_the_level_of_a_structure_fit() -> None:
    made = config()
    evidence = evidence_of(made)
    fit = fit_structure(evidence, values_of, made)
    other = replace(fit.parts, level=9.0)
    assert refit_level(evidence, values_of, other, None, made) == fit.parts.level


def test_a_fit_is_a_function_of_its_evidence() -> None:
    made = config()
    one, other = (fit_structure(evidence_of(made), values_of, made) for _ in range(2))
    assert map_document(one.parts) == map_document(other.parts)
    assert (one.parts.level, one.certificate) == (other.parts.level, other.certificate)


def test_too_little_is_refused_by_name() -> None:
    with pytest.raises(TooFewRowsError, match="min_rows"):
        fit_structure(evidence_of(config(), panes=2), values_of, config())
    strict = config(min_positives=100_000)
    with pytest.raises(TooFewPositivesError, match="min_positives"):
        fit_structure(evidence_of(strict), values_of, strict)


def test_the_reference_watches_everything_and_each_large_value() -> None:
    made = config()
    reference = build_reference(evidence_of(made), IDENTITY, values_of, made)
    assert [(g.attribute, g.value) for g in reference.psi_groups] == [
        (None, None),
        ("region", "north"),
        ("region", "south"),
        ("region", "west"),
    ]
    assert reference.scored_per_pane == 60.0
    assert reference.labelled_per_pane == 60.0
    everything, *regions = reference.psi_groups
    assert sum(map(sum, (g.rows for g in regions))) == pytest.approx(sum(everything.rows))
    assert len(everything.rows) == 10
    assert all(g.design_effect is not None and g.design_effect < 3 for g in reference.psi_groups)


def test_before_three_windows_the_design_effect_is_not_known() -> None:
    made = config()
    reference = build_reference(evidence_of(made, panes=60), IDENTITY, values_of, made)
    assert {g.design_effect for g in reference.psi_groups} == {None}


def test_served_values_lie_within_p_min() -> None:
    made = config()
    fit = fit_structure(evidence_of(made), values_of, made)
    served = ServedMap(replace(fit.parts, level=50.0))
    p = served.apply(np.array([0.0, 0.5, 1.0]), np.zeros(3, np.intp), [("north",)])
    assert (p <= 1 - made.serving.p_min).all()


def test_slopes_and_firm_families_of_a_configuration_reach_the_fit() -> None:
    made = config()
    cells = fit_data(evidence_of(made).counts.cells(), values_of).cells
    plain = variants(made)[0].configuration
    (rule,) = plain.families
    base, families = fit_base("girb", cells, made), {rule: make_family(rule, cells.signatures)}
    asked = (plain, plain.with_slope(rule), plain.with_firm(rule))
    free, sloped, firm = (fit_configuration(each, cells, base, families, made).joint for each in asked)
    assert (free.slopes[0], firm.slopes[0]) == (None, None)
    assert sloped.slopes[0] is not None
    assert np.abs(firm.offsets[0]).sum() < np.abs(free.offsets[0]).sum()
