"""What the best of many policies is worth: by hand, and among policies that are equal."""

from __future__ import annotations

import numpy as np
import pytest

from stream_calib.backtest.comparison.bootstrap import DayDraws
from stream_calib.backtest.comparison.optimism import followed_policies, nested_forward, optimism_of
from tests.unit.backtest.policy_outcomes import outcome


def test_each_day_follows_the_best_of_the_days_before() -> None:
    losses = np.array([[5.0, 5.0, 5.0, 5.0], [6.0, 3.0, 9.0, 4.0], [5.0, 4.5, 5.0, 1.0]])
    # The first day and equals: the current one; then sums of 5, 6, 5; 10, 9, 9.5; 15, 18, 14.5.
    assert followed_policies(losses, current=0).tolist() == [0, 0, 1, 2]
    assert followed_policies(losses, current=2).tolist() == [2, 2, 1, 2]


def test_optimism_by_hand() -> None:
    losses = {"current": [50.0, 50.0, 50.0, 50.0], "b": [60.0, 30.0, 94.0, 40.0], "c": [50.0, 45.0, 50.0, 10.0]}
    found = optimism_of([outcome(name, of_days) for name, of_days in losses.items()], 0, DayDraws(4, seed=1))
    assert found is not None
    assert (found.policies, found.best) == (3, "c")
    assert found.best_log_loss == pytest.approx(155 / 400)
    assert found.followed_log_loss == pytest.approx((50 + 50 + 94 + 10) / 400)
    assert found.optimism == pytest.approx(49 / 400)
    assert found.warning is not None
    assert found.warning.startswith(
        "following the best so far from day to day would have been worse than the current policy, by 0.01000 of"
    )


def test_one_policy_has_no_optimism() -> None:
    assert optimism_of([outcome("current", [50.0] * 4)], 0, DayDraws(4, seed=1)) is None


def test_nothing_to_choose_where_the_current_one_is_best() -> None:
    found = optimism_of([outcome("a", [51.0] * 40), outcome("current", [50.0] * 40)], 1, DayDraws(40, seed=1))
    assert found is not None
    assert (found.best, found.optimism, found.warning, found.by_chance) == ("current", 0.0, None, 1.0)


def test_equal_policies_leave_the_current_one_the_best() -> None:
    found = optimism_of([outcome("a", [50.0] * 40), outcome("current", [50.0] * 40)], 1, DayDraws(40, seed=1))
    assert found is not None
    assert found.best == "current"


def test_the_best_of_equal_policies_looks_better_and_following_it_is_not() -> None:
    random = np.random.default_rng(11)
    draws = DayDraws(150, seed=1)
    labelled = np.full(150, 100.0)
    leads, follows, chances = [], [], []
    for _ in range(100):
        losses = 50 + random.normal(size=(20, 150))
        found = nested_forward([f"p{place}" for place in range(20)], losses, labelled, 0, draws)
        current = float(losses[0].mean()) / 100
        leads.append(current - found.best_log_loss)
        follows.append(current - found.followed_log_loss)
        assert found.by_chance is not None
        chances.append(found.by_chance)
        assert found.best == "p0" or found.warning is not None
    # The least of twenty normal means of variance 1 / 150 is 1.87 standard errors below the mean.
    assert np.mean(leads) == pytest.approx(1.867 / 100 / np.sqrt(150), rel=0.1)
    error = float(np.std(follows)) / 10
    assert abs(float(np.mean(follows))) < 2.5 * error
    assert np.mean(np.array(chances) < 0.05) <= 0.12


def test_a_policy_that_is_better_stays_so_when_it_is_followed() -> None:
    random = np.random.default_rng(12)
    draws = DayDraws(150, seed=1)
    losses = 50 + random.normal(size=(3, 150)) - np.array([[0.0], [1.0], [0.2]])
    found = optimism_of([outcome(name, own) for name, own in zip("abc", losses, strict=True)], 0, draws)
    assert found is not None
    assert (found.best, found.warning) == ("b", None)
    assert 0 <= found.optimism < 0.001
    assert found.by_chance is not None
    assert found.by_chance < 0.01


def test_many_policies_are_warned_of() -> None:
    losses = [outcome(f"p{place}", [50.0 - (place == 3)] * 40) for place in range(11)]
    found = optimism_of(losses, 0, DayDraws(40, seed=1))
    assert found is not None
    assert found.warning == (
        "11 policies were tried, and the best of so many looks better than it is; a lead like this comes up by chance"
        " in 0% of the cases where none is better. Choose on earlier days, and judge the choice on later ones"
    )


def test_ten_policies_are_not_many() -> None:
    losses = [outcome(f"p{place}", [50.0 - (place == 3)] * 40) for place in range(10)]
    found = optimism_of(losses, 0, DayDraws(40, seed=1))
    assert found is not None
    assert found.warning is None


def test_a_lead_that_chance_makes_too_is_warned_of() -> None:
    losses = 50 + np.random.default_rng(3).normal(size=(2, 60))
    order = np.argsort(-losses.sum(axis=1))  # the current one is the worse of two equals
    found = nested_forward(["current", "b"], losses[order], np.full(60, 100.0), 0, DayDraws(60, seed=1))
    assert found.by_chance is not None
    assert 0.05 < found.by_chance < 0.5
    assert found.warning is not None
    assert f"a lead like this comes up by chance in {found.by_chance:.0%} of the cases" in found.warning


def test_one_day_tells_nothing_of_chance() -> None:
    found = nested_forward(["current", "b"], np.array([[50.0], [49.0]]), np.full(1, 100.0), 0, DayDraws(1, seed=1))
    assert (found.by_chance, found.best) == (None, "b")
