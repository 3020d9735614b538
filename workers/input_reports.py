"""Where the monitors stand with each input: who must wait for whom, and which label partitions are idle. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stream_calib.config import WindowsSection


class InputReport(NamedTuple):
    """One input as the monitor that reads it sees it."""

    position: int
    clock_ms: int | None
    idle_since_ms: int | None
    """Since when it has been read to its end, wall time; None: it has unread records."""


def too_far_ahead(reports: Mapping[str, InputReport], max_input_skew_ms: int) -> frozenset[str]:
    """Inputs to pause: more than `max_input_skew_ms` ahead of the slowest other one that has unread records.

    An input that has been read to its end holds up nobody, or all would wait for its next record.
    """
    unread = sorted(
        (-1 if r.clock_ms is None else r.clock_ms, i) for i, r in reports.items() if r.idle_since_ms is None
    )
    paused = set()
    for input_key, report in reports.items():
        slowest = next((clock for clock, other in unread if other != input_key), None)
        if slowest is not None and report.clock_ms is not None and report.clock_ms > slowest + max_input_skew_ms:
            paused.add(input_key)
    return frozenset(paused)


class IdleLabelInputs:
    """Which label inputs are left out of the minimum: those that have been at their end, and behind another label
    input, for `idle_timeout_ms`.

    Both count from when another one went ahead. Where labels come in batches all inputs have been silent for long, and
    the first one that is read on would leave the others out at once, whose records are there too.
    """

    def __init__(self, idle_timeout_ms: int) -> None:
        self._idle_timeout_ms = idle_timeout_ms
        self._behind_since: dict[str, int] = {}
        """Of the inputs that are at their end and behind -> since when, wall time."""

    @classmethod
    def of(cls, windows: WindowsSection) -> IdleLabelInputs | None:
        """As configured; None where none is ever left out: history has no idleness, and silence is no negative."""
        if windows.idle_timeout_ms is None or windows.missing_label == "negative_at_horizon":
            return None
        return cls(windows.idle_timeout_ms)

    @property
    def behind(self) -> frozenset[str]:
        """Those that were at their end and behind when it was asked last, left out or not yet."""
        return frozenset(self._behind_since)

    def left_out(self, reports: Mapping[str, InputReport], now_ms: int) -> dict[str, int]:
        """Those to leave out now -> their end positions. To be asked often: it notes who is behind."""
        clocks = {i: -1 if r.clock_ms is None else r.clock_ms for i, r in reports.items() if i.startswith("l:")}
        newest = max(clocks.values(), default=-1)
        behind = [i for i, clock in clocks.items() if reports[i].idle_since_ms is not None and clock < newest]
        self._behind_since = {i: self._behind_since.get(i, now_ms) for i in behind}
        return {
            i: reports[i].position
            for i, since in self._behind_since.items()
            if now_ms - max(since, reports[i].idle_since_ms or 0) >= self._idle_timeout_ms
        }
