"""Decisions that a candidate changes: on which events, where the limit is, and what it does not refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_calib.calibration.groups import CellGroups
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.refit.decisions import decision_impacts
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.gate import judge_candidate
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells, gate_traffic
from stream_calib.refit.gate_rows import GateTraffic
from stream_calib.refit.settings import config_hash
from stream_calib.snapshot.report import GateReport
from stream_calib.windows.cells import MaturedCells
from tests.unit.refit.test_gate import CONFIG, Data, window
from tests.unit.refit.world import FIRST_PANE, SIGNATURES, config

NORTH, SOUTH, _ = SIGNATURES


def traffic_of(share: NDArray[np.float64], n: int = 100) -> GateTraffic:
    """A group for each of the shares (G,), of which that share of events crosses .5; n events of each on every one of
    seven days, dealt to four buckets."""
    count = len(share)
    day, bucket, group = (a.ravel() for a in np.meshgrid(np.arange(7), np.arange(16, 20), np.arange(count)))
    top = 0.5 + 0.1 * share[group]  # of a bin of width .1
    edges = np.stack([top - 0.1, top], axis=1)
    return GateTraffic(
        day=day,
        unit_bucket=bucket.astype(np.uint8),
        events=np.full(len(day), n // 4),
        served=np.full((len(day), 2), 0.2),
        candidate=edges,
        families=[CellGroups([f"g={i}" for i in range(count)], group)],
    )


def judge(traffic: GateTraffic, limit: float | None, baseline: str | None = "000001-0123456789ab") -> GateReport:
    """The gate of a candidate with which nothing else is wrong."""
    data, refit = Data(), CONFIG.model_copy(update={"max_decision_shift": limit})
    impacts = decision_impacts(traffic, {"decline": 0.5}, limit)
    cells = data.cells(data.moved(0.5), data.truth)
    return judge_candidate(cells, replace(window(), baseline=baseline), refit, impacts)


def test_without_a_limit_they_are_reported_only() -> None:
    report = judge(traffic_of(np.array([0.0, 0.4])), None)
    assert report.passed
    (decision,) = report.decisions
    assert (decision.name, decision.events) == ("decline", 1_400)
    assert decision.up == pytest.approx(0.2)
    assert [group.name for group in decision.groups] == ["g=1"]
    assert decision.groups[0].up == pytest.approx(0.4)


def test_more_events_than_the_limit_refuse_with_a_code_of_their_own() -> None:
    report = judge(traffic_of(np.array([0.0, 0.4])), 0.15)
    assert report.codes == ("decision_shift",)
    (reason,) = report.reasons
    assert "decline (at 0.5) changes for 20.00% of all events and at least" in reason.detail
    assert "of the events of g=1; at most 15.00% may cross" in reason.detail


def test_a_group_beyond_the_limit_refuses_though_the_whole_is_within() -> None:
    report = judge(traffic_of(np.array([0.4] + [0.0] * 19)), 0.1)
    assert report.codes == ("decision_shift",)
    assert report.decisions[0].beyond_limit == 1
    assert "of all events" not in report.reasons[0].detail


def test_a_thin_group_does_not_refuse_by_chance() -> None:
    """15 % of 28 events cross, which is no proof that more than 10 % do; of 28,000 it is."""
    thin = traffic_of(np.array([0.15] + [0.0] * 19), n=4)
    assert judge(thin, 0.1).passed
    assert not judge(traffic_of(np.array([0.15] + [0.0] * 19), n=4_000), 0.1).passed


def test_the_first_snapshot_is_not_held_to_what_raw_scores_decide() -> None:
    report = judge(traffic_of(np.array([0.9])), 0.1, baseline=None)
    assert report.passed
    assert report.decisions[0].share == pytest.approx(0.9)


def test_they_are_in_the_order_of_their_thresholds_whatever_the_configurations() -> None:
    traffic = traffic_of(np.array([0.5]))
    thresholds = {"b": 0.8, "a": 0.5, "c": 0.3}
    found = decision_impacts(traffic, thresholds, None)
    assert [decision.name for decision in found] == ["c", "a", "b"]
    assert found == decision_impacts(traffic, dict(reversed(thresholds.items())), None)


def test_where_no_group_has_events_enough_only_all_events_are_looked_at() -> None:
    """A quiet week: nothing to divide the doubt among."""
    quiet = replace(traffic_of(np.array([1.0, 1.0])), events=(np.arange(56) < 18).astype(np.int64))
    (decision,) = decision_impacts(quiet, {"decline": 0.5}, 0.1)
    assert (decision.up, decision.groups, decision.beyond_limit) == (1.0, (), 0)


def map_of(shift: float) -> JudgedMap:
    base = BaseMap.from_lists({"log_odds": [-10.0, 10.0], "value": [0.001, 0.999], "p_min": 1e-6, "strict_slope": 0.0})
    return JudgedMap(ServedMap(MapParts(base=base, families=(), p_min=1e-6, level=shift)))


def evidence_of(*panes: tuple[int, int]) -> Evidence:
    """(labelled, unlabelled) winners of each pane, half north, in the gate's bucket 16 and the fit's
    bucket 0; those without a label score higher."""
    made = Evidence(FIRST_PANE, config())
    for pane, (labelled, unlabelled) in enumerate(panes):
        label = np.array([1, 0] * (labelled // 2) + [-1] * unlabelled, np.int8)
        hashes = np.resize(np.array([NORTH, SOUTH], np.uint64), len(label))
        grid_bin = np.where(label < 0, 221, 201).astype(np.uint16)
        cells = [MaturedCells.count(np.full(len(label), b, np.uint8), hashes, grid_bin, label) for b in (0, 16)]
        made.advance(FIRST_PANE + pane, MaturedCells.merge(cells).pack())
    return made


def signatures(hashes: Any) -> dict[int, tuple[str, ...]]:
    return {h: SIGNATURES[h] for h in hashes}


def test_everybody_counts_who_is_decided_about_labelled_or_not() -> None:
    evidence = evidence_of((100, 300), (100, 300))
    served, candidate = map_of(0.0), map_of(0.5)
    traffic = gate_traffic(evidence, signatures, config(), served, candidate)
    assert int(traffic.events.sum()) == 800
    cells = gate_cells(evidence, signatures, config(), served, candidate)
    assert int(cells.labelled.sum()) == 200
    assert (cells.labelled > 0).all()
    centres = traffic.candidate.mean(axis=1)
    assert centres[0] == pytest.approx(cells.candidate[0])


def test_against_the_raw_score_where_nothing_was_published() -> None:
    traffic = gate_traffic(evidence_of((100, 0)), signatures, config(), None, map_of(0.0))
    assert traffic.served[0] == pytest.approx([0.5, 1 / (1 + np.exp(-0.05))])


def test_thresholds_are_named_by_requests_because_they_stand_in_snapshots() -> None:
    plain = config()
    one, other = (plain.model_copy(update={"decisions": {"decline": at}}) for at in (0.8, 0.7))
    limited = one.model_copy(update={"refit": one.refit.model_copy(update={"max_decision_shift": 0.1})})
    assert len({config_hash(made) for made in (plain, one, other, limited)}) == 4


def test_a_limit_without_thresholds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"refit\.max_decision_shift = 0\.1 limits nothing: name the thresholds in"):
        config(max_decision_shift=0.1)
