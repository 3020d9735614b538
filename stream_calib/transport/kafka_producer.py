"""kafka-python's producer with what it lacks for us: bounded waits, cheap queueing of a whole batch, an end at once.

Reaches into kafka-python (the transaction manager's results, the accumulator), because its commit and abort wait
without a timeout, and its `send` costs twice what queueing does. tests/transport/test_kafka_outages.py shows each of
it on real brokers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from kafka import KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from stream_calib.transport.port import Outgoing

Queued = tuple[KafkaPartition, Outgoing]

_RECORD_OVERHEAD_BYTES = 128
_ENDS_WITHIN_S = 1.0


class BoundedProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no types
    """One thread at a time. After an error in a transaction: `abort_within` or `abandon`, and another producer."""

    _closed: bool

    def queue(self, records: Iterable[Queued]) -> list[Any]:
        """Queues records, each with its partition; `send` without what was checked before or is not used here.

        Returns a future (kafka.producer.future.FutureRecordMetadata) for each. Raises MessageSizeTooLargeError.
        """
        append, largest = self._accumulator.append, self.config["max_request_size"] - _RECORD_OVERHEAD_BYTES
        now, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        futures = []
        announced: set[KafkaPartition] = set()
        for partition, (topic, key, value, headers, _) in records:
            if partition not in announced:
                self._announce(partition)
                announced.add(partition)
            if value is not None and len(value) > largest:
                raise MessageSizeTooLargeError(
                    f"a record of {len(value)} bytes for {topic}, max_request_size is {self.config['max_request_size']}"
                )
            future, _, begins_batch, _ = append(partition, now_ms, key, value, headers, now)
            futures.append(future)
            if begins_batch:  # the one before it can go out while this one is filled
                self._sender.wakeup()
        return futures

    def send_offsets_within(self, offsets: Mapping[KafkaPartition, Any], membership: Any, timeout_s: float) -> None:
        """`send_offsets_to_transaction`. Raises KafkaTimeoutError when the brokers have not answered in time."""
        result = self._transaction_manager.send_offsets_to_transaction(dict(offsets), membership)
        self._await(result, "the positions", timeout_s)

    def commit_within(self, timeout_s: float) -> None:
        """`commit_transaction`. Raises KafkaTimeoutError when it is not known in time whether it is committed."""
        self._await(self._transaction_manager.begin_commit(), "the commit", timeout_s)

    def abort_within(self, timeout_s: float) -> None:
        """`abort_transaction`. Raises KafkaTimeoutError when it is not known in time whether it is aborted."""
        self._await(self._transaction_manager.begin_abort(), "the abort", timeout_s)

    @property
    def cause(self) -> Exception | None:
        """Why the transaction cannot go on, where kafka-python's own error only says that it cannot."""
        manager = self._transaction_manager
        return None if manager is None else manager.last_error

    def abandon(self) -> None:
        """Ends without waiting for the brokers; what is queued is dropped, an open transaction is left to them."""
        self._unregister_cleanup()
        if not self._closed:
            self._closed = True
            self._sender.force_close()
            if threading.current_thread() is not self._sender:
                self._sender.join(_ENDS_WITHIN_S)

    def _announce(self, partition: KafkaPartition) -> None:
        self.partitions_for(partition.topic)
        if self._transaction_manager is not None and self._transaction_manager.is_transactional():
            self._transaction_manager.maybe_add_partition_to_transaction(partition)

    def _await(self, result: Any, what: str, timeout_s: float) -> None:
        self._sender.wakeup()
        if not result.wait(timeout_ms=timeout_s * 1_000):
            raise KafkaTimeoutError(f"no answer to {what} of a transaction within {timeout_s:g} s")
