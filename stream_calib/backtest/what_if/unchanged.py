"""Why a fault changed nothing of a history: nobody is there whom it could change, or chance drew none of them."""

from __future__ import annotations

import numpy as np

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.what_if.faults import Injection
from stream_calib.backtest.what_if.stretch import EventGroup


def why_unchanged(history: CellHistory, injection: Injection, group: EventGroup, panes: range) -> str:
    """In words for people, with what to do. `panes`: of the stretch."""
    whose = _whose(injection)
    n = sum(_events(history, injection, group, pane) for pane in panes)
    if not n:
        return "no event of the group is there" + (f", or none {whose}" if whose else "")
    events = f"{n:,} {'event' if n == 1 else 'events'}"
    return (
        f"of the group {events}{whose and ' '}{whose} {'is' if n == 1 else 'are'} there, and chance drew none of them;"
        " make the stretch longer, the group larger or the fault stronger, or take another seed"
    )


def _whose(injection: Injection) -> str:
    """Of the group's events, those that the fault can change."""
    if injection.fault == "shift":
        return f"with a {'negative' if injection.amount > 0 else 'positive'} label that is final"
    if injection.fault == "outage":
        return f"with a {'positive ' if injection.missing_is_negative else ''}label that is final"
    return ""


def _events(history: CellHistory, injection: Injection, group: EventGroup, pane: int) -> int:
    """Of a pane, those that the fault can change."""
    scored = history.scored(pane)
    n_scored = int(scored.n[group.has(scored.signature)].sum())
    if pane > history.last_matured:
        return n_scored if injection.fault in ("traffic", "duplicate") else 0
    cells = history.matured(pane)
    mine = np.flatnonzero(group.has(cells.signature))
    labelled, positives, unlabelled = (
        int(column[mine].sum()) for column in (cells.labelled, cells.positives, cells.unlabelled)
    )
    if injection.fault == "shift":
        return labelled - positives if injection.amount > 0 else positives
    if injection.fault == "outage":
        return positives if injection.missing_is_negative else labelled
    # Rare values may have been put together in the matured cells: one of the two may have events that the other lacks.
    return max(n_scored, labelled + unlabelled)
