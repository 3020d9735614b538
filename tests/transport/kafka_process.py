"""A process that reads through kafka-python, and commits when it is told to: what the tests stop, kill and wake up.

    python -m tests.transport.kafka_process BOOTSTRAP PREFIX INPUT OUTPUT COUNT [INSTANCE]

Prints `held` once it has COUNT records, then obeys the lines of its input: `commit` (prints `committed` or the name of
the error), `write` (writes the outputs and sends the positions in a transaction that stays open, prints `written`),
`poll` (prints how many partitions it owns).
"""

from __future__ import annotations

import os
import sys

from kafka import OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition

from stream_calib.errors import TransportError
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.kafka_consumer import KafkaMember
from stream_calib.transport.kafka_writer import TransactionalWriter
from stream_calib.transport.port import Outgoing, Record
from tests.transport.kafka_logs import kafka_section
from tests.transport.kafka_polling import poll_until

_WITHIN_S = 10.0


def main(bootstrap: str, prefix: str, source: str, target: str, count: str, instance: str | None = None) -> None:
    log = KafkaLog(kafka_section(bootstrap, group_prefix=prefix, instance_id=instance))
    consumer = log.consumer("g", [source], member=f"process-{os.getpid()}")
    _, records = poll_until(consumer, lambda _, records: len(records) >= int(count))
    print("held", flush=True)
    for line in sys.stdin:
        print(_obey(line.strip(), consumer, records, target), flush=True)


def _obey(order: str, consumer: KafkaMember, records: list[Record], target: str) -> str:
    outputs = [Outgoing(target, r.key, r.value) for r in records]
    if order == "commit":
        try:
            consumer.commit(outputs, {r.source: r.offset + 1 for r in records})
        except TransportError as error:
            return type(error).__name__
        return "committed"
    if order == "write":
        writer = consumer._writer
        assert isinstance(writer, TransactionalWriter)
        producer = writer._started()
        producer.begin_transaction()
        producer.queue(writer._placed(outputs))
        producer.flush(_WITHIN_S)
        offsets = {KafkaPartition(*r.source): OffsetAndMetadata(r.offset + 1, "", -1) for r in records}
        producer.send_offsets_within(offsets, consumer._membership, _WITHIN_S)
        return "written"
    assert order == "poll"
    try:
        consumer.poll(1_000, 100)
    except TransportError as error:
        return str(error)
    return str(len(consumer.assignment()))


if __name__ == "__main__":
    main(*sys.argv[1:])
