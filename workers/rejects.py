"""Counting what a role rejects, and saying so once for each reason: everything else stands in the dead letters."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from stream_calib import metrics
from stream_calib.events.contracts import Reject
from stream_calib.transport.port import Record

_LOG = logging.getLogger(__name__)


class RejectCounts:
    """Of one process; by reason code, for its status."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()

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
            metrics.REJECTED.labels(record.source.topic, reason).inc()
