"""Waiting on what a consumer of a real Kafka sees, with deadlines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stream_calib.transport.port import Consumer, Outgoing, PolledBatch, Record, TopicPartition

DEADLINE_S = 30.0


def numbered(count: int, *, topic: str, partition: int | None = None, first: int = 0) -> list[Outgoing]:
    return [Outgoing(topic, b"k%d" % i, b"v%d" % i, (), partition) for i in range(first, first + count)]


def poll_until(
    consumer: Consumer, is_enough: Callable[[PolledBatch, list[Record]], bool], max_records: int = 1_000
) -> tuple[PolledBatch, list[Record]]:
    """The last poll's batch and the records of all polls, once `is_enough` of them."""
    deadline = time.monotonic() + DEADLINE_S
    records: list[Record] = []
    while True:
        batch = consumer.poll(max_records, 50)
        records += batch.records
        if is_enough(batch, records):
            return batch, records
        assert time.monotonic() < deadline, f"{len(records)} records, at end: {batch.at_end}, {consumer.assignment()}"


def read_to_end(consumer: Consumer) -> list[Record]:
    """Everything up to the end of all assigned partitions, of which there is at least one."""
    return poll_until(consumer, lambda batch, _: bool(batch.at_end) and batch.at_end == consumer.assignment())[1]


def wait_until(is_so: Callable[[], bool]) -> None:
    """For what the brokers do by themselves in a moment, as to write a committed transaction's marker."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def join(consumer: Consumer, partitions: int) -> None:
    """Polls until the consumer owns that many partitions; what it read is dropped by seeking back."""
    starts: dict[TopicPartition, int] = {}

    def has_joined(batch: PolledBatch, _: list[Record]) -> bool:
        for partition, span in batch.ranges.items():
            starts.setdefault(partition, span.start)
        return len(consumer.assignment()) == partitions

    poll_until(consumer, has_joined)
    for partition in consumer.assignment():
        if partition in starts:
            consumer.seek(partition, starts[partition])


def join_both(one: Consumer, two: Consumer) -> list[Record]:
    """Polls both until each has a share and `two` has read something of its own; the records of both."""
    records: list[Record] = []

    def is_shared(_: PolledBatch, found: list[Record]) -> bool:
        records.extend(two.poll(1_000, 50).records)
        return bool(one.assignment()) and bool(two.assignment()) and bool(records)

    return poll_until(one, is_shared)[1] + records


def raised_within_deadline(consumer: Consumer, kind: type[Exception]) -> Exception:
    """The error of that kind that a poll raises at last."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            consumer.poll(100, 50)
        except kind as error:
            return error
        assert time.monotonic() < deadline, f"no {kind.__name__}"


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]
