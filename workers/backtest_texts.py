"""What is printed of a backtest beside the policy table."""

from __future__ import annotations

from collections.abc import Mapping

from stream_calib.backtest.document import Detection
from stream_calib.backtest.exact.verify import Verification
from stream_calib.backtest.history import CellHistory
from stream_calib.events.contracts import ModelKey
from stream_calib.pages.texts import in_words
from workers.time_text import age, utc_minute, utc_of_pane

_COUNTED = {
    "rows": "rows",
    "accepted": "scores accepted",
    "winners": "of them counted: each id once in a pane (winners)",
    "labelled": "of these with a label at their horizon (labelled)",
    "unlabelled": "of these without one (unlabelled)",
    "labels": "labels accepted",
    "matched": "of them that found their score within the horizon (matched)",
    "unmatched": "of them that did not (unmatched)",
}
"""Names of counts, in the order in which they are shown, and what they say; others stand behind them by their names."""


def history_text(history: CellHistory) -> str:
    """What was replayed, and what was counted."""
    first, end = (utc_of_pane(pane, history.pane_ms) for pane in (history.first_pane, history.last_pane + 1))
    start = "as live from its beginning" if history.start == "exact" else "started cold"
    return (
        f"{history.key}: {history.source}\n{len(history.panes):,} panes from {first} to {end} UTC, {start}"
        + "".join(f"\n  {n:>13,}  {_COUNTED.get(name, in_words(name))}" for name, n in _in_order(history.counts))
    )


def _in_order(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    known = [(name, counts[name]) for name in _COUNTED if name in counts]
    return [*known, *((name, n) for name, n in sorted(counts.items()) if name not in _COUNTED)]


def detection_text(detection: Detection) -> str:
    """What became of a fault."""
    lines = [f"what if: {detection.injected}", *(f"  {note}" for note in detection.notes)]
    if detection.noticed_ms is None:
        lines.append("  noticed: never")
    else:
        lines.append(f"  noticed {_when(detection.noticed_ms, detection.from_ms)}, by {detection.noticed_by}")
    if detection.refit_ms is not None:
        lines.append(f"  first other snapshot {_when(detection.refit_ms, detection.from_ms)}")
    losses = [
        "no labels" if loss is None else f"{loss:.5f}" for loss in (detection.log_loss, detection.log_loss_untouched)
    ]
    lines.append(f"  log-loss from then on {losses[0]}, without the fault {losses[1]}")
    return "\n".join(lines)


def verification_text(found: Verification, key: ModelKey, pane_ms: int) -> str:
    """What was compared, and what differs."""
    first, end = (utc_of_pane(pane, pane_ms) for pane in (found.first_pane, found.matured + 1))
    lines = [
        f"{key}: panes from {first} to {end} UTC: cells of {found.closed - found.first_pane + 1:,} closed and"
        f" {found.matured - found.first_pane + 1:,} matured panes, {found.entries:,} entries of the decision log,"
        f" {found.snapshots:,} snapshots, {found.alerts:,} events of alerts"
    ]
    lines += [f"not compared: {what}" for what in found.left_out]
    lines += [f"differs: {difference.text}" for difference in found.differences]
    return "\n".join([*lines, *([] if found.differences else ["the replay is the live run, to the byte"])])


def _when(time_ms: int, from_ms: int) -> str:
    late = time_ms - from_ms
    how = f"{age(late)} after" if late >= 0 else f"{age(-late)} before"
    return f"{utc_minute(time_ms)} UTC, {how} it began"
