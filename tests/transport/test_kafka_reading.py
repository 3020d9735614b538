"""Reading through kafka-python: ends, what transactions leave in the log, topics of the same name, large records."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.record import default_records

from stream_calib.errors import TopicRecreatedError, TransportError, UnknownTopicError
from stream_calib.transport import kafka_positions
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.port import OffsetRange, Outgoing, TopicPartition
from tests.kafka_services import fresh_name
from tests.transport.kafka_logs import log, topic
from tests.transport.kafka_polling import (
    join,
    numbered,
    poll_until,
    raised_within_deadline,
    read_to_end,
    values,
    wait_until,
)

__all__ = ["log", "topic"]


@pytest.fixture
def foreign(kafka_bootstrap: str) -> Iterator[Any]:
    """Another program's transactional producer."""
    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap, transactional_id=fresh_name("foreign"))
    producer.init_transactions()
    yield producer
    producer.close(timeout=1)


def test_the_end_is_behind_the_marker_of_a_transaction(log: KafkaLog, topic: str, foreign: Any) -> None:
    partition = TopicPartition(topic, 0)
    foreign.begin_transaction()
    for i in range(3):
        foreign.send(topic, b"v%d" % i, partition=0)
    foreign.commit_transaction()
    wait_until(lambda: log.end_offset(partition) == 4)
    with log.consumer("g", [topic], member="a") as consumer:
        assert values(read_to_end(consumer)) == [b"v0", b"v1", b"v2"]
        assert consumer.position(partition) == 4
        consumer.commit([], {partition: 4})
    assert values(log.read(partition, 0, 10)) == [b"v0", b"v1", b"v2"]
    assert log.read(partition, 3, 10) == []


def test_ranges_join_without_gaps_and_aborted_records_are_hidden(log: KafkaLog, topic: str, foreign: Any) -> None:
    for i in range(6):
        foreign.begin_transaction()
        foreign.send(topic, b"aborted" if i % 2 else b"kept", partition=0).get(10)
        foreign.abort_transaction() if i % 2 else foreign.commit_transaction()
    partition = TopicPartition(topic, 0)
    wait_until(lambda: log.end_offset(partition) == 12)
    assert values(log.read(partition, 0, 10)) == [b"kept"] * 3
    spans: list[OffsetRange] = []
    found = []
    with log.consumer("g", [topic], member="a") as consumer:

        def is_at_end(batch: Any, _: object) -> bool:
            spans.extend(span for source, span in batch.ranges.items() if source == partition)
            return partition in batch.at_end

        found = poll_until(consumer, is_at_end, max_records=1)[1]
    assert values(found) == [b"kept"] * 3
    assert (spans[0].start, spans[-1].end) == (0, 12)
    assert all(before.end == after.start for before, after in pairwise(spans))


def test_what_an_open_transaction_holds_back_is_unread_and_said(
    log: KafkaLog, topic: str, foreign: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_positions, "_HELD_BACK_FOR_S", 0.2)
    partition = TopicPartition(topic, 0)
    log.produce(numbered(2, topic=topic, partition=0))
    foreign.begin_transaction()
    foreign.send(topic, b"open", partition=0)
    foreign.flush(timeout=10)
    log.produce(numbered(1, topic=topic, partition=0, first=2))
    assert log.end_offset(partition) == 2
    with log.consumer("g", [topic], member="a") as consumer, caplog.at_level(logging.WARNING):
        assert len(read_to_end(consumer)) == 2
        poll_until(consumer, lambda *_: "has held back" in caplog.text)
        assert f"{partition}: an open transaction" in caplog.text
        foreign.abort_transaction()
        assert values(poll_until(consumer, lambda _, records: bool(records))[1]) == [b"v2"]


def test_the_end_is_that_of_the_poll(log: KafkaLog, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    with log.consumer("g", [topic], member="a") as consumer:
        read_to_end(consumer)
        for i in range(20):
            assert partition in consumer.poll(1, 0).at_end
            log.produce(numbered(1, topic=topic, partition=1, first=i))
            batch = consumer.poll(1, 0)
            assert (partition in batch.at_end) == (consumer.position(partition) == i + 1)
            if partition not in batch.at_end:
                poll_until(consumer, lambda batch, _: partition in batch.at_end)


def test_positions_of_another_topic_of_that_name_are_not_gone_on_with(log: KafkaLog, topic: str) -> None:
    log.produce(numbered(3, topic=topic, partition=0))
    with log.consumer("g", [topic], member="a") as consumer:
        join(consumer, 2)
        # As a group of an earlier topic of that name would have committed it.
        consumer._positions._ids[topic] = "00000000-0000-0000-0000-000000000000"
        consumer.commit([], {TopicPartition(topic, 0): 0})
    with log.consumer("g", [topic], member="b") as late:
        assert "positions of group" in str(raised_within_deadline(late, TopicRecreatedError))


def test_a_topic_that_is_not_there_is_named(log: KafkaLog) -> None:
    asks: tuple[Callable[[], object], ...] = (
        lambda: log.topic_settings("nowhere"),
        lambda: log.group_positions("g", "nowhere"),
        lambda: log.produce([Outgoing("nowhere", None, b"v")]),
    )
    for ask in asks:
        with pytest.raises(UnknownTopicError, match="nowhere"):
            ask()


def test_settings_and_positions_can_be_asked_for(log: KafkaLog) -> None:
    topic = fresh_name("in")
    log.create_topic(topic, 2, {"retention.ms": "123456789", "cleanup.policy": "compact"})
    settings = log.topic_settings(topic)
    assert settings is not None
    assert settings["retention.ms"] == "123456789"
    assert settings["cleanup.policy"] == "compact"
    assert log.group_positions("g", topic) == {}
    with log.consumer("g", [topic], member="a") as consumer:
        join(consumer, 2)
        consumer.commit([], {TopicPartition(topic, 1): 0})
    assert log.group_positions("g", topic) == {1: 0}
    version = log.server_version()
    assert version is not None
    assert re.fullmatch(r"[0-9]+\.[0-9]+ or later", version)


def test_large_records_pass_and_too_large_ones_are_named(log: KafkaLog) -> None:
    large, small = fresh_name("large"), fresh_name("small")
    log.create_topic(large, 1, {"max.message.bytes": "12000000"})
    log.create_topic(small, 1)
    value = bytes(10_000_000)
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
    log.produce([Outgoing(small, None, b"fits")])


def test_a_codec_that_is_not_installed_is_named(
    kafka_bootstrap: str, log: KafkaLog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap, compression_type="zstd")
    producer.send(topic, bytes(1_000), partition=0)
    producer.close(timeout=10)
    monkeypatch.setattr(default_records.codecs, "has_zstd", lambda: False)
    with log.consumer("g", [topic], member="a") as consumer:
        error = raised_within_deadline(consumer, TransportError)
        assert "codec that is not installed" in str(error)
        assert "zstd" in str(error)


def test_ends_are_told_also_where_the_client_knows_only_some_of_the_topics(log: KafkaLog, topic: str) -> None:
    """As when a topic is made, or made anew, while others are read."""
    new = fresh_name("new")
    log.create_topic(new, 1)
    log.produce(numbered(3, topic=topic, partition=0) + numbered(2, topic=new, partition=0))
    known, unknown = TopicPartition(topic, 0), TopicPartition(new, 0)
    assert log._topics.current_ends([known]) == {known: 3}
    assert log._topics.current_ends([known, unknown]) == {known: 3, unknown: 2}
