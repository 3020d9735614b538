"""Groups through kafka-python: joins, lasting identities, and members that have lost what they read."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from kafka.structs import MemberState

from stream_calib.errors import FencedError, TransportError
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.kafka_joining import JoiningConsumer
from stream_calib.transport.port import Consumer, Outgoing, TopicPartition
from tests.kafka_services import fresh_name
from tests.transport.kafka_logs import kafka_section, log, topic
from tests.transport.kafka_members import echo, process, written
from tests.transport.kafka_polling import (
    join,
    numbered,
    poll_until,
    raised_within_deadline,
    values,
    wait_until,
)

__all__ = ["log", "topic"]


@pytest.fixture
def out(log: KafkaLog) -> str:
    """A fresh topic of one partition."""
    name = fresh_name("out")
    log.create_topic(name, 1)
    return name


def polled_in_turn(members: list[Consumer], is_so: Callable[[], bool]) -> None:
    """Until it is so; with polls that do not wait, so that every join takes longer than a poll."""

    def look() -> bool:
        for member in members:
            member.poll(1, 0)
        return is_so()

    wait_until(look)


def share(one: Consumer, two: Consumer) -> bool:
    """Whether each has one of two partitions: both as of the same generation, so not the same one."""
    first, second = one.assignment(), two.assignment()
    return len(first) == len(second) == 1 and first.isdisjoint(second)


def test_joins_end_though_every_poll_is_shorter(kafka_bootstrap: str, log: KafkaLog, topic: str) -> None:
    one, two = (log.consumer("g", [topic], member=name) for name in "ab")
    polled_in_turn([one], lambda: len(one.assignment()) == 2)
    polled_in_turn([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 1)
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    admin.create_partitions({topic: 6})
    admin.close()
    polled_in_turn([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 3)
    assert one.assignment().isdisjoint(two.assignment())
    one.close()
    polled_in_turn([two], lambda: len(two.assignment()) == 6)
    two.close()


def test_a_join_that_ends_as_its_poll_gives_up_is_not_made_again(kafka_bootstrap: str, topic: str) -> None:
    settings = {"bootstrap_servers": kafka_bootstrap, "group_id": fresh_name("test")}
    with closing(JoiningConsumer([topic], **settings)) as consumer:
        loop = consumer._coordinator._manager
        wait_for = loop.wait_for
        gave_up: list[int] = []

        async def wait_too_shortly(task: Any, timeout_ms: float) -> Any:
            result = await wait_for(task, timeout_ms)
            if task is consumer._coordinator._join_task and not gave_up:
                gave_up.append(consumer.group_metadata().generation_id)
                raise KafkaTimeoutError
            return result

        loop.wait_for = wait_too_shortly

        def is_joined() -> bool:
            consumer.fetched(0.0, 1)
            return consumer.group_metadata().state is MemberState.STABLE

        wait_until(is_joined)
        assert [consumer.group_metadata().generation_id] == gave_up


def test_a_kept_partition_keeps_its_position_when_others_come_and_go(log: KafkaLog, topic: str) -> None:
    log.produce(numbered(5, topic=topic, partition=0) + numbered(5, topic=topic, partition=1))
    with log.consumer("g", [topic], member="a") as one:
        poll_until(one, lambda _, records: len(records) == 10)
        with log.consumer("g", [topic], member="b") as two:
            polled_in_turn([one, two], lambda: share(one, two))
            (kept,) = one.assignment()
            assert one.position(kept) == 5
            one.commit([], {kept: 5})
        (lost,) = {TopicPartition(topic, 0), TopicPartition(topic, 1)} - {kept}
        polled_in_turn([one], lambda: len(one.assignment()) == 2)
        assert one.position(kept) == 5
        assert one.position(lost) <= 1  # of `two` nothing is committed; the last poll may have given a record of it


def test_a_paused_partition_flows_again_when_it_was_moved_away_and_back(log: KafkaLog, topic: str) -> None:
    everything = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    log.produce(numbered(5, topic=topic, partition=0) + numbered(5, topic=topic, partition=1))
    with log.consumer("g", [topic], member="a") as one:
        join(one, 2)
        one.pause(frozenset(everything))
        with log.consumer("g", [topic], member="b") as two:
            polled_in_turn([one, two], lambda: share(one, two))
            (kept,) = one.assignment()
        (moved,) = everything - {kept}
        _, records = poll_until(one, lambda batch, _: moved in batch.at_end)
        assert {r.source for r in records} == {moved}
        assert len(records) == 5
        one.pause(frozenset())
        assert len(poll_until(one, lambda batch, _: kept in batch.at_end)[1]) == 5


def test_what_was_read_before_a_partition_was_lost_is_refused_after_it_came_back(
    log: KafkaLog, topic: str, out: str
) -> None:
    log.produce(numbered(5, topic=topic, partition=0) + numbered(5, topic=topic, partition=1))
    with log.consumer("g", [topic], member="a") as one:
        _, held = poll_until(one, lambda _, records: len(records) == 10)
        with log.consumer("g", [topic], member="b") as two:
            polled_in_turn([one, two], lambda: share(one, two))
            (moved,) = two.assignment()
        polled_in_turn([one], lambda: len(one.assignment()) == 2)
        of_moved = [record for record in held if record.source == moved]
        one.seek(moved, 3)
        with pytest.raises(FencedError, match="was not read by this member"):
            one.commit(echo(of_moved, out), {moved: 5})
        assert one.position(moved) == 0
        one.seek(moved, 3)
        poll_until(one, lambda batch, _: moved in batch.at_end)
        with pytest.raises(FencedError, match="was not read by this member"):
            one.commit(echo(of_moved[:2], out), {moved: 2})
    assert written(log, out) == []


def test_a_process_killed_within_a_transaction_leaves_nothing(
    kafka_bootstrap: str, log: KafkaLog, topic: str, out: str
) -> None:
    prefix = fresh_name("test")
    log.produce(numbered(5, topic=topic, partition=0))
    with process("kafka", kafka_bootstrap, prefix, topic, out, "5") as killed:
        assert killed.tell("write") == "written"
        killed.popen.send_signal(signal.SIGKILL)
        killed.popen.wait()
    with (
        KafkaLog(kafka_section(kafka_bootstrap, group_prefix=prefix)) as other,
        other.consumer("g", [topic], member="heir") as heir,
    ):
        _, records = poll_until(heir, lambda _, records: len(records) == 5)
        heir.commit(echo(records, out), {TopicPartition(topic, 0): 5})
    assert written(log, out) == values(records)


def test_a_zombie_writes_nothing_and_lives_on(kafka_bootstrap: str, log: KafkaLog, topic: str, out: str) -> None:
    prefix = fresh_name("test")
    log.produce(numbered(5, topic=topic, partition=0))
    with process("kafka", kafka_bootstrap, prefix, topic, out, "5") as zombie:
        zombie.popen.send_signal(signal.SIGSTOP)
        with (
            KafkaLog(kafka_section(kafka_bootstrap, group_prefix=prefix)) as other,
            other.consumer("g", [topic], member="heir") as heir,
        ):
            _, records = poll_until(heir, lambda _, records: len(records) == 5)
            heir.commit(echo(records[:3], out), {TopicPartition(topic, 0): 3})
            zombie.popen.send_signal(signal.SIGCONT)
            assert zombie.tell("commit") == "FencedError"
        wait_until(lambda: zombie.tell("poll") == "2")
    assert written(log, out) == [b"v0", b"v1", b"v2"]


def test_a_restart_under_a_static_identity_keeps_the_partitions(
    kafka_bootstrap: str, topic: str, log: KafkaLog, out: str
) -> None:
    prefix = fresh_name("test")
    log.produce(numbered(3, topic=topic, partition=0) + numbered(3, topic=topic, partition=1))

    def process_log(instance: str) -> KafkaLog:
        return KafkaLog(
            kafka_section(kafka_bootstrap, group_prefix=prefix, instance_id=instance, session_timeout="30s")
        )

    with process_log("pod-0") as log_0, process_log("pod-1") as log_1:
        one, two = log_0.consumer("g", [topic], member="a"), log_1.consumer("g", [topic], member="b")
        wait_until(lambda: bool(one.poll(1, 20) and two.poll(1, 20) and one.assignment() and two.assignment()))
        before, of_two = one.assignment(), two.assignment()
        generation = two._membership.generation_id
        one.close()
        with log_0.consumer("g", [topic], member="c") as again:
            _, records = poll_until(again, lambda batch, _: bool(before) and batch.at_end == before)
            assert again.assignment() == before
            two.poll(1, 100)
            assert two.assignment() == of_two
            assert two._membership.generation_id == generation  # nobody was asked to share anew
            again.commit(echo(records, out), {p: again.position(p) for p in before})
        two.close()
    assert written(log, out) == values(records)


def test_two_live_processes_with_one_static_identity_are_told(kafka_bootstrap: str, topic: str, out: str) -> None:
    section = kafka_section(kafka_bootstrap, instance_id="pod-0")
    with (
        KafkaLog(section) as log_0,
        KafkaLog(section) as log_1,
        log_0.consumer("g", [topic], member="a") as one,
        log_1.consumer("g", [topic], member="b") as two,
    ):
        join(one, 2)
        join(two, 2)
        with pytest.raises(TransportError, match=r"another process has joined group .* as pod-0"):
            one.commit([Outgoing(out, None, b"v")], {TopicPartition(topic, 0): 0})
        assert "another process has joined" in str(raised_within_deadline(one, TransportError))
        two.commit([Outgoing(out, None, b"v")], {TopicPartition(topic, 0): 0})


def test_a_process_that_only_reads_is_told_of_another_with_its_static_identity(
    kafka_bootstrap: str, topic: str
) -> None:
    section = kafka_section(kafka_bootstrap, instance_id="pod-0")
    with (
        KafkaLog(section) as log_0,
        KafkaLog(section) as log_1,
        log_0.consumer("g", [topic], member="a") as one,
        log_1.consumer("g", [topic], member="b") as two,
    ):
        join(one, 2)
        join(two, 2)
        assert "another process has joined" in str(raised_within_deadline(one, TransportError))
        join(two, 2)


def test_at_least_once_needs_no_transactions(kafka_bootstrap: str, log: KafkaLog, topic: str, out: str) -> None:
    partition = TopicPartition(topic, 0)
    log.produce(numbered(5, topic=topic, partition=0))
    with KafkaLog(kafka_section(kafka_bootstrap, delivery="at_least_once")) as plain:
        with plain.consumer("g", [topic], member="a") as consumer:
            _, records = poll_until(consumer, lambda _, records: len(records) == 5)
            consumer.commit(echo(records, out), {partition: 5})
            assert consumer.committed(partition) == 5
        assert plain.end_offset(TopicPartition(out, 0)) == 5  # no marker
        plain.try_transaction()
    assert written(log, out) == values(records)


def test_a_trial_transaction_leaves_nothing(log: KafkaLog, out: str) -> None:
    log.try_transaction()
    log.try_transaction()
    assert written(log, out) == []
