"""Which policies the report follows in detail, and what can be said about them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stream_calib.backtest.comparison.optimism import CHANCE
from stream_calib.backtest.document import BacktestDocument, Interval, Optimism, PolicyFigures
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.errors import BacktestError

Verdict: TypeAlias = Literal["alone", "current_best", "better", "doubtful", "picked", "unclear", "unknown"]
"""Of the best policy against the current one. `alone`: no other was tried; `current_best`: no other has a lower
log-loss; `better`: lower beyond chance; `doubtful`: likewise, but the best of so many leads so often by chance;
`picked`: likewise, but no more than picking the best of so many brings; `unclear`: chance can be all of it;
`unknown`: too few days to tell."""
Side: TypeAlias = Literal["better", "worse", "same", "unknown"]
"""Of a difference of losses with its interval."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The current policy, and the one of least log-loss where that is another."""

    document: BacktestDocument
    current: PolicyOutcome
    figures: PolicyFigures
    """Of the current policy."""
    best: PolicyOutcome | None
    best_figures: PolicyFigures | None
    verdict: Verdict


def chosen(document: BacktestDocument) -> Chosen:
    """Raises BacktestError where the document lacks the outcome, or the figures, of a policy that it speaks of."""
    outcomes = {outcome.policy: outcome for outcome in document.outcomes}
    table = {figures.policy: figures for figures in document.table}
    if missing := [name for name in (document.current, *table) if name not in outcomes or name not in table]:
        raise BacktestError(
            f"the result of the backtest has no outcome or no figures of the policy {missing[0]!r}; run it again"
        )
    current = table[document.current]
    known = [figures for figures in document.table if math.isfinite(figures.log_loss.value)]
    best = min(known, key=lambda figures: (figures.log_loss.value, figures is not current), default=current)
    verdict: Verdict = "alone" if len(table) == 1 else _verdict(current, best, document.optimism)
    if best is current:
        return Chosen(document, outcomes[current.policy], current, None, None, verdict)
    return Chosen(document, outcomes[current.policy], current, outcomes[best.policy], best, verdict)


def side(difference: Interval | None) -> Side:
    """Whether a difference (below 0 is better) is beyond chance."""
    if difference is None or difference.low is None or difference.high is None:
        return "unknown"
    return "better" if difference.high < 0 else "worse" if difference.low > 0 else "same"


def _verdict(current: PolicyFigures, best: PolicyFigures, optimism: Optimism | None) -> Verdict:
    if best is current:
        return "current_best"
    seen = side(best.log_loss_difference)
    if seen != "better":
        return "unknown" if seen == "unknown" else "unclear"
    lead = current.log_loss.value - best.log_loss.value
    if optimism is None:
        return "better"
    if optimism.optimism >= lead:
        return "picked"
    return "better" if optimism.by_chance is not None and optimism.by_chance <= CHANCE else "doubtful"
