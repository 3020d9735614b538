"""Reading through librdkafka: positions, ends, what transactions leave in the log."""

from __future__ import annotations

import logging
import time
from itertools import groupby, pairwise

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewPartitions

from stream_calib.errors import PositionLostError, TopicRecreatedError, TransportError, UnknownTopicError
from stream_calib.transport import kafka_positions
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.port import OffsetRange, Outgoing, StartAt, TopicPartition
from tests.kafka_services import fresh_name
from tests.transport.kafka_polling import (
    DEADLINE_S,
    join,
    join_both,
    numbered,
    poll_until,
    raised_within_deadline,
    read_to_end,
    values,
    wait_until,
)
from tests.transport.librdkafka_logs import log, log_section, topic

__all__ = ["log", "topic"]


def transactional_producer(bootstrap: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": fresh_name("foreign")})
    producer.init_transactions(DEADLINE_S)
    return producer


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_S)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)


def trim(bootstrap: str, partition: TopicPartition, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([Position(*partition, before)]).values():
        deleted.result(DEADLINE_S)


def test_the_end_is_reached_behind_the_marker_of_a_transaction(log: LibrdkafkaLog, topic: str) -> None:
    out = fresh_name("out")
    log.create_topic(out, 1)
    log.produce(numbered(3, topic=topic, partition=0))
    with log.consumer("writer", [topic], member="a") as consumer:
        _, records = poll_until(consumer, lambda _, records: len(records) == 3)
        consumer.commit([Outgoing(out, r.key, r.value) for r in records], {TopicPartition(topic, 0): 3})
    written = TopicPartition(out, 0)
    wait_until(lambda: log.end_offset(written) == 4)
    with log.consumer("reader", [out], member="a") as consumer:
        read = read_to_end(consumer)
        assert consumer.position(written) == 4
    assert [r.offset for r in read] == [0, 1, 2]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_ranges_join_without_gaps_and_aborted_records_are_hidden(
    kafka_bootstrap: str, log: LibrdkafkaLog, topic: str, delivery: str
) -> None:
    producer = transactional_producer(kafka_bootstrap)
    for i in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"aborted" if i % 2 else b"kept", partition=0)
        producer.flush(DEADLINE_S)
        producer.abort_transaction() if i % 2 else producer.commit_transaction()
    partition = TopicPartition(topic, 0)
    wait_until(lambda: log.end_offset(partition) == 12)
    spans: list[OffsetRange] = []
    with (
        LibrdkafkaLog(log_section(kafka_bootstrap, delivery=delivery)) as reading,
        reading.consumer("g", [topic], member="a") as consumer,
    ):
        batch, found = poll_until(consumer, lambda batch, _: bool(batch.ranges) or bool(batch.at_end), max_records=1)
        while True:
            if partition in batch.ranges:
                spans.append(batch.ranges[partition])
            if partition in batch.at_end:
                break
            batch, records = poll_until(consumer, lambda batch, _: bool(batch.ranges), max_records=1)
            found += records
    assert values(found) == [b"kept"] * 3
    assert (spans[0].start, spans[-1].end) == (0, 12)
    assert all(before.end == after.start for before, after in pairwise(spans))


def test_what_an_open_transaction_holds_back_is_unread_and_said(
    kafka_bootstrap: str,
    log: LibrdkafkaLog,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_positions, "_HELD_BACK_FOR_S", 0.2)
    log.produce(numbered(2, topic=topic, partition=0))
    producer = transactional_producer(kafka_bootstrap)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(DEADLINE_S)
    log.produce(numbered(1, topic=topic, partition=0, first=2))
    partition = TopicPartition(topic, 0)
    assert log.end_offset(partition) == 2
    with log.consumer("g", [topic], member="a") as consumer, caplog.at_level(logging.WARNING):
        assert len(read_to_end(consumer)) == 2
        poll_until(consumer, lambda *_: "has held back" in caplog.text)
        assert f"{partition}: an open transaction" in caplog.text
        producer.abort_transaction()
        assert values(poll_until(consumer, lambda _, records: bool(records))[1]) == [b"v2"]


