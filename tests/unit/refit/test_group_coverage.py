"""Only some cases are ever labelled: the others are no negatives, and what is said of a group says of how many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_calib.calibration.fit_input import CENTRE_SCORE
from stream_calib.calibration.grid import locate
from stream_calib.calibration.groups import make_family
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.multicalibration.audit import audit
from stream_calib.calibration.multicalibration.patches import propose_round
from stream_calib.config import Config
from stream_calib.events.identity import signature_hash
from stream_calib.refit.certificate import audit_target
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import StructureFit, fit_structure
from stream_calib.refit.gate import judge_candidate
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells, gate_window
from stream_calib.refit.group_coverage import group_coverage
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import fit_data
from stream_calib.snapshot.report import GroupCoverage
from stream_calib.windows.cells import MaturedCells
from workers.candidate_texts import coverage_rows

FIRST_PANE = 480_000
SIGNATURES = {signature_hash((name,)): (name,) for name in ("A", "B")}


def config_of(**scores: Any) -> Config:
    return Config.model_validate(
        {
            "model": {"name": "m"},
            "scores": {"attributes": {"group": "g"}} | scores,
            "windows": {"horizon": "2h"},
            "refit": {"min_rows": 100, "min_positives": 10, "gate_min_rows": 100},
        }
    )


def signatures(hashes: Any) -> dict[int, tuple[str, ...]]:
    return {h: SIGNATURES[h] for h in hashes}


def evidence_of(times: int = 1, buckets: int = 12) -> Evidence:
    """In each of so many panes: A has 1,000 scores, all labelled, 100 of them positive. B has 1,000, of which only 50
    have a label, all above .8; 40 of these are positive. Units are dealt to the first buckets in turn."""
    made = Evidence(FIRST_PANE, config_of())
    of_a, of_b = SIGNATURES
    for pane in range(times):
        score = np.concatenate(
            [np.linspace(0.02, 0.98, 1_000), np.linspace(0.02, 0.79, 950), np.linspace(0.81, 0.98, 50)]
        )
        label = np.concatenate([np.zeros(1_000), np.full(950, -1), np.zeros(10), np.ones(40)]).astype(np.int8)
        label[:1_000][np.argsort(-((np.arange(1_000) * 7) % 1_000 + score[:1_000] * 300))[:100]] = 1
        hashes = np.repeat(np.array([of_a, of_b], np.uint64), 1_000)
        bucket = (np.arange(2_000) % buckets).astype(np.uint8)
        made.advance(FIRST_PANE + pane, MaturedCells.count(bucket, hashes, locate(score)[0], label).pack())
    return made


def test_shares_are_of_labelled_rows_and_coverage_is_shown() -> None:
    everything, b, a = group_coverage(evidence_of(), signatures, config_of())
    assert everything == GroupCoverage(
        name="all", scores=2_000, labelled=1_050, coverage=0.525, positive_share=0.133333333
    )
    assert a == GroupCoverage(name="group=A", scores=1_000, labelled=1_000, coverage=1.0, positive_share=0.1)
    assert b == GroupCoverage(name="group=B", scores=1_000, labelled=50, coverage=0.05, positive_share=0.8)
    assert coverage_rows((everything, b, a)) == [
        ("labelled", "52.5% of 2,000 scores: 1,050 rows, 13.33% of these positive"),
        ("least labelled", "group=B: 5.0% of 1,000 scores: 50 rows, 80.00% of these positive"),
    ]


@pytest.fixture(scope="module")
def fit() -> tuple[Evidence, StructureFit]:
    config, evidence = config_of(), evidence_of(times=30, buckets=20)
    choice = choose(variants(config), [], "", config)
    asked = type(choice)(choice.configuration, (), choice.document.model_copy(update={"patches": True}))
    return evidence, fit_structure(evidence, asked, signatures, config)


def test_no_row_without_a_label_reaches_the_fit_the_audits_or_the_gate(fit: tuple[Evidence, StructureFit]) -> None:
    evidence, made = fit
    config = config_of()
    assert evidence.fit_rows == pytest.approx(30 * 1_050 * 12 / 20, rel=0.02)
    assert made.certificate.rows == pytest.approx(30 * 1_050 * 2 / 20, rel=0.05)
    cells = gate_cells(evidence, signatures, config, None, JudgedMap(ServedMap(made.parts)))
    report = judge_candidate(cells, gate_window(evidence, "structure", None), config.refit)
    assert report.rows == pytest.approx(30 * 1_050 * 4 / 20, rel=0.05)
    assert int(cells.labelled.min()) >= 1


def test_a_group_has_no_patch_where_none_of_its_scores_has_a_label(fit: tuple[Evidence, StructureFit]) -> None:
    """By the raw scores, which are far off for both groups, there is much to patch."""
    cells = fit_data(fit[0].counts.cells(), signatures).cells
    families = [make_family(rule, cells.signatures) for rule in family_rules(config_of())]
    target = audit_target(config_of())
    patches = propose_round(
        audit(cells, CENTRE_SCORE[cells.grid_bin], families, target), float(cells.labelled.sum()), target, 30, 1.0
    )
    assert patches is not None
    edges = patches.edges
    patched = {key: [edges[i + 1] for i, shift in enumerate(shifts) if shift] for key, shifts in patches.shifts.items()}
    assert min(patched["A",]) < 0.5
    assert all(end > 0.8 for end in patched.get(("B",), []))


def test_the_few_of_a_group_are_not_read_as_few_among_all_its_scores(fit: tuple[Evidence, StructureFit]) -> None:
    at = float(ServedMap(fit[1].parts).apply(np.array([0.9]), np.zeros(1, np.intp), [("B",)])[0])
    assert at > 0.5


def test_the_coverage_is_of_the_events_before_the_thinning() -> None:
    config = config_of(keep_rate="rate")
    dictionary = {signature_hash(("A", rate)): ("A", rate) for rate in ("1.0", "0.1")}
    whole, thinned = dictionary
    made = Evidence(FIRST_PANE, config)
    hashes = np.array([whole] * 100 + [thinned] * 100, np.uint64)
    label = np.array([1] * 100 + [0] * 50 + [-1] * 50, np.int8)
    cells = MaturedCells.count(np.zeros(200, np.uint8), hashes, locate(np.full(200, 0.4))[0], label)
    made.advance(FIRST_PANE, cells.pack())
    everything, _ = group_coverage(made, lambda found: {h: dictionary[h] for h in found}, config)
    assert everything == GroupCoverage(
        name="all", scores=1_100, labelled=150, coverage=0.545454545, positive_share=0.166666667
    )
