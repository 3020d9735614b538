from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from stream_calib.calibration.groups import CellGroups
from stream_calib.refit.gate_groups import judge_groups
from stream_calib.refit.gate_rows import GateCells, GateLosses, GateTraffic
from stream_calib.refit.report_parts import changes_document, group_table_document, reliability_document, role_rows
from stream_calib.snapshot.report_documents import MOST_GROUPS, GroupTableDocument
from tests.unit.refit.test_decisions import evidence_of
from tests.unit.refit.test_gate import Data


def table_of(cells: GateCells) -> GroupTableDocument | None:
    return group_table_document(cells, judge_groups(cells, GateLosses.of(cells)))


def test_roles_have_the_rows_of_their_own_buckets() -> None:
    fit, audit, certificate, gate = role_rows(evidence_of((100, 20), (60, 0)))
    assert [role.role for role in (fit, audit, certificate, gate)] == ["fit", "audit", "certificate", "gate"]
    assert [(role.rows, role.positives) for role in (fit, audit, certificate, gate)] == [
        (160, 80),
        (0, 0),
        (0, 0),
        (160, 80),
    ]
    buckets = [bucket for role in (fit, audit, certificate, gate) for bucket in role.unit_buckets]
    assert sorted(buckets) == list(range(20))


def test_panes_without_their_labels_give_a_role_no_rows() -> None:
    *_, gate = role_rows(evidence_of(*[(100, 0)] * 10, (4, 400)))
    assert (gate.incomplete_panes, gate.rows, gate.positives) == (1, 1_000, 500)


def test_the_diagram_has_both_sides_on_the_same_rows() -> None:
    data = Data()
    found = reliability_document(data.cells(data.moved(1.0), data.truth))
    assert found is not None
    for side, p in ((found.served, data.moved(1.0)), (found.candidate, data.truth)):
        assert sum(side.rows) == len(p)
        assert np.dot(side.rows, side.probability) == pytest.approx(p.sum(), rel=1e-5)
        assert np.dot(side.rows, side.rate) == pytest.approx(data.label.sum(), rel=1e-5)
    inside = [
        low <= p <= up
        for p, low, up in zip(found.candidate.probability, found.candidate.lower, found.candidate.upper, strict=True)
    ]
    assert all(inside)
    n, rate = found.candidate.rows[0], found.candidate.rate[0]
    tail = 0.05 / (2 * len(found.candidate.rows))
    assert found.candidate.upper[0] == pytest.approx(beta.ppf(1 - tail, n * rate + 1, n * (1 - rate)), rel=1e-4)


def test_groups_are_shown_before_and_after_with_the_gates_verdict() -> None:
    data = Data(8_000)
    served = np.where(data.group == 2, data.truth, data.moved(1.0))
    candidate = np.where(data.group == 2, data.moved(1.5), data.truth)
    found = table_of(data.cells(served, candidate))
    assert found is not None
    first, *others = found.lines
    assert (first.name, first.verdict) == ("g=2", "harmed")
    assert {line.verdict for line in others} == {"better"}
    inside = data.group == 2
    assert first.rate == pytest.approx(data.label[inside].mean(), rel=1e-5)
    assert (first.served, first.candidate) == pytest.approx((served[inside].mean(), candidate[inside].mean()), rel=1e-5)
    off = [line.rows * max(abs(line.rate - line.served), abs(line.rate - line.candidate)) for line in others]
    assert off == sorted(off, reverse=True)
    assert all(line.rate_lower < line.rate < line.rate_upper for line in found.lines)


def test_lists_stay_short_whatever_the_number_of_groups() -> None:
    data = Data(6_000, groups=1_000)
    table = table_of(data.cells(data.moved(1.0), data.truth))
    events = np.full(6_000, 3)
    edges = np.stack([data.truth, data.truth], axis=1)
    changes = changes_document(
        GateTraffic(data.day, data.bucket, events, edges, edges / 2, [CellGroups(data.names, data.group)])
    )
    assert table is not None
    assert changes is not None
    assert len(table.lines) == len(changes.groups) == MOST_GROUPS
    assert table.left_out + MOST_GROUPS == changes.left_out + MOST_GROUPS == len(np.unique(data.group))
    assert len(table.encode()) + len(changes.encode()) < 12_000


def test_what_changes_for_whom() -> None:
    edges = np.array([[0.2, 0.2], [0.4, 0.6], [0.5, 0.5]])
    moved = np.array([[0.2, 0.2], [0.6, 0.8], [0.48, 0.48]])
    traffic = GateTraffic(
        np.zeros(3, np.int64),
        np.full(3, 16, np.uint8),
        np.array([50, 30, 20]),
        edges,
        moved,
        [CellGroups(["a", "b"], np.array([0, 1, -1]))],
    )
    found = changes_document(traffic)
    assert found is not None
    assert found.events == 100
    assert (found.served, found.candidate) == pytest.approx((0.35, 0.406))
    assert found.mean_absolute_shift == pytest.approx(0.064)
    assert [(moved.more_than, moved.share) for moved in found.moved] == [(0.01, 0.5), (0.05, 0.3), (0.1, 0.3)]
    assert [(group.name, group.served, group.candidate) for group in found.groups] == [("b", 0.5, 0.7), ("a", 0.2, 0.2)]


def test_without_rows_there_is_nothing_to_show() -> None:
    data = Data(0)
    cells = data.cells(data.truth, data.truth)
    assert reliability_document(cells) is None
    assert table_of(cells) is None
