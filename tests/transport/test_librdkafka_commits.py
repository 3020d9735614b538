"""Commits through librdkafka: all or nothing, and never by a member that has lost what it read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer

from stream_calib.errors import FencedError, TransportError
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.librdkafka_settings import ClientSettings
from stream_calib.transport.librdkafka_writer import TransactionalWriter
from stream_calib.transport.port import Outgoing, TopicPartition
from tests.kafka_services import fresh_name
from tests.transport.kafka_members import echo, process, written
from tests.transport.kafka_polling import (
    join,
    numbered,
    poll_until,
    raised_within_deadline,
    read_to_end,
    values,
    wait_until,
)
from tests.transport.librdkafka_logs import log, log_section, topic

__all__ = ["log", "topic"]


@pytest.fixture
def out(log: LibrdkafkaLog) -> str:
    """A fresh topic of one partition."""
    name = fresh_name("out")
    log.create_topic(name, 1)
    return name


def test_outputs_and_positions_are_one(log: LibrdkafkaLog, topic: str, out: str) -> None:
    partition = TopicPartition(topic, 0)
    log.produce(numbered(10, topic=topic, partition=0))
    with log.consumer("g", [topic], member="a") as consumer:
        _, records = poll_until(consumer, lambda _, records: len(records) == 10)
        assert consumer.committed(partition) is None
        consumer.commit(echo(records, out), {partition: 10})
        assert consumer.committed(partition) == 10
        consumer.commit([Outgoing(out, None, b"clock")], {})
        consumer.commit([], {partition: 4})
        assert consumer.committed(partition) == 4
    assert log.group_positions("g", topic) == {0: 4}
    assert written(log, out) == [*values(records), b"clock"]
    with log.consumer("g", [topic], member="b") as successor:
        assert [r.offset for r in read_to_end(successor)] == [4, 5, 6, 7, 8, 9]


def test_a_commit_that_cannot_write_everything_writes_nothing(log: LibrdkafkaLog, topic: str, out: str) -> None:
    partition = TopicPartition(topic, 0)
    log.produce(numbered(4, topic=topic, partition=0))
    with log.consumer("g", [topic], member="a") as consumer:
        _, records = poll_until(consumer, lambda _, records: len(records) == 4)
        bad = {
            "does not exist": Outgoing("nowhere", None, b"v"),
            "partition 9": Outgoing(out, None, b"v", (), 9),
            "too large": Outgoing(out, None, bytes(2_000_000)),
        }
        for text, output in bad.items():
            with pytest.raises(TransportError, match=text):
                consumer.commit([*echo(records, out), output], {partition: 4})
            assert consumer.committed(partition) is None
            with pytest.raises(FencedError):
                consumer.commit(echo(records, out), {partition: 4})  # it has to be read again
            assert consumer.position(partition) == 0
            _, records = poll_until(consumer, lambda _, records: len(records) == 4)
        consumer.commit(echo(records, out), {partition: 4})
    assert written(log, out) == [b"v0", b"v1", b"v2", b"v3"]


def test_a_process_killed_within_a_transaction_leaves_nothing(
    kafka_bootstrap: str, log: LibrdkafkaLog, topic: str, out: str
) -> None:
    prefix = fresh_name("test")
    log.produce(numbered(5, topic=topic, partition=0))
    with process("librdkafka", kafka_bootstrap, prefix, topic, out, "5") as killed:
        assert killed.tell("write") == "written"
        killed.popen.send_signal(signal.SIGKILL)
        killed.popen.wait()
    with (
        LibrdkafkaLog(log_section(kafka_bootstrap, group_prefix=prefix)) as other,
        other.consumer("g", [topic], member="heir") as heir,
    ):
        _, records = poll_until(heir, lambda _, records: len(records) == 5)
        heir.commit(echo(records, out), {TopicPartition(topic, 0): 5})
    assert written(log, out) == values(records)


def test_a_zombie_writes_nothing_and_lives_on(kafka_bootstrap: str, log: LibrdkafkaLog, topic: str, out: str) -> None:
    prefix = fresh_name("test")
    log.produce(numbered(5, topic=topic, partition=0))
    with process("librdkafka", kafka_bootstrap, prefix, topic, out, "5") as zombie:
        zombie.popen.send_signal(signal.SIGSTOP)
        with (
            LibrdkafkaLog(log_section(kafka_bootstrap, group_prefix=prefix)) as other,
            other.consumer("g", [topic], member="heir") as heir,
        ):
            _, records = poll_until(heir, lambda _, records: len(records) == 5)
            heir.commit(echo(records[:3], out), {TopicPartition(topic, 0): 3})
            zombie.popen.send_signal(signal.SIGCONT)
            assert zombie.tell("commit") == "FencedError"
        wait_until(lambda: zombie.tell("poll") == "2")
    assert written(log, out) == [b"v0", b"v1", b"v2"]


class FencedBeforeItAborts(TransactionalWriter):
    """Another producer takes its name while its transaction is open and cannot be committed."""

    fence: Callable[[], None] | None = None

    def _queue(self, producer: Producer, outputs: Sequence[Outgoing]) -> None:
        super()._queue(producer, outputs)
        if self.fence is not None:
            producer.flush(30)
            self.fence()
            raise TransportError("the brokers take nothing")


def test_a_producer_that_was_fenced_is_thrown_away_without_a_word(
    kafka_bootstrap: str, log: LibrdkafkaLog, out: str
) -> None:
    """What is fatal to it is raised by each of its calls, also while it is thrown away."""
    section, name = log_section(kafka_bootstrap), fresh_name("transactions")
    settings = ClientSettings(section)

    def fence() -> None:
        Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": name}).init_transactions(30)

    writer = FencedBeforeItAborts(log._topics, settings, name, section.transaction_timeout_ms)
    writer.write([Outgoing(out, None, b"0")], [], None)
    writer.fence = fence
    with pytest.raises(TransportError, match="take nothing"):
        writer.write([Outgoing(out, None, b"lost")], [], None)
    writer.fence = None
    writer.write([Outgoing(out, None, b"1")], [], None)
    writer.close()
    assert written(log, out) == [b"0", b"1"]


def test_what_was_read_before_the_partition_was_lost_is_refused_after_it_came_back(
    log: LibrdkafkaLog, topic: str, out: str
) -> None:
    partition = TopicPartition(topic, 0)
    log.produce(numbered(5, topic=topic, partition=0))
    with log.consumer("g", [topic], member="a") as one:
        _, held = poll_until(one, lambda _, records: len(records) == 5)
        with log.consumer("g", [topic], member="b") as two:
            wait_until(lambda: bool(one.poll(1, 20) and two.poll(1, 20) and one.assignment() and two.assignment()))
        wait_until(lambda: bool(one.poll(1, 20) and len(one.assignment()) == 2))
        one.seek(partition, 3)
        poll_until(one, lambda batch, _: partition in batch.at_end)
        with pytest.raises(FencedError, match="was not read by this member"):
            one.commit(echo(held[:2], out), {partition: 2})
        one.seek(partition, 3)
        with pytest.raises(FencedError, match="drop the batch"):
            one.commit(echo(held, out), {partition: 5})
    assert written(log, out) == []


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_restart_under_a_static_identity_keeps_the_partitions(
    kafka_bootstrap: str, topic: str, log: LibrdkafkaLog, out: str, delivery: str
) -> None:
    prefix = fresh_name("test")
    log.produce(numbered(3, topic=topic, partition=0) + numbered(3, topic=topic, partition=1))

    def section(instance: str) -> LibrdkafkaLog:
        return LibrdkafkaLog(
            log_section(
                kafka_bootstrap, group_prefix=prefix, instance_id=instance, delivery=delivery, session_timeout="20s"
            )
        )

    with section("pod-0") as log_0, section("pod-1") as log_1:
        one, two = log_0.consumer("g", [topic], member="a"), log_1.consumer("g", [topic], member="b")
        wait_until(lambda: bool(one.poll(1, 20) and two.poll(1, 20) and one.assignment() and two.assignment()))
        before, of_two = one.assignment(), two.assignment()
        one.close()
        with log_0.consumer("g", [topic], member="c") as again:
            poll_until(again, lambda *_: bool(again.assignment()))
            assert again.assignment() == before
            two.poll(1, 100)
            assert two.assignment() == of_two
            _, records = poll_until(again, lambda batch, _: batch.at_end == before)
            again.commit(echo(records, out), {p: again.position(p) for p in before})
        two.close()
    assert len(written(log, out)) == len(records)


def test_two_live_processes_with_one_static_identity_are_told(
    kafka_bootstrap: str, log: LibrdkafkaLog, topic: str
) -> None:
    section = log_section(kafka_bootstrap, instance_id="pod-0")
    with (
        LibrdkafkaLog(section) as log_0,
        LibrdkafkaLog(section) as log_1,
        log_0.consumer("g", [topic], member="a") as one,
        log_1.consumer("g", [topic], member="b") as two,
    ):
        join(one, 2)
        join(two, 2)
        error = raised_within_deadline(one, TransportError)
        assert "another process has joined" in str(error)
        assert "pod-0" in str(error)
        with pytest.raises(TransportError, match="another process has joined"):
            one.poll(1, 0)


def test_at_least_once_needs_no_transactions(kafka_bootstrap: str, log: LibrdkafkaLog, topic: str, out: str) -> None:
    partition = TopicPartition(topic, 0)
    log.produce(numbered(5, topic=topic, partition=0))
    with LibrdkafkaLog(log_section(kafka_bootstrap, delivery="at_least_once")) as plain:
        with plain.consumer("g", [topic], member="a") as consumer:
            _, records = poll_until(consumer, lambda _, records: len(records) == 5)
            consumer.commit(echo(records, out), {partition: 5})
            assert consumer.committed(partition) == 5
        assert plain.end_offset(TopicPartition(out, 0)) == 5
        plain.try_transaction()
    assert written(log, out) == values(records)


def test_a_trial_transaction_leaves_nothing(log: LibrdkafkaLog, out: str) -> None:
    log.try_transaction()
    log.try_transaction()
    assert written(log, out) == []


def test_keys_go_to_the_partitions_of_the_port(log: LibrdkafkaLog) -> None:
    from stream_calib.transport.partitioning import Partitioner

    wide = fresh_name("wide")
    log.create_topic(wide, 7)
    outputs = [Outgoing(wide, key, b"") for key in (b"", *(os.urandom(n % 40 + 1) for n in range(500)))]
    log.produce(outputs)
    chosen = Partitioner()
    with log.consumer("g", [wide], member="a") as consumer:
        _, records = poll_until(consumer, lambda _, records: len(records) == len(outputs))
    assert {(r.key, r.source.partition) for r in records} == {(o.key, chosen.choose(o, 7)) for o in outputs}
