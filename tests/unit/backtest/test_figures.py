"""Figures of policies: values by hand, and intervals that hold where labels of a day share a shock."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from stream_calib.backtest.comparison.bootstrap import Column, DayDraws, block_days
from stream_calib.backtest.comparison.figures import (
    DayColumns,
    debiased_squared_ece,
    difference_interval,
    ece_interval,
    is_warm_up_only,
    mean_interval,
    policy_figures,
    raw_figures,
    scored_days,
)
from stream_calib.backtest.document import Interval
from stream_calib.backtest.outcome import RELIABILITY_BINS, PolicyOutcome
from stream_calib.errors import BacktestError
from tests.unit.backtest.policy_outcomes import FIRST_DAY, PANE_MS, alarm, outcome, refit

# --- draws


@pytest.mark.parametrize(("days", "length"), [(1, 1), (9, 1), (10, 2), (34, 6), (35, 7), (300, 7)])
def test_blocks_are_of_a_week_where_there_are_days_enough(days: int, length: int) -> None:
    assert block_days(days) == length


@pytest.mark.parametrize("days", [1, 2, 20, 71, 300])
def test_a_draw_has_as_many_days_as_there_are(days: int) -> None:
    draws = DayDraws(days, seed=1, draws=50)
    assert draws.weights.shape == (50, days)
    assert (draws.weights.sum(axis=1) == days).all()
    assert (draws.weights == np.rint(draws.weights)).all()
    assert (draws.weights >= 0).all()


def test_days_are_drawn_in_runs() -> None:
    draws = DayDraws(140, seed=1, draws=400).weights
    together = np.mean([np.cov(draws[:, day], draws[:, (day + 1) % 140])[0, 1] for day in range(140)])
    apart = np.mean([np.cov(draws[:, day], draws[:, (day + 7) % 140])[0, 1] for day in range(140)])
    # Of 20 blocks, 6 of 140 have both days, and 7 of 140 have either.
    assert together == pytest.approx(20 * (6 / 140 - 0.05**2), abs=0.02)
    assert apart == pytest.approx(-20 * 0.05**2, abs=0.02)


def test_the_same_seed_gives_the_same_draws() -> None:
    assert (DayDraws(30, seed=3).weights == DayDraws(30, seed=3).weights).all()
    assert (DayDraws(30, seed=3).weights != DayDraws(30, seed=4).weights).any()


def test_the_variance_is_that_of_the_draws() -> None:
    random = np.random.default_rng(5)
    residual = random.normal(size=(140, 2))
    residual -= residual.mean(axis=0)
    draws = DayDraws(140, seed=1, draws=20_000)
    drawn = draws.sums(residual).var(axis=0)
    assert draws.variance(residual) == pytest.approx(drawn * 20 / 19, rel=0.05)


def test_fewer_than_two_blocks_have_no_interval() -> None:
    draws = DayDraws(1, seed=1)
    assert draws.interval(np.arange(5.0)) is None
    assert np.isnan(draws.variance(np.zeros((1, 3)))).all()


# --- lines


def test_a_line_by_hand() -> None:
    losses = [50.0] * 40
    told = [alarm("residual", 3), alarm("residual", 5, "close"), alarm("refit_asked", 6), alarm("psi", -1)]
    own = outcome(
        "tried", losses, unlabelled=25, alarms=told, refits=[refit(-2), refit(2), refit(3, "refused"), refit(4)]
    )
    current = outcome("current", [50.5] * 40, unlabelled=25)
    line = policy_figures(own, current, DayDraws(40, seed=1), PANE_MS)
    assert (line.policy, line.alarms, line.refits, line.published) == ("tried", 1, 3, 2)
    assert line.log_loss.value == pytest.approx(0.5)
    assert line.brier.value == pytest.approx(0.2)
    assert line.debiased_ece.value == 0.0
    assert line.worst_group_error_percent == 2.5
    assert line.coverage == pytest.approx(0.8)
    assert line.staleness_hours == pytest.approx(36)
    difference = line.log_loss_difference
    assert difference is not None
    assert (difference.value, difference.low, difference.high) == pytest.approx((-0.005, -0.005, -0.005))


def test_the_current_policy_has_no_difference_and_the_raw_score_has_one() -> None:
    current = outcome("current", [50.0] * 40)
    draws = DayDraws(40, seed=1)
    assert policy_figures(current, current, draws, PANE_MS).log_loss_difference is None
    raw = raw_figures(current, draws)
    assert (raw.policy, raw.alarms, raw.refits) == ("raw score", 0, 0)
    assert raw.log_loss_difference is not None
    assert raw.log_loss_difference.value == pytest.approx(0.1)
    assert raw.debiased_ece.value == pytest.approx(np.sqrt(0.01 - 0.21 / 3_999))


def test_only_days_behind_the_warm_up_count() -> None:
    made = outcome("p", [90.0] * 5 + [50.0] * 20, scored_from_day=FIRST_DAY + 5)
    assert policy_figures(made, made, DayDraws(20, seed=1), PANE_MS).log_loss.value == pytest.approx(0.5)


def test_all_days_count_where_the_history_is_shorter_than_the_warm_up() -> None:
    made = outcome("p", [50.0] * 10, scored_from_day=FIRST_DAY + 14)
    assert len(scored_days(made)) == 10
    assert is_warm_up_only(made)
    assert not is_warm_up_only(outcome("p", [50.0] * 10, scored_from_day=FIRST_DAY + 9))


def test_coverage_counts_winners_of_whole_days() -> None:
    made = outcome("p", [50.0] * 3, unlabelled=100)
    made.days[-1] = msgspec.structs.replace(made.days[-1], scored=1_000)  # most of its panes are not final yet
    assert policy_figures(made, made, DayDraws(3, seed=1), PANE_MS).coverage == 0.5


def test_the_age_of_data_is_that_of_scores_with_a_snapshot() -> None:
    made = outcome("p", [50.0] * 2, unlabelled=100)
    # On the first day a quarter of the labelled were served raw, so of 200 scores 150 had a snapshot.
    made.days[0] = msgspec.structs.replace(made.days[0], identity=25, staleness_ms=150 * 3_600_000.0)
    line = policy_figures(made, made, DayDraws(2, seed=1), PANE_MS)
    assert line.staleness_hours == pytest.approx((150 + 200 * 36) / 350)
    never = outcome("p", [50.0])
    never.days[0] = msgspec.structs.replace(never.days[0], identity=100, staleness_ms=0.0)
    assert policy_figures(never, never, DayDraws(1, seed=1), PANE_MS).staleness_hours == 0.0


def test_days_at_the_end_that_have_no_labels_yet_do_not_count() -> None:
    made = outcome("p", [50.0] * 10)
    empty = outcome("p", [0.0] * 3, labelled=0, unlabelled=100)
    made.days.extend(empty.days)
    assert len(scored_days(made)) == 10


def test_a_history_without_labels_cannot_be_compared() -> None:
    made = outcome("p", [0.0] * 3, labelled=0, unlabelled=100)
    with pytest.raises(BacktestError, match="policy p: the history has no score with a final label"):
        scored_days(made)


@pytest.mark.parametrize("other", [outcome("b", [50.0] * 9), outcome("b", [50.0] * 10, history="another")])
def test_policies_of_other_histories_are_not_compared(other: PolicyOutcome) -> None:
    with pytest.raises(BacktestError, match="policies b and a were not run over the same days"):
        policy_figures(other, outcome("a", [50.0] * 10), DayDraws(9, seed=1), PANE_MS)


def test_a_single_day_has_figures_without_intervals() -> None:
    made = outcome("p", [50.0])
    line = policy_figures(made, made, DayDraws(1, seed=1), PANE_MS)
    assert (line.log_loss.value, line.log_loss.low, line.log_loss.high) == (0.5, None, None)
    assert (line.debiased_ece.low, line.debiased_ece.high) == (None, None)


# --- coverage, in worlds where the days have shocks

WORLDS = 400
_RATES = (np.arange(RELIABILITY_BINS) + 0.5) / RELIABILITY_BINS
_USED = slice(2, 12)


class Worlds:
    """Days with a shock in log-odds of standard deviation .25 that half lasts to the next; (worlds, days, bins).

    `off`: how much log-odds of outcomes are off what is served.
    """

    def __init__(self, days: int, off: float) -> None:
        random = np.random.default_rng(17)
        shock = np.zeros((WORLDS, days))
        shock[:, 0] = random.normal(size=WORLDS)
        for day in range(1, days):
            shock[:, day] = 0.5 * shock[:, day - 1] + np.sqrt(0.75) * random.normal(size=WORLDS)
        shock *= 0.25
        served = _RATES[_USED]
        self.labelled = random.poisson(30, (WORLDS, days, len(served))).astype(np.float64)
        true = expit(logit(served) + off + shock[:, :, None])
        self.positives = random.binomial(self.labelled.astype(np.int64), true).astype(np.float64)
        nodes, weights = np.polynomial.hermite_e.hermegauss(41)
        rate = expit(logit(served)[:, None] + off + 0.25 * nodes) @ (weights / weights.sum())
        self.true_loss = float(np.mean(-(rate * np.log(served) + (1 - rate) * np.log1p(-served))))
        self.true_ece = float(np.sqrt(np.mean((rate - served) ** 2)))

    def columns(self, world: int) -> DayColumns:
        labelled, positives = self.labelled[world], self.positives[world]
        served = _RATES[_USED]
        loss = -(positives * np.log(served) + (labelled - positives) * np.log1p(-served)).sum(axis=1)
        squared = (positives * (1 - served) ** 2 + (labelled - positives) * served**2).sum(axis=1)
        return DayColumns(labelled.sum(axis=1), loss, squared, labelled, positives, labelled * served)


def covered(low: float | None, high: float | None, truth: float) -> bool:
    return low is not None and high is not None and low <= truth <= high


@pytest.mark.parametrize(("days", "off"), [(120, 0.0), (120, 0.2), (20, 0.2)])
def test_intervals_hold_in_19_of_20_worlds_with_shocks_of_days(days: int, off: float) -> None:
    worlds, draws = Worlds(days, off), DayDraws(days, seed=1)
    loss = ece = 0
    estimates: list[float] = []
    for world in range(WORLDS):
        columns = worlds.columns(world)
        of_loss = mean_interval(columns.log_loss, columns.labelled, draws)
        of_ece = ece_interval(columns, draws)
        loss += covered(of_loss.low, of_loss.high, worlds.true_loss)
        ece += covered(of_ece.low, of_ece.high, worlds.true_ece)
        estimates.append(debiased_squared_ece(columns, draws))
    assert 0.90 <= loss / WORLDS <= 0.98
    assert 0.90 <= ece / WORLDS <= (0.98 if off else 1.0)  # near 0 the figure has nowhere to go, and more is covered
    error = float(np.std(estimates)) / np.sqrt(WORLDS)
    assert float(np.mean(estimates)) == pytest.approx(worlds.true_ece**2, abs=4 * error)


def width(interval: Interval) -> float:
    low, high = ends(interval)
    return high - low


def test_paired_differences_leave_out_what_the_days_share() -> None:
    random = np.random.default_rng(3)
    shared = 50 + 5 * random.normal(size=100)
    one = outcome("a", shared + 0.1 * random.normal(size=100) - 0.2)
    other = outcome("b", shared)
    draws = DayDraws(100, seed=1)
    line = policy_figures(one, other, draws, PANE_MS)
    difference, loss = line.log_loss_difference, line.log_loss
    assert difference is not None
    assert float(difference.high or 0) < 0
    assert width(difference) < 0.1 * width(loss)
    served = DayColumns.served(one.days)
    assert difference_interval(served.log_loss, served.log_loss, served, served, draws).low == 0.0


some_days = st.lists(st.tuples(st.integers(1, 500), st.floats(0.1, 1), st.floats(0.1, 1)), min_size=2, max_size=40)


def columns_of(labelled: Column, loss: Column) -> DayColumns:
    empty = np.zeros((len(labelled), RELIABILITY_BINS))
    return DayColumns(labelled, loss * labelled, loss * labelled, empty, empty, empty)


@settings(max_examples=30, deadline=None)
@given(some_days, st.floats(0.01, 100))
def test_differences_turn_round_and_units_of_weight_do_not_matter(
    days: list[tuple[int, float, float]], unit: float
) -> None:
    labelled, loss, other_loss = np.array(days, dtype=np.float64).T
    draws = DayDraws(len(days), seed=1)
    own, other = columns_of(labelled, loss), columns_of(labelled, other_loss)
    one = difference_interval(own.log_loss, other.log_loss, own, other, draws)
    turned = difference_interval(other.log_loss, own.log_loss, other, own, draws)
    assert (one.value, one.low, one.high) == pytest.approx(
        (-turned.value, -ends(turned)[1], -ends(turned)[0]), abs=1e-8
    )
    assert ends(one)[0] <= ends(one)[1]
    scaled = columns_of(labelled * unit, loss)
    plain, weighed = (mean_interval(c.log_loss, c.labelled, draws) for c in (own, scaled))
    assert (plain.value, *ends(plain)) == pytest.approx((weighed.value, *ends(weighed)), rel=1e-7)
    assert loss.min() - 1e-8 <= ends(plain)[0] <= plain.value + 1e-8
    assert plain.value - 1e-8 <= ends(plain)[1] <= loss.max() + 1e-8


def ends(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high
