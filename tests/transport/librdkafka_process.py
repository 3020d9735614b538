"""A process that reads, and commits when it is told to: what the tests stop, kill and wake up.

    python -m tests.transport.librdkafka_process BOOTSTRAP PREFIX INPUT OUTPUT COUNT [INSTANCE]

Prints `held` once it has COUNT records, then obeys the lines of its input: `commit` (prints `committed` or the name of
the error), `write` (writes the outputs in a transaction that stays open, prints `written`), `poll` (prints how many
partitions it owns), `leave` (ends without closing anything).
"""

from __future__ import annotations

import os
import sys

from stream_calib.errors import TransportError
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.librdkafka_consumer import LibrdkafkaConsumer
from stream_calib.transport.librdkafka_writer import TransactionalWriter
from stream_calib.transport.port import Outgoing, Record
from tests.transport.kafka_polling import poll_until
from tests.transport.librdkafka_logs import log_section


def main(bootstrap: str, prefix: str, source: str, target: str, count: str, instance: str | None = None) -> None:
    log = LibrdkafkaLog(log_section(bootstrap, group_prefix=prefix, instance_id=instance))
    consumer = log.consumer("g", [source], member=f"process-{os.getpid()}")
    _, records = poll_until(consumer, lambda _, records: len(records) >= int(count))
    print("held", flush=True)
    for line in sys.stdin:
        print(_obey(line.strip(), consumer, records, target), flush=True)


def _obey(order: str, consumer: LibrdkafkaConsumer, records: list[Record], target: str) -> str:
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
        writer._queue(producer, outputs)
        producer.flush(10.0)
        return "written"
    if order == "poll":
        try:
            consumer.poll(1_000, 100)
        except TransportError as error:
            return str(error)
        return str(len(consumer.assignment()))
    assert order == "leave"
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
