"""The loops that calibrate is compared with: consume, produce the same value again, commit, exactly once.

    python benchmarks/serve_loops.py kafka-python|librdkafka BOOTSTRAP SOURCE TARGET

Nothing is decoded or computed: what is left is what the client library and the broker cost. Each runs until it is
ended.
"""

from __future__ import annotations

import sys
from typing import Any

RECORDS_A_TRANSACTION = 5_000
_TRANSACTION_TIMEOUT_MS = 30_000
_FETCH_BYTES = 32_000_000


def kafka_python(bootstrap: str, source: str, target: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata, TopicPartition

    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=target,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=RECORDS_A_TRANSACTION,
        fetch_max_bytes=_FETCH_BYTES,
    )
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=target,
        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        acks="all",
        linger_ms=5,
        batch_size=262_144,
    )
    producer.init_transactions()
    while True:
        batch: list[Any] = []
        while len(batch) < RECORDS_A_TRANSACTION:
            polled = consumer.poll(timeout_ms=50, max_records=RECORDS_A_TRANSACTION - len(batch))
            if not polled:
                break
            for records in polled.values():
                batch += records
        if not batch:
            continue
        ends: dict[int, int] = {}
        producer.begin_transaction()
        for record in batch:
            producer.send(target, record.value, key=record.key, partition=record.partition)
            ends[record.partition] = record.offset + 1
        positions = {TopicPartition(source, p): OffsetAndMetadata(end, "", -1) for p, end in ends.items()}
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        producer.commit_transaction()


def librdkafka(bootstrap: str, source: str, target: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": target,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": target,
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 5,
        }
    )
    producer.init_transactions()
    consumer.subscribe([source])
    while True:
        batch = consumer.consume(RECORDS_A_TRANSACTION, timeout=0.2)
        if not batch:
            continue
        ends: dict[int, int] = {}
        producer.begin_transaction()
        for record in batch:
            partition, offset = record.partition(), record.offset()
            assert partition is not None
            assert offset is not None
            producer.produce(target, record.value(), record.key(), partition)
            ends[partition] = offset + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(source, p, offset) for p, offset in ends.items()], consumer.consumer_group_metadata()
        )
        producer.commit_transaction()


if __name__ == "__main__":
    {"kafka-python": kafka_python, "librdkafka": librdkafka}[sys.argv[1]](*sys.argv[2:5])
