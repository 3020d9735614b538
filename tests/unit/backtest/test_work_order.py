from __future__ import annotations

from stream_calib.backtest.policies.grid import grid_of_texts, policies_of_grid
from stream_calib.backtest.policies.policy import Policy
from stream_calib.backtest.policies.work_order import WorkOrder
from tests.unit.refit.world import config


def grid(*texts: str) -> list[Policy]:
    return list(policies_of_grid(grid_of_texts(texts), config(), "test"))


def taken(order: WorkOrder, number: int) -> int:
    place = order.next(number)
    assert place is not None
    return place


def test_every_policy_is_run_once_and_only_those_that_are_left() -> None:
    policies = grid("drift.psi_threshold=.1,.2,.3", "refit.max_age=1d,2d")
    order = WorkOrder(policies, [0, 2, 3, 5])
    given = [taken(order, number) for number in (0, 1, 2, 1)]
    assert sorted(given) == [0, 2, 3, 5]
    assert not order
    assert order.next(0) is None


def test_one_process_runs_those_together_that_part_last() -> None:
    """The threshold comes first in the grid; the cadence decides what is fitted."""
    policies = grid("drift.psi_threshold=.1,.2,.3", "refit.max_age=1d,2d")
    order = WorkOrder(policies, range(6))
    ages = [policies[taken(order, 0)].config.refit.max_age_ms for _ in range(6)]
    assert ages == sorted(ages)


def test_processes_have_as_little_in_common_as_can_be() -> None:
    policies = grid("drift.psi_threshold=.1,.2,.3", "refit.max_age=1d,2d", "calibration.offset_ridge=10,40")
    order = WorkOrder(policies, range(12))
    ridges: dict[int, set[float]] = {0: set(), 1: set()}
    for _ in range(6):
        for number, seen in ridges.items():
            seen.add(policies[taken(order, number)].config.calibration.offset_ridge)
    assert sorted(len(seen) for seen in ridges.values()) == [1, 1]


def test_who_has_nothing_left_takes_from_the_longest_run() -> None:
    policies = grid("drift.psi_threshold=.1,.2,.3,.4", "refit.max_age=1d,2d")
    order = WorkOrder(policies, range(8))
    first = taken(order, 0), taken(order, 1)
    assert sorted([*first, *(taken(order, 1) for _ in range(6))]) == list(range(8))
