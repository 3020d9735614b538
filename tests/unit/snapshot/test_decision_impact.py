from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_calib.calibration.groups import CellGroups
from stream_calib.snapshot.decision_impact import Crossings, crossings, decision_impact
from stream_calib.snapshot.report_documents import MOST_DECISION_GROUPS


def crossed(events: list[int], served: list[tuple[float, float]], candidate: list[tuple[float, float]]) -> Crossings:
    return crossings(np.array(events), np.array(served), np.array(candidate), 0.8)


def test_the_share_of_a_bin_that_crosses_is_that_between_its_edges() -> None:
    """Of a bin from .75 to .85 half is at .8 or above; moved up by .02, seven tenths are; moved down by .02, three."""
    found = crossed([100, 100, 100], [(0.75, 0.85)] * 3, [(0.77, 0.87), (0.73, 0.83), (0.75, 0.85)])
    assert found.at_or_above.tolist() == pytest.approx([50, 50, 50])
    assert found.up.tolist() == pytest.approx([20, 0, 0])
    assert found.down.tolist() == pytest.approx([0, 20, 0])


def test_whole_bins_cross_and_a_probability_at_the_threshold_is_decided_for() -> None:
    found = crossed(
        [7, 7, 7, 7],
        [(0.1, 0.2), (0.8, 0.9), (0.8, 0.8), (0.7, 0.8)],
        [(0.8, 0.9), (0.1, 0.2), (0.79, 0.79), (0.7, 0.8)],
    )
    assert found.at_or_above.tolist() == [0, 7, 7, 0]
    assert found.up.tolist() == [7, 0, 0, 0]
    assert found.down.tolist() == [0, 7, 7, 0]


@given(
    st.lists(
        st.tuples(st.integers(0, 1_000), *[st.floats(0, 1, allow_subnormal=False)] * 4).map(
            lambda cell: (cell[0], sorted(cell[1:3]), sorted(cell[3:5]))
        ),
        min_size=1,
        max_size=20,
    ),
    st.floats(0.01, 0.99),
)
def test_what_crosses_is_what_more_or_less_there_is_above(
    cells: list[tuple[int, list[float], list[float]]], threshold: float
) -> None:
    events = np.array([n for n, _, _ in cells])
    served, candidate = (np.array([cell[side] for cell in cells]) for side in (1, 2))
    found, back = (
        crossings(events, one, other, threshold) for one, other in ((served, candidate), (candidate, served))
    )
    after = found.at_or_above + found.up - found.down
    assert after == pytest.approx(back.at_or_above, abs=1e-9 * (1 + events.max()))
    assert ((found.up >= 0) & (found.down >= 0) & (found.up * found.down == 0)).all()
    assert (found.up + found.down <= events).all()
    assert np.array_equal(found.up, back.down)


def groups_of(count: int) -> CellGroups:
    return CellGroups([f"g={i:02d}" for i in range(count)], np.arange(count))


def flat(value: float, count: int) -> NDArray[np.float64]:
    return np.full((count, 2), value)


def test_the_groups_that_cross_most_are_named_and_the_others_counted() -> None:
    events = np.arange(10, 40)
    found = crossings(events, flat(0.7, 30), flat(0.9, 30), 0.8)
    impact = decision_impact("decline", 0.8, events, found, [groups_of(30)])
    assert (impact.up, impact.down, impact.at_or_above, impact.share) == (1.0, 0.0, 0.0, 1.0)
    assert [group.events for group in impact.groups] == list(range(39, 39 - MOST_DECISION_GROUPS, -1))
    assert impact.groups_left_out == 30 - MOST_DECISION_GROUPS


def test_groups_surely_beyond_the_limit_come_first_and_are_counted() -> None:
    events = np.array([1_000, 50])
    found = crossings(events, flat(0.7, 2), flat(0.9, 2), 0.8)
    lower = [np.array([0.01, 0.3])]
    impact = decision_impact("decline", 0.8, events, found, [groups_of(2)], lower=lower, limit=0.05)
    assert [group.name for group in impact.groups] == ["g=01", "g=00"]
    assert [group.lower for group in impact.groups] == [0.3, 0.01]
    assert impact.beyond_limit == 1


def test_a_group_of_a_few_events_is_not_named() -> None:
    events = np.array([9, 10])
    found = crossings(events, flat(0.7, 2), flat(0.9, 2), 0.8)
    impact = decision_impact("decline", 0.8, events, found, [groups_of(2)])
    assert [group.name for group in impact.groups] == ["g=01"]


def test_without_traffic_nothing_crosses() -> None:
    none = np.empty((0, 2))
    impact = decision_impact(
        "decline", 0.8, np.empty(0, np.int64), crossings(np.empty(0, np.int64), none, none, 0.8), []
    )
    assert (impact.events, impact.share, impact.groups) == (0, 0.0, ())
