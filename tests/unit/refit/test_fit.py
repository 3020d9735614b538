from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_calib.config import Config
from stream_calib.errors import TooFewPositivesError, TooFewRowsError
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import build_reference, fit_structure, refit_level
from stream_calib.snapshot.compiled import build_map
from tests.unit.refit.world import FIRST_PANE, REGIONS, SIGNATURES, Rows, config
from tests.unit.snapshot.documents import structure


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


def test_offsets_find_the_group_that_differs() -> None:
    made = config()
    fit = fit_structure(evidence_of(made, panes=200), values_of, made)
    (family,) = fit.families
    offsets = {o.values[0]: o.offset for o in family.offsets}
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
    assert abs(steady.level) < 0.1
    assert changed.level < -0.15


def test_a_level_refit_keeps_the_structure_and_finds_the_level_of_a_structure_fit() -> None:
    made = config()
    evidence = evidence_of(made)
    fit = fit_structure(evidence, values_of, made)
    document = structure(attributes=("region",), base=fit.base, families=fit.families, level=9.0)
    assert refit_level(evidence, values_of, document, made) == fit.level


def test_a_fit_is_a_function_of_its_evidence() -> None:
    made = config()
    one, other = (fit_structure(evidence_of(made), values_of, made) for _ in range(2))
    assert one == other


def test_too_little_is_refused_by_name() -> None:
    with pytest.raises(TooFewRowsError, match="min_rows"):
        fit_structure(evidence_of(config(), panes=2), values_of, config())
    strict = config(min_positives=100_000)
    with pytest.raises(TooFewPositivesError, match="min_positives"):
        fit_structure(evidence_of(strict), values_of, strict)


def test_the_reference_watches_everything_and_each_large_value() -> None:
    made = config()
    reference = build_reference(evidence_of(made), values_of, made)
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
    reference = build_reference(evidence_of(made, panes=60), values_of, made)
    assert {g.design_effect for g in reference.psi_groups} == {None}


def test_served_values_lie_within_p_min() -> None:
    made = config()
    fit = fit_structure(evidence_of(made), values_of, made)
    served = build_map(["region"], fit.base, fit.families, 50.0, made.serving.p_min)
    p = served.apply(np.array([0.0, 0.5, 1.0]), np.zeros(3, np.intp), [("north",)])
    assert (p <= 1 - made.serving.p_min).all()
