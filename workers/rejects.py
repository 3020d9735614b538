"""Counting what a role reads and rejects, and saying so once for each reason: everything else stands in the dead
letters."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from stream_calib import metrics
from stream_calib.events.contracts import Reject
from stream_calib.transport.port import Record

_LOG = logging.getLogger(__name__)


class RejectCounts:
    """Of one process, for its status."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self._read: Counter[str] = Counter()
        self._by_topic: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def read(self, topic: str, records: int) -> None:
        """So many records of the topic were read, good ones and others."""
        self._read[topic] += records

    def add(self, records: Sequence[Record], rejects: Sequence[Reject]) -> None:
        """`rejects` are of the batch `records`. Values of records are not logged: they may be personal."""
        for reject in rejects:
            record, reason = records[reject.record_index], reject.reason.value
            if not self.by_reason[reason]:
                _LOG.warning(
                    "%s, offset %s, is rejected: %s (the first one of this process; its dead letter or output says"
                    " more, status counts the others)",
                    record.source,
                    record.offset,
                    reason,
                    extra={"topic": record.source.topic, "partition": record.source.partition, "reason": reason},
                )
            self.by_reason[reason] += 1
            self._by_topic[record.source.topic][reason] += 1
            metrics.REJECTED.labels(record.source.topic, reason).inc()

    def facts(self) -> dict[str, Any]:
        """Since the process began: `rejected`, reason -> number; `records`, topic -> those read, and its rejects."""
        return {
            "rejected": dict(self.by_reason),
            "records": {t: {"read": n, "rejected": dict(self._by_topic[t])} for t, n in self._read.items()},
        }
