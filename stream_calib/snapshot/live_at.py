"""What was live at a time: by the clock on the wall, and by the time of the events.

Two questions that only agree while events come as they happen. *Wall time*: which version did the pointer name then,
since when, who put it there and why; readers take it up within `serving.snapshot_poll`. *Event time*: which version was
the pane judged by, in which an event of that time is, and by which versions were the events of this pane served; after
a replay, a delay or a pause that is not what the clock says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream_calib.snapshot.decision_log import DecisionLog
from stream_calib.snapshot.history import is_publication
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.state_store import StateStore


@dataclass(frozen=True, slots=True)
class LiveAtPane:
    """Of one pane, by event time."""

    pane: int
    decided: bool
    """Else what it will be decided with is not known yet."""
    version: str | None
    """Current when the pane was decided; None where it is not decided, where none was, or `forgotten`."""
    forgotten: bool
    """What was current is so long ago that it is no longer kept."""
    served: Mapping[str, int] | None
    """Version ("" for the raw score) -> scores of the pane that it served. None where the pane is not matured, or no
    longer kept."""


def move_at(history: Sequence[Mapping[str, Any]], time_ms: int) -> Mapping[str, Any] | None:
    """The move of the pointer that held at the wall time, epoch milliseconds; None before the first that is kept.

    Moves are in the order of the log. Clocks of two machines may disagree; the later move counts.
    """
    found = [move for move in history if is_publication(move) and move["time_ms"] <= time_ms]
    return found[-1] if found else None


def live_at_pane(state: StateStore, log: DecisionLog, pane: int) -> LiveAtPane:
    """By event time, of the pane that a time is in. Raises StateError where the pane's record is damaged."""
    decided = state.read(["decided"])["decided"]
    (record,) = state.blobs([PaneNames.of(pane).record])
    is_decided = bool(decided) and pane <= int(decided or 0)
    version = log.current_at(pane) if is_decided else None
    served = None if record is None else {v: s.winners for v, s in sorted(decode_record(record).served.items())}
    forgotten = is_decided and log.known_from_pane is not None and pane < log.known_from_pane
    return LiveAtPane(pane, is_decided, version, forgotten, served)
