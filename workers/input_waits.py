"""For how long records have waited to be read by this process.

The ends of its partitions are noted as time goes by: what lies before an end that was seen a minute ago, and is not
read yet, waits for a minute at least. So it depends on no timestamp of a record, which its producer may have set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from stream_calib.config import Config
from stream_calib.transport.port import TopicPartition

_NOTES = 64
"""Of a partition, at most."""


class Wait(NamedTuple):
    """Of the oldest unread record of a partition."""

    records: int
    """Unread offsets, with those that hold no record."""
    at_least_ms: int
    at_most_ms: int | None
    """None: what is unread was there when the process first looked."""


class InputWaits:
    """Of the partitions that one process reads."""

    def __init__(self, config: Config) -> None:
        """Waits about as long as `alerts.conditions.lag` are told from shorter ones."""
        self._every_ms = (config.alerts.conditions.lag_ms or 0) // (_NOTES // 2)
        self._ends: dict[TopicPartition, deque[tuple[int, int]]] = {}
        """(when, end that was seen then), oldest first: the last that has been read beyond, and those after it."""
        self.waits: dict[TopicPartition, Wait] = {}
        """Partitions with unread records, as of the last note."""

    def note(self, now_ms: int, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """`positions` and `ends`: of the partitions that are read now. `now_ms`: wall time."""
        for partition in self._ends.keys() - positions.keys():
            del self._ends[partition]
        self.waits = {}
        for partition, position in positions.items():
            seen, end = self._ends.setdefault(partition, deque()), ends[partition]
            if end <= position or (seen and now_ms < seen[-1][0]):
                seen.clear()  # all is read, or the clock was set back and nothing is known of the times before
            while len(seen) > 1 and seen[1][1] <= position:
                seen.popleft()
            if not seen or (len(seen) < _NOTES and now_ms - seen[-1][0] >= self._every_ms):
                seen.append((now_ms, end))
            if end > position:
                self.waits[partition] = _wait(seen, position, end, now_ms)

    def facts(self) -> dict[str, Any]:
        """For the process's status."""
        return {"waits": {str(partition): wait for partition, wait in self.waits.items()}}


def _wait(seen: deque[tuple[int, int]], position: int, end: int, now_ms: int) -> Wait:
    read_ms = seen[0][0] if seen[0][1] <= position else None
    unread_ms = next((when for when, at in seen if at > position), now_ms)
    return Wait(end - position, now_ms - unread_ms, None if read_ms is None else now_ms - read_ms)
