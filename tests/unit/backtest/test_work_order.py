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
    given = [order.next(number) for number in (0, 1, 2, 0, 1, 2)]
    assert sorted(place for place in given if place is not None) == [0, 2, 3, 5]
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


def test_who_has_nothing_left_takes_what_parts_early_and_leaves_the_rest() -> None:
    policies = grid("drift.psi_threshold=.1,.2,.3,.4", "refit.max_age=1d,2d,3d")
    order = WorkOrder(policies, range(12))
    taken(order, 0)
    ages = [policies[taken(order, 1)].config.refit.max_age_ms for _ in range(4)]
    # The first process has begun with one cadence; the other one takes both others, of those one after the other.
    ages += [policies[taken(order, 1)].config.refit.max_age_ms for _ in range(4)]
    assert len(set(ages[:4])) == len(set(ages[4:])) == 1
    assert len(set(ages)) == 2
    # What is left is of the cadence that the first one has begun: nobody else makes all that again for so few.
    assert order.next(1) is None
    assert order
    assert len([taken(order, 0) for _ in range(3)]) == 3
    assert not order


def test_many_are_shared_out_however_much_they_have_in_common() -> None:
    thresholds = ",".join(f"{i / 100:.2f}" for i in range(1, 121))
    order = WorkOrder(grid(f"drift.psi_threshold={thresholds}"), range(120))
    taken(order, 0)
    for _ in range(50):
        taken(order, 1)
