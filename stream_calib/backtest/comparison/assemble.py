"""The result of a backtest out of what its policies did: figures, optimism, and what to beware of."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from stream_calib.backtest.comparison.bootstrap import DayDraws
from stream_calib.backtest.comparison.figures import is_warm_up_only, policy_figures, raw_figures, scored_days
from stream_calib.backtest.comparison.optimism import optimism_of
from stream_calib.backtest.document import BacktestDocument, Detection, Optimism, PolicyFigures
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.errors import BacktestError
from stream_calib.refit.settings import DAY_MS

FEW_DAYS = 30
"""Labelled days below which intervals are no more than a hint."""
LITTLE_COVERAGE = 0.9
_OPEN_END_DAYS = 7
_NAMES = 3


def assemble(
    history: CellHistory,
    outcomes: Sequence[PolicyOutcome],
    current: str,
    detections: Sequence[Detection] = (),
    seed: int = 0,
) -> BacktestDocument:
    """The document of several policies over one history; `current` is the name of that which others are compared with.

    Raises BacktestError where there is none of that name, two have one name, they were not run over the same history,
    or that has no score with a final label.
    """
    names = [outcome.policy for outcome in outcomes]
    if current not in names:
        near = difflib.get_close_matches(current, names, n=1)
        raise BacktestError(
            f"there is no policy {current!r} to compare with; "
            + (f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names) or 'none'}")
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BacktestError(f"two policies are called {twice[0]!r}; give each a name of its own")
    own = outcomes[names.index(current)]
    draws = DayDraws(len(scored_days(own)), seed)
    table = [policy_figures(outcome, own, draws, history.pane_ms) for outcome in outcomes]
    optimism = optimism_of(outcomes, names.index(current), draws)
    return BacktestDocument(
        model=history.key.model,
        model_version=history.key.version,
        source=history.source,
        start=history.start,
        pane_ms=history.pane_ms,
        first_pane=history.first_pane,
        last_pane=history.last_pane,
        counts=dict(history.counts),
        current=current,
        outcomes=list(outcomes),
        table=table,
        raw=raw_figures(own, draws),
        optimism=optimism,
        detections=list(detections),
        warnings=list(_warnings(history, outcomes, own, table[names.index(current)], optimism)),
    )


def _warnings(
    history: CellHistory,
    outcomes: Sequence[PolicyOutcome],
    own: PolicyOutcome,
    figures: PolicyFigures,
    optimism: Optimism | None,
) -> Iterator[str]:
    days = scored_days(own)
    labelled = sum(day.served.labelled > 0 for day in days)
    if history.start == "cold":
        yield (
            f"The history starts cold: what was before {_date(history.first_pane, history.pane_ms)} is not known, so"
            " snapshots, alarms and the first refits are not those of a service that was running then."
        )
    if is_warm_up_only(own):
        yield (
            f"The history is shorter than the warm up: labels end before {_day(own.scored_from_day)}. All of its days"
            " are in the figures, also those before the first snapshot; a longer history says more."
        )
    if labelled < FEW_DAYS:
        yield (
            f"Only {labelled} days with labels count: intervals are rough with fewer than {FEW_DAYS}, and a difference"
            " that looks certain may not be."
        )
    if figures.coverage < LITTLE_COVERAGE:
        yield (
            f"Only {figures.coverage:.0%} of the scores have a label. The figures are of these; of the others nothing"
            " is known."
        )
    outages = sum(alarm.kind == "label_outage" and alarm.state == "open" for alarm in own.alarms)
    if outages:
        yield (
            f"Labels were missing {_times(outages)} (alert label_outage): those days are in no refit, and hardly in the"
            " figures."
        )
    open_days = (history.last_pane - history.last_matured) * history.pane_ms / DAY_MS
    if open_days > _OPEN_END_DAYS:
        yield (f"Labels of the last {open_days:.0f} days are not final yet: these days are in no figure and no refit.")
    yield from _of_publications(outcomes)
    if optimism is not None and optimism.warning is not None:
        yield optimism.warning[0].upper() + optimism.warning[1:] + "."


def _of_publications(outcomes: Sequence[PolicyOutcome]) -> Iterator[str]:
    held = [o.policy for o in outcomes if any(refit.outcome == "held" for refit in o.refits)]
    never = [o.policy for o in outcomes if not any(refit.outcome == "published" for refit in o.refits)]
    if held:
        yield (
            f"Candidates of {_listed(held)} were held, and nobody approves them in a backtest; to see what they are"
            ' worth, set refit.publish = "auto".'
        )
    never = [name for name in never if name not in held]
    if never:
        yield f"{_listed(never)} published no snapshot: the raw score was served all the time."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _date(pane: int, pane_ms: int) -> str:
    return _day(pane * pane_ms // DAY_MS)


def _day(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
