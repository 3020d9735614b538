"""A process that reads as a member of a group, and commits when it is told to: what the tests stop, kill and wake up.

    python -m tests.transport.member_process CLIENT BOOTSTRAP PREFIX INPUT OUTPUT COUNT [INSTANCE]

CLIENT is `kafka` or `librdkafka`. Prints `held` once it has COUNT records, then obeys the lines of its input: `commit`
(prints `committed` or the name of the error), `write` (writes the outputs in a transaction that stays open, prints
`written`), `poll` (prints how many partitions it owns), `leave` (ends without closing anything).
"""

from __future__ import annotations

import os
import sys

from kafka import OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition

from stream_calib.errors import TransportError
from stream_calib.transport import kafka_writer, librdkafka_writer
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.kafka_consumer import KafkaMember
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.librdkafka_consumer import LibrdkafkaConsumer
from stream_calib.transport.port import Outgoing, Record
from tests.transport.kafka_logs import kafka_section
from tests.transport.kafka_polling import poll_until
from tests.transport.librdkafka_logs import log_section

_WITHIN_S = 10.0

Member = KafkaMember | LibrdkafkaConsumer


def main(
    client: str, bootstrap: str, prefix: str, source: str, target: str, count: str, instance: str | None = None
) -> None:
    log: KafkaLog | LibrdkafkaLog
    if client == "kafka":
        log = KafkaLog(kafka_section(bootstrap, group_prefix=prefix, instance_id=instance))
    else:
        log = LibrdkafkaLog(log_section(bootstrap, group_prefix=prefix, instance_id=instance))
    member = log.consumer("g", [source], member=f"process-{os.getpid()}")
    _, records = poll_until(member, lambda _, records: len(records) >= int(count))
    print("held", flush=True)
    for line in sys.stdin:
        print(_obey(line.strip(), member, records, target), flush=True)


def _obey(order: str, member: Member, records: list[Record], target: str) -> str:
    outputs = [Outgoing(target, r.key, r.value) for r in records]
    if order == "commit":
        try:
            member.commit(outputs, {r.source: r.offset + 1 for r in records})
        except TransportError as error:
            return type(error).__name__
        return "committed"
    if order == "write":
        _write(member, outputs, records)
        return "written"
    if order == "poll":
        try:
            member.poll(1_000, 100)
        except TransportError as error:
            return str(error)
        return str(len(member.assignment()))
    assert order == "leave"
    os._exit(0)


def _write(member: Member, outputs: list[Outgoing], records: list[Record]) -> None:
    if isinstance(member, KafkaMember):
        of_kafka = member._writer
        assert isinstance(of_kafka, kafka_writer.TransactionalWriter)
        producer = of_kafka._started()
        producer.begin_transaction()
        producer.queue(of_kafka._placed(outputs))
        producer.flush(_WITHIN_S)
        offsets = {KafkaPartition(*r.source): OffsetAndMetadata(r.offset + 1, "", -1) for r in records}
        producer.send_offsets_within(offsets, member._membership, _WITHIN_S)
        return
    of_librdkafka = member._writer
    assert isinstance(of_librdkafka, librdkafka_writer.TransactionalWriter)
    started = of_librdkafka._started()
    started.begin_transaction()
    of_librdkafka._queue(started, outputs)
    started.flush(_WITHIN_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
