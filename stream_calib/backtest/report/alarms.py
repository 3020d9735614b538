"""Alarms from their opening to their closing."""

from __future__ import annotations

from dataclasses import dataclass

from stream_calib.backtest.comparison.figures import TOLD
from stream_calib.backtest.outcome import PolicyOutcome


@dataclass(frozen=True, slots=True)
class AlarmSpan:
    """One alarm of a kind: it opens once and closes once."""

    kind: str
    since_ms: int
    """Start of the first pane that it is about."""
    opened_ms: int
    """End of the pane at whose step it opened."""
    closed_ms: int | None
    """None: still open at the end."""
    what: str


def alarm_spans(outcome: PolicyOutcome, pane_ms: int) -> list[AlarmSpan]:
    """In the order in which they opened; those that nobody is told of, as of each refit, are left out."""
    out: list[AlarmSpan] = []
    opened: dict[str, int] = {}
    for event in outcome.alarms:
        at = (event.pane + 1) * pane_ms
        if event.kind not in TOLD:
            continue
        if event.state == "open":
            opened[event.kind] = len(out)
            out.append(AlarmSpan(event.kind, event.since_ms, at, None, event.what))
        elif event.state == "close" and event.kind in opened:
            place = opened.pop(event.kind)
            span = out[place]
            out[place] = AlarmSpan(span.kind, span.since_ms, span.opened_ms, at, span.what)
    return out