def test_a_paused_partition_leaves_the_end_when_records_come(log: LibrdkafkaLog, topic: str) -> None:
    paused = TopicPartition(topic, 0)
    with log.consumer("g", [topic], member="a") as consumer:
        read_to_end(consumer)
        consumer.pause(frozenset({paused}))
        log.produce(numbered(1, topic=topic, partition=0))
        _, records = poll_until(consumer, lambda batch, _: paused not in batch.at_end)
        assert records == []
        consumer.pause(frozenset())
        assert values(read_to_end(consumer)) == [b"v0"]


def test_a_pause_outlives_a_rebalance_but_not_the_loss_of_the_partition(log: LibrdkafkaLog, topic: str) -> None:
    everything = frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)})
    log.produce(numbered(1, topic=topic, partition=0) + numbered(1, topic=topic, partition=1))
    with log.consumer("g", [topic], member="a") as one:
        join(one, 2)
        one.pause(everything)
        with log.consumer("g", [topic], member="b") as two:
            taken = join_both(one, two)
            (kept,) = one.assignment()
            assert {r.source for r in taken} == two.assignment()
        _, records = poll_until(one, lambda *_: one.assignment() == everything)
        records += poll_until(one, lambda _, found: bool(records or found))[1]
        assert kept not in {r.source for r in records}
        one.pause(frozenset())
        assert kept in {r.source for r in poll_until(one, lambda _, found: bool(found))[1]}


def test_a_new_group_may_start_at_the_end_but_never_skips_an_added_partition(
    kafka_bootstrap: str, log: LibrdkafkaLog, topic: str
) -> None:
    log.produce(numbered(10, topic=topic))
    latest = StartAt(earliest=False)
    with log.consumer("g", [topic], member="a", start=latest) as consumer:
        assert read_to_end(consumer) == []
    log.produce(numbered(2, topic=topic, first=10, partition=0))
    grow(kafka_bootstrap, topic, 3)
    with LibrdkafkaLog(log_section(kafka_bootstrap)) as other:
        other.produce(numbered(5, topic=topic, first=20, partition=2))
    with log.consumer("g", [topic], member="a", start=latest) as consumer:
        _, records = poll_until(consumer, lambda _, records: len(records) == 7)
    expected = {(0, b"v10"), (0, b"v11"), *((2, b"v%d" % i) for i in range(20, 25))}
    assert {(r.source.partition, r.value) for r in records} == expected


def test_an_added_partition_is_read_from_its_beginning(kafka_bootstrap: str, log: LibrdkafkaLog, topic: str) -> None:
    with log.consumer("g", [topic], member="a", start=StartAt(earliest=False)) as consumer:
        read_to_end(consumer)
        grow(kafka_bootstrap, topic, 4)
        with LibrdkafkaLog(log_section(kafka_bootstrap)) as other:
            other.produce(numbered(50, topic=topic, partition=3))
        _, records = poll_until(consumer, lambda _, records: len(records) == 50)
    assert values(records) == [b"v%d" % i for i in range(50)]


def test_a_recreated_topic_stops_its_readers_and_late_ones(
    kafka_bootstrap: str, log: LibrdkafkaLog, topic: str
) -> None:
    log.produce(numbered(10, topic=topic, partition=0))
    with log.consumer("g", [topic], member="a") as consumer:
        poll_until(consumer, lambda _, records: len(records) == 10)
        consumer.commit([], {TopicPartition(topic, 0): 10})
        before = log.topic_id(topic)
        delete(kafka_bootstrap, topic)
        log.create_topic(topic, 2)
        assert log.topic_id(topic) != before
        error = raised_within_deadline(consumer, TopicRecreatedError)
        assert f"{topic} was deleted and created again" in str(error)


def test_positions_of_another_topic_are_not_gone_on_with(kafka_bootstrap: str, log: LibrdkafkaLog, topic: str) -> None:
    log.produce(numbered(3, topic=topic, partition=0))
    with log.consumer("g", [topic], member="a") as consumer:
        poll_until(consumer, lambda _, records: len(records) == 3)
        # As a group of an earlier topic of that name would have committed it.
        consumer._member._ids[topic] = "00000000-0000-0000-0000-000000000000"
        consumer.commit([], {TopicPartition(topic, 0): 1})
    with log.consumer("g", [topic], member="b") as late:
        assert "positions of group" in str(raised_within_deadline(late, TopicRecreatedError))


