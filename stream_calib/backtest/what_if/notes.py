"""What a fault came to in a history, where that is not what its settings say."""

from __future__ import annotations

from collections.abc import Iterator

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.what_if.faults import Injection
from stream_calib.backtest.what_if.stretch import EventGroup, stretch_of
from stream_calib.pages.texts import minute_text

_FEW = 0.01
"""Share of outcomes that are left to move below which a shift is at its limit."""


def notes_of(before: CellHistory, after: CellHistory, fault: Injection) -> Iterator[str]:
    """In words for people, of the history without the fault and with it."""
    pane_ms = before.pane_ms
    begin_ms, end_ms = before.first_pane * pane_ms, (before.last_pane + 1) * pane_ms
    if fault.from_ms < begin_ms:
        yield f"the history begins later than the fault, so it is in it from {minute_text(begin_ms)} UTC on"
    if fault.until_ms is not None and fault.until_ms > end_ms:
        yield f"the history ends earlier than the fault, so it is in it until {minute_text(end_ms)} UTC"
    if fault.fault == "shift":
        labelled, was, now = (*_outcomes(before, fault), _outcomes(after, fault)[1])
        text = f"of its {labelled:,} outcomes {was / labelled:.1%} were positive, and with it {now / labelled:.1%} are"
        left = labelled - now if fault.amount > 0 else now
        if left < _FEW * labelled:
            text += ": hardly one is left to move, so the shift is at its limit, and a larger one would be the same"
        yield text


def _outcomes(history: CellHistory, fault: Injection) -> tuple[int, int]:
    """Labelled, positives of the group in the stretch."""
    group = EventGroup(history, fault)
    panes = stretch_of(history, fault)
    labelled = positives = 0
    for pane in range(panes.start, min(panes.stop, history.last_matured + 1)):
        cells = history.matured(pane)
        mine = group.has(cells.signature)
        labelled += int(cells.labelled[mine].sum())
        positives += int(cells.positives[mine].sum())
    return labelled, positives
