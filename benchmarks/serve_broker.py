"""The benchmark's side of the broker: topics, input, and what can be seen of a loop from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.serve_input import score_records

PARTITIONS = 4
_READ_WITHIN_S = 30.0


class Progress(NamedTuple):
    """The output topic, by the times at which the broker took its records."""

    first_ms: int
    last_ms: int
    before: int
    """Records that it took up to `first_ms`: the first batches, whose own time is not seen."""


class Broker:
    """Topics with broker time stamps, and groups, of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, *topics: str) -> None:
        made = [NewTopic(topic, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"}) for topic in topics]
        for future in self._admin.create_topics(made).values():
            future.result()

    def delete(self, *topics: str) -> None:
        for future in self._admin.delete_topics(list(topics)).values():
            future.result()

    def fill(self, topic: str, records: int, advance: Callable[[int], None]) -> None:
        """Writes the scores, in turn over the partitions."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
        )
        start_ms = time.time_ns() // 1_000_000 - records
        for i, (key, value) in enumerate(score_records(0, records, start_ms)):
            while True:
                try:
                    producer.produce(topic, value, key, i % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            if i % 50_000 == 49_999:
                producer.poll(0)
                advance(50_000)
        if producer.flush(60):
            raise RuntimeError(f"the broker did not take all records of {topic}")

    def committed(self, group: str, topic: str) -> int:
        """Sum of the group's committed positions; 0 while its coordinator is still starting."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(PARTITIONS)])
        try:
            found = self._admin.list_consumer_group_offsets([asked])[group].result()
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                return 0
            raise
        return sum(max(p.offset, 0) for p in found.topic_partitions)

    def progress(self, topic: str) -> Progress:
        """When the first and the last record of a topic that grows no more were taken."""
        consumer = self._reader()
        try:
            first, last, before = [], [], 0
            for partition in range(PARTITIONS):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
                first.append(self._time_at(consumer, TopicPartition(topic, partition, low)))
                # A transaction's marker, or two of them, may lie at the end.
                last.append(self._last_time(consumer, topic, partition, high))
            first_ms = min(first)
            asked = [TopicPartition(topic, p, first_ms + 1) for p in range(PARTITIONS)]
            before = sum(max(p.offset, 0) for p in consumer.offsets_for_times(asked, timeout=10))
            return Progress(first_ms, max(last), before)
        finally:
            consumer.close()

    def _reader(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "benchmark-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )

    def _time_at(self, consumer: Consumer, at: TopicPartition) -> int:
        found = self._from(consumer, at)
        return found[0]

    def _last_time(self, consumer: Consumer, topic: str, partition: int, end: int) -> int:
        for back in (2, 4, 16, 64, 1024):
            found = self._from(consumer, TopicPartition(topic, partition, max(end - back, 0)))
            if found:
                return found[-1]
        raise RuntimeError(f"{topic}-{partition} holds no record near its end")

    def _from(self, consumer: Consumer, at: TopicPartition) -> list[int]:
        """Times of the records from a position on, at most 1,000."""
        consumer.assign([at])
        deadline = time.monotonic() + _READ_WITHIN_S
        times: list[int] = []
        while len(times) < 1_000:
            for message in consumer.consume(1_000, timeout=1.0):
                error = message.error()
                if error is None:
                    times.append(message.timestamp()[1])
                elif error.code() == KafkaError._PARTITION_EOF:
                    return times
                else:
                    raise RuntimeError(f"{at.topic}-{at.partition}: {error}")
            if times and at.offset == 0:
                return times
            if time.monotonic() > deadline:
                raise RuntimeError(f"{at.topic}-{at.partition} was not read within {_READ_WITHIN_S:.0f} s")
        return times