def test_lost_positions_are_named_until_a_seek(kafka_bootstrap: str, log: LibrdkafkaLog, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    log.produce(numbered(10, topic=topic, partition=0))
    with log.consumer("g", [topic], member="a") as consumer:
        join(consumer, 2)
        consumer.commit([], {partition: 0})
    trim(kafka_bootstrap, partition, 6)
    with log.consumer("g", [topic], member="a") as consumer:
        error = raised_within_deadline(consumer, PositionLostError)
        assert isinstance(error, PositionLostError)
        assert error.lost == {partition: (0, 6)}
        assert "0 to 5 are gone" in str(error)
        with pytest.raises(PositionLostError):
            consumer.poll(10, 0)
        consumer.seek(partition, 6)
        assert [r.offset for r in read_to_end(consumer)] == [6, 7, 8, 9]


def test_a_position_beyond_the_end_is_lost(log: LibrdkafkaLog, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with log.consumer("g", [topic], member="a") as consumer:
        read_to_end(consumer)
        consumer.seek(partition, 5)
        error = raised_within_deadline(consumer, PositionLostError)
    assert isinstance(error, PositionLostError)
    assert error.lost == {partition: (5, 5)}


def test_polls_are_fair_and_bounded(log: LibrdkafkaLog, topic: str) -> None:
    # Enough of both that neither is read to its end before the first of the other has come.
    log.produce([record for partition in (0, 1) for record in numbered(5_000, topic=topic, partition=partition)])
    with log.consumer("g", [topic], member="a") as consumer:
        join(consumer, 2)
        first, _ = poll_until(consumer, lambda batch, _: len(batch.ranges) == 2, max_records=20)
        assert len(first.records) == 20
        assert len(read_to_end(consumer)) >= 5
    assert len(list(groupby(r.source for r in first.records))) == 2


def test_a_member_that_owns_nothing_answers_plainly(log: LibrdkafkaLog, topic: str) -> None:
    with log.consumer("g", [topic], member="a") as consumer:
        for ask in (consumer.position, lambda p: consumer.seek(p, 0)):
            with pytest.raises(TransportError, match="poll first"):
                ask(TopicPartition(topic, 0))
        read_to_end(consumer)
        with pytest.raises(TransportError, match="cannot seek to -1"):
            consumer.seek(TopicPartition(topic, 0), -1)


def test_a_topic_that_is_not_there_is_named(log: LibrdkafkaLog) -> None:
    with log.consumer("g", ["nowhere"], member="a") as consumer, pytest.raises(UnknownTopicError, match="nowhere"):
        consumer.poll(1, 0)
    with pytest.raises(UnknownTopicError, match="nowhere"):
        log.produce([Outgoing("nowhere", None, b"v")])


def test_large_records_pass_and_too_large_ones_are_named(log: LibrdkafkaLog) -> None:
    large, small = fresh_name("large"), fresh_name("small")
    log.create_topic(large, 1, {"max.message.bytes": "12000000"})
    log.create_topic(small, 1)
    value = bytes(10_000_000)
    started = time.monotonic()
    log.produce([Outgoing(large, None, value)] * 4)
    with log.consumer("g", [large], member="a") as consumer:
        _, records = poll_until(consumer, lambda _, records: len(records) == 4)
        assert [r.value for r in records] == [value] * 4
        with pytest.raises(TransportError, match=r"too large .* raise max.message.bytes"):
            consumer.commit([Outgoing(small, None, value)], {TopicPartition(large, 0): 4})
        assert consumer.committed(TopicPartition(large, 0)) is None
        consumer.commit([Outgoing(large, None, value)], {})
    with pytest.raises(TransportError, match=r"too large .* raise max.message.bytes"):
        log.produce([Outgoing(small, None, value)])
    assert time.monotonic() - started < DEADLINE_S
