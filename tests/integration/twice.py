"""A role process whose monitor is given every batch twice: `python -m tests.integration.twice run --role monitor ...`.

After it has applied a batch, and before its positions are committed, it goes back to where the batch began, as a
process would that was taken for dead. So the shards see every range again, cut otherwise where new records have come.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TypeAlias

from stream_calib.events.contracts import ModelKey
from stream_calib.transport.port import PolledBatch, TopicPartition
from stream_calib.windows.shard_store import Mark
from workers import cli
from workers.monitor import Monitor
from workers.run import ROLES

_LOG = logging.getLogger(__name__)

Marks: TypeAlias = dict[ModelKey, Mark]


class TwiceMonitor(Monitor):
    """Reads everything twice, batch by batch."""

    _given = 0

    def open(self) -> None:
        super().open()
        self._passed: dict[TopicPartition, dict[int, Marks]] = defaultdict(dict)
        """Positions at which a batch has ended -> the marks there."""
        self._once: dict[TopicPartition, int] = {}
        """Delivered at least once up to here."""

    def close(self) -> None:
        super().close()
        _LOG.info("given %d records", self._given)

    def _apply(self, polled: PolledBatch) -> None:
        self._given += len(polled.records)
        starts = {p: self._marks(p) for p, span in polled.ranges.items() if span.start == self._positions.get(p)}
        super()._apply(polled)
        for partition, start in starts.items():
            reached = self._positions[partition]
            if reached != polled.ranges[partition].end:
                continue  # the product itself has gone back
            began = polled.ranges[partition].start
            marks = self._passed[partition]
            marks |= {began: start, reached: self._marks(partition)}
            once = self._once.get(partition, began)
            self._once[partition] = max(once, reached)
            twice = min(max(once, began), reached)
            if twice < self._once[partition]:
                for key, mark in marks[twice].items():
                    self._models.served[key].marks[self._partitions.keys[partition]] = mark
                self._seek([partition])

    def _marks(self, partition: TopicPartition) -> Marks:
        name = self._partitions.keys[partition]
        return {key: model.marks[name] for key, model in self._models.served.items()}


if __name__ == "__main__":
    ROLES["monitor"] = TwiceMonitor
    cli.main()
