"""A role process whose monitor is given every batch twice: `python -m tests.integration.twice run --role monitor ...`.

After it has applied a batch, and before its positions are committed, it goes back to where the batch began, as a
process would that was taken for dead. So the shards see every range again, cut otherwise where new records have come.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from stream_calib.transport.port import PolledBatch, TopicPartition
from stream_calib.windows.shard_store import Mark
from workers import cli
from workers.monitor import Monitor
from workers.run import ROLES

_LOG = logging.getLogger(__name__)


class TwiceMonitor(Monitor):
    """Reads everything twice, batch by batch."""

    _given = 0

    def open(self) -> None:
        super().open()
        self._passed: dict[TopicPartition, dict[int, Mark]] = defaultdict(dict)
        """Positions at which a batch has ended -> the mark there."""
        self._once: dict[TopicPartition, int] = {}
        """Delivered at least once up to here."""

    def close(self) -> None:
        super().close()
        _LOG.info("given %d records", self._given)

    def _apply(self, polled: PolledBatch) -> None:
        self._given += len(polled.records)
        starts = {p: self._marks[p] for p, span in polled.ranges.items() if span.start == self._marks[p].next}
        super()._apply(polled)
        for partition, start in starts.items():
            reached = self._marks[partition]
            if reached.next != polled.ranges[partition].end:
                continue  # the product itself has gone back
            marks = self._passed[partition]
            marks |= {start.next: start, reached.next: reached}
            once = self._once.get(partition, start.next)
            self._once[partition] = max(once, reached.next)
            twice = min(max(once, start.next), reached.next)
            if twice < self._once[partition]:
                self._rewind(partition, marks[twice])


if __name__ == "__main__":
    ROLES["monitor"] = TwiceMonitor
    cli.main()
