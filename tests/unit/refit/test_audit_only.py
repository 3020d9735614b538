"""Audit-only groups: watched in every place where groups are, and no part of the map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.grid import locate
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.events.identity import signature_hash
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import StructureFit, fit_structure
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells
from stream_calib.refit.groups import family_rules, fitted_rules
from stream_calib.refit.reference import build_reference
from stream_calib.refit.settings import config_hash
from stream_calib.windows.cells import MaturedCells

FIRST_PANE = 480_000
REGIONS, SEXES = ["eu", "us"], ["f", "m", "__missing__"]
SIGNATURES = {signature_hash((r, s)): (r, s) for r in REGIONS for s in SEXES}


def config_of(**scores: Any) -> Config:
    return Config.model_validate(
        {
            "model": {"name": "m"},
            "scores": {
                "attributes": {"region": "r", "sex": "s"},
                "intersections": [["region", "sex"]],
                "predicates": {"women in the eu": {"region": ["eu"], "sex": ["f"]}, "europe": {"region": ["eu"]}},
                "audit_only": ["sex"],
            }
            | scores,
            "windows": {"horizon": "2h"},
            "refit": {"min_rows": 600, "min_positives": 20},
        }
    )


def evidence_of(config: Config, seed: int, panes: int = 30, rows: int = 400) -> Evidence:
    """Women have three times the odds of their scores."""
    rng, made = np.random.default_rng(seed), Evidence(FIRST_PANE, config)
    numbers, values = np.array(list(SIGNATURES), np.uint64), list(SIGNATURES.values())
    for pane in range(panes):
        score, which = rng.uniform(0.05, 0.95, rows), rng.integers(0, len(SIGNATURES), rows)
        odds = score / (1 - score) * np.where([values[i][1] == "f" for i in which], 3.0, 1.0)
        label = (rng.random(rows) < odds / (1 + odds)).astype(np.int8)
        bucket = rng.integers(0, 20, rows).astype(np.uint8)
        made.advance(FIRST_PANE + pane, MaturedCells.count(bucket, numbers[which], locate(score)[0], label).pack())
    return made


def fitted(config: Config, seed: int = 1) -> tuple[Evidence, StructureFit]:
    evidence = evidence_of(config, seed)
    choice = choose(variants(config), [], "", config)
    patched = choice.document.model_copy(update={"patches": True})
    chosen = type(choice)(choice.configuration, choice.derived, patched)
    return evidence, fit_structure(evidence, chosen, signatures, config)


def signatures(hashes: Any) -> dict[int, tuple[str, ...]]:
    return {h: SIGNATURES[h] for h in hashes}


def test_what_has_an_audit_only_attribute_is_audit_only() -> None:
    assert [rule.name for rule in fitted_rules(config_of())] == ["region", "europe"]
    assert [rule.name for rule in family_rules(config_of())] == [
        "region",
        "sex",
        "region & sex",
        "women in the eu",
        "europe",
    ]
    assert [rule.name for rule in fitted_rules(config_of(audit_only=["europe", "region"]))] == ["sex"]
    asked = {variant.subject for variant in variants(config_of())}
    assert not {"sex", "region & sex", "women in the eu"} & asked


@pytest.fixture(scope="module")
def watched() -> tuple[Evidence, StructureFit]:
    return fitted(config_of())


values = st.sampled_from([*SEXES, "never seen", "__other__"])


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.sampled_from([*REGIONS, "asia", "__other__"]), values, values)
def test_events_that_differ_in_audit_only_attributes_have_the_same_probability(
    watched: tuple[Evidence, StructureFit], score: float, region: str, one: str, other: str
) -> None:
    served = ServedMap(watched[1].parts)
    p, q = (served.apply(np.array([score]), np.zeros(1, np.intp), [(region, sex)])[0] for sex in (one, other))
    assert p == q


def test_the_map_has_no_part_of_them(watched: tuple[Evidence, StructureFit]) -> None:
    parts = watched[1].parts
    assert {family.rule.name for family in parts.families} == {"region", "europe"}
    assert {patches.rule.name for patches in parts.rounds} <= {"region", "europe", "all"}


def test_they_are_watched_by_the_certificate_the_gate_and_psi(watched: tuple[Evidence, StructureFit]) -> None:
    config, (evidence, fit) = config_of(), watched
    assert fit.certificate.worst is not None
    assert "sex=" in fit.certificate.worst.group or "women" in fit.certificate.worst.group
    groups = build_reference(evidence, JudgedMap(ServedMap(fit.parts)), signatures, config).psi_groups
    assert {("sex", value) for value in SEXES} <= {(group.attribute, group.value) for group in groups}
    cells = gate_cells(evidence, signatures, config, None, JudgedMap(ServedMap(fit.parts)))
    names = {name for family in cells.families for name in family.names}
    assert {"sex=f", "region=eu & sex=m", "women in the eu"} <= names


def test_fitted_it_would_be_another_map() -> None:
    """Else the tests above would show nothing."""
    _, fit = fitted(config_of(audit_only=[]))
    served = ServedMap(fit.parts)
    f, m = (served.apply(np.array([0.5]), np.zeros(1, np.intp), [("eu", sex)])[0] for sex in ("f", "m"))
    assert f - m > 0.1
    assert config_hash(config_of()) != config_hash(config_of(audit_only=[]))


@pytest.mark.parametrize(
    ("audit_only", "message"),
    [
        (
            ["age"],
            r"audit_only: 'age' is neither an attribute nor a predicate; there are: region, sex, women in the eu",
        ),
        (["sex", "sex"], r"audit_only: 'sex' is there twice; give each once"),
        (
            ["hour_of_day"],
            r"audit_only: 'hour_of_day' is derived; it comes on only where it helps, so leave it out here",
        ),
    ],
)
def test_what_is_no_group_is_refused(audit_only: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(audit_only=audit_only, derived=["hour_of_day"])
