"""How much better the best of many policies looks than it is: nested forward evaluation.

The best of many on the same days is chosen by what happened on these days, chance included, so its figure is too good
(Cawley, Talbot, "On over-fitting in model selection and subsequent selection bias in performance evaluation", JMLR 11,
2010). What choosing is worth is told by days that the choice has not seen: on each day the policy is followed that had
the least mean loss up to the day before (prequential: Dawid, "Statistical theory: the prequential approach", 1984).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.comparison.bootstrap import DayDraws
from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.document import Optimism
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.snapshot.figures import rounded_figure

MANY = 10
"""Policies, beyond which the figure of the best is not to be taken as it is."""
CHANCE = 0.05
"""A lead that comes up by chance more often shows nothing."""


def optimism_of(outcomes: Sequence[PolicyOutcome], current: int, draws: DayDraws) -> Optimism | None:
    """Of several policies over the same days, `current` the place of the current one; None where there is one only."""
    if len(outcomes) < 2:
        return None
    days = [scored_days(outcome) for outcome in outcomes]
    losses = np.array([[day.served.log_loss for day in one] for one in days])
    labelled = np.array([day.served.labelled for day in days[current]])
    return nested_forward([outcome.policy for outcome in outcomes], losses, labelled, current, draws)


def nested_forward(
    names: Sequence[str],
    losses: NDArray[np.float64],
    labelled: NDArray[np.float64],
    current: int,
    draws: DayDraws,
) -> Optimism:
    """Of k policies, from sums of log-loss (k, d) and labelled weights (d,) by day; `current`: place of the current
    one."""
    total = float(labelled.sum())
    means = losses.sum(axis=1) / total
    best = _least(means, current)
    followed = float(losses[followed_policies(losses, current), np.arange(len(labelled))].sum()) / total
    optimism = followed - float(means[best])
    lead = float(means[current] - means[best])
    chance = by_chance(losses, labelled, current, draws)
    return Optimism(
        policies=len(names),
        best=names[best],
        best_log_loss=rounded_figure(float(means[best])),
        followed_log_loss=rounded_figure(followed),
        optimism=rounded_figure(optimism),
        warning=_warning(len(names), optimism, lead, chance),
        by_chance=None if chance is None else rounded_figure(chance),
    )


def followed_policies(losses: NDArray[np.float64], current: int) -> NDArray[np.intp]:
    """(d,) policy that is followed on each day, from sums of log-loss (k, d): that of the least sum over the days
    before, the current one among equals and on the first day. All policies have the same labelled weights."""
    before = np.concatenate([np.zeros((len(losses), 1)), np.cumsum(losses, axis=1)[:, :-1]], axis=1)
    order = np.roll(np.arange(len(losses)), -current)  # the current one first: argmin takes the first of equals
    return np.asarray(order[before[order].argmin(axis=0)])


def by_chance(
    losses: NDArray[np.float64], labelled: NDArray[np.float64], current: int, draws: DayDraws
) -> float | None:
    """How often the best of these policies would lead the current one by as much or more if none were better: the
    reality check of White, "A reality check for data snooping", Econometrica 68, 2000, over blocks of days; 1 where
    none leads.

    Sums of log-loss (k, d), labelled weights (d,). None with fewer than two blocks of days.
    """
    if draws.blocks < 2:
        return None
    gains = np.delete(losses[current] - losses, current, axis=0).T
    mean = gains.sum(axis=0) / labelled.sum()
    if mean.max() <= 0:
        return 1.0
    drawn = draws.sums(gains) / np.maximum(draws.sums(labelled), np.finfo(np.float64).tiny)[:, None]
    return float(np.mean((drawn - mean).max(axis=1) >= mean.max()))


def _least(means: NDArray[np.float64], current: int) -> int:
    least = int(means.argmin())
    return current if means[current] == means[least] else least


def _warning(policies: int, optimism: float, lead: float, chance: float | None) -> str | None:
    if lead <= 0:
        return None
    doubts = []
    if policies > MANY:
        doubts.append(f"{policies} policies were tried, and the best of so many looks better than it is")
    if optimism > lead:
        doubts.append(
            "following the best so far from day to day would have been worse than the current policy, by"
            f" {optimism - lead:.5f} of log-loss"
        )
    if chance is not None and (doubts or chance > CHANCE):
        doubts.append(f"a lead like this comes up by chance in {chance:.0%} of the cases where none is better")
    if not doubts:
        return None
    return "; ".join(doubts) + ". Choose on earlier days, and judge the choice on later ones"
