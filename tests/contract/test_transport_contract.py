"""What every transport does, whatever it is made of. See stream_calib/transport/port.py."""

from __future__ import annotations

import random
import time
from collections import Counter
from threading import Thread

import pytest

from stream_calib.errors import FencedError, PositionLostError, TopicRecreatedError, TransportError
from stream_calib.transport.port import Consumer, Log, OffsetRange, Outgoing, PolledBatch, StartAt, TopicPartition
from tests.contract.transports import (
    RUN,
    WAIT_S,
    Transport,
    drain,
    eventually,
    is_immediate,
    joined,
    poll_records,
    read_all,
    settle,
)

IN, OUT, BLOCKS, MANY, NONE = (f"{name}-{RUN}" for name in ("in", "out", "blocks", "many", "none"))
P0, P1 = TopicPartition(IN, 0), TopicPartition(IN, 1)


def numbered(count: int, *, topic: str = IN, partition: int | None = None, first: int = 0) -> list[Outgoing]:
    return [Outgoing(topic, b"k%d" % i, b"v%d" % i, (), partition) for i in range(first, first + count)]


def echo(batch: PolledBatch, topic: str = OUT) -> list[Outgoing]:
    return [Outgoing(topic, r.key, r.value, (), r.source.partition) for r in batch.records]


def ends(batch: PolledBatch) -> dict[TopicPartition, int]:
    return {partition: span.end for partition, span in batch.ranges.items()}


@pytest.fixture
def log(transport: Transport) -> Log:
    log = transport.connect()
    log.create_topic(IN, 2)
    log.create_topic(OUT, 2)
    return log


# --- topics -----------------------------------------------------------------------------------------------


def test_creating_a_topic_again_changes_nothing(log: Log) -> None:
    before = log.topic_id(IN)
    log.create_topic(IN, 2)
    assert log.topic_id(IN) == before
    assert log.partitions(IN) == 2
    assert log.topic_id(OUT) != before
    with pytest.raises(TransportError, match="2 partitions, not 3"):
        log.create_topic(IN, 3)


def test_a_topic_without_partitions_or_that_does_not_exist_is_refused(log: Log) -> None:
    with pytest.raises(TransportError, match="at least 1"):
        log.create_topic(NONE, 0)
    with pytest.raises(TransportError, match="does not exist"):
        log.partitions(NONE)
    with pytest.raises(TransportError, match="does not exist"):
        log.topic_id(NONE)
    with pytest.raises(TransportError, match="does not exist"):
        log.produce([Outgoing(NONE, None, b"v")])
    with log.consumer("g", [NONE], member="a") as consumer, pytest.raises(TransportError, match="does not exist"):
        consumer.poll(1, 0)


# --- records ----------------------------------------------------------------------------------------------


def test_records_come_back_as_they_were_produced(log: Log) -> None:
    headers = (("", b""), ("twice", b"1"), ("twice", b"2"), ("größe", b"\x00\xff"))
    sent = [
        Outgoing(IN, b"key", b"value", headers, 0),
        Outgoing(IN, None, None, (), 0),
        Outgoing(IN, b"", b"", (), 0),
        Outgoing(IN, b"tombstone", None, (), 0),
        Outgoing(IN, None, b"\x00\xff\x80not utf-8", (), 0),
        Outgoing(IN, b"big", random.Random(1).randbytes(1_000_000), (), 0),
    ]
    before_ms = time.time_ns() // 1_000_000
    log.produce(sent)
    after_ms = time.time_ns() // 1_000_000
    with log.consumer("g", [IN], member="a") as consumer:
        records = drain(consumer)
    assert [(r.key, r.value, r.headers) for r in records] == [(s.key, s.value, s.headers) for s in sent]
    assert [r.offset for r in records] == list(range(6))
    assert {r.source for r in records} == {P0}
    assert all(before_ms - 1 <= r.append_time_ms <= after_ms + 1 for r in records)


def test_a_key_has_one_partition_in_every_process(transport: Transport, log: Log) -> None:
    keys = [b"", *(b"key-%d" % i for i in range(200))]
    log.produce([Outgoing(IN, key, b"1") for key in keys])
    transport.connect().produce([Outgoing(IN, key, b"2") for key in reversed(keys)])
    homes = Counter((r.key, r.source.partition) for r in read_all(log, IN))
    assert len(homes) == len(keys)
    assert set(homes.values()) == {2}
    assert all(60 <= sum(p == n for _, p in homes) <= 140 for n in (0, 1))


def test_records_without_a_key_take_turns(log: Log) -> None:
    log.produce([Outgoing(IN, None, b"v")] * 10)
    assert (log.end_offset(P0), log.end_offset(P1)) == (5, 5)


def test_a_partition_that_is_not_there_is_refused_and_nothing_written(log: Log) -> None:
    with pytest.raises(TransportError, match=f"partition 2 of topic {IN}"):
        log.produce([Outgoing(IN, None, b"v", (), 0), Outgoing(IN, None, b"v", (), 2)])
    assert log.end_offset(P0) == 0


def test_reading_outside_a_group(log: Log) -> None:
    log.produce(numbered(10, partition=0))
    assert [r.offset for r in log.read(P0, 3, 4)] == [3, 4, 5, 6]
    assert [r.offset for r in log.read(P0, 8, 100)] == [8, 9]
    assert log.read(P0, 10, 100) == []
    assert log.read(P1, 0, 100) == []
    assert (log.end_offset(P0), log.end_offset(P1)) == (10, 0)


def test_the_offset_of_a_time(log: Log) -> None:
    log.produce(numbered(5, partition=0))
    times = [r.append_time_ms for r in log.read(P0, 0, 5)]
    for time_ms in {*times, times[0] - 1, times[-1] + 1}:
        assert log.offset_at(P0, time_ms) == sum(t < time_ms for t in times)
    assert log.offset_at(P1, times[0]) == 0


# --- polling ----------------------------------------------------------------------------------------------


def test_order_positions_ranges_and_the_end(log: Log) -> None:
    log.produce(numbered(30, partition=0) + numbered(5, partition=1, first=100))
    with log.consumer("g", [IN], member="a") as consumer:
        # Fairly: the long partition does not shut the short one out.
        first = eventually(consumer, lambda batch: set(batch.ranges) == {P0, P1}, 20)
        assert consumer.assignment() == {P0, P1}
        # One that fetches in the background may have only begun with a partition.
        assert first.ranges[P1].start == 0
        if is_immediate(consumer):
            assert first.ranges[P1] == OffsetRange(0, 5)
            assert first.at_end == {P1}
        rest = drain(consumer)
        assert (consumer.position(P0), consumer.position(P1)) == (30, 5)
        read = [*first.records, *rest]
        assert [r.value for r in read if r.source == P0] == [b"v%d" % i for i in range(30)]
        assert [r.value for r in read if r.source == P1] == [b"v%d" % i for i in range(100, 105)]
        empty = consumer.poll(20, 0)
        assert empty == PolledBatch([], {}, frozenset({P0, P1}))
        log.produce(numbered(1, partition=1))
        assert P1 not in consumer.poll(1, 0).at_end or consumer.position(P1) == 6  # the end is that of now


def test_a_poll_uses_what_other_partitions_leave(log: Log) -> None:
    log.produce(numbered(100, partition=0))
    with log.consumer("g", [IN], member="a") as consumer:
        poll_records(consumer, 10)
        assert len(poll_records(consumer, 50).records) == 50


def test_fewer_records_asked_than_partitions_starves_none(log: Log) -> None:
    # Long enough that a log which fetches one partition before the other has both before the first is used up.
    log.produce(numbered(2_000, partition=0) + numbered(3, partition=1))
    with log.consumer("g", [IN], member="a") as consumer:
        sources = {poll_records(consumer, 1).records[0].source}
        for _ in range(1 if is_immediate(consumer) else 1_998):
            if len(sources) < 2:
                sources |= {record.source for record in poll_records(consumer, 1).records}
    assert sources == {P0, P1}


def test_a_waiting_poll_returns_when_a_record_comes(transport: Transport, log: Log) -> None:
    with log.consumer("g", [IN], member="a") as consumer:
        drain(consumer)
        thread = Thread(target=transport.connect().produce, args=(numbered(1, partition=1),))
        thread.start()
        batch = consumer.poll(10, 60_000)
        thread.join()
    assert [r.source for r in batch.records] == [P1]


def test_two_topics_in_one_group(log: Log) -> None:
    log.produce(numbered(5) + numbered(5, topic=OUT))
    with log.consumer("g", [IN, OUT], member="a") as consumer:
        assert Counter(r.source.topic for r in drain(consumer)) == {IN: 5, OUT: 5}
        assert len(consumer.assignment()) == 4


def test_groups_do_not_know_of_each_other(log: Log) -> None:
    log.produce(numbered(10))
    with log.consumer("g", [IN], member="a") as one, log.consumer("h", [IN], member="a") as other:
        assert len(drain(one)) == 10
        one.commit([], {P0: 1})
        assert len(drain(other)) == 10
        assert other.committed(P0) is None


def test_pause_gives_nothing_and_loses_nothing(log: Log) -> None:
    log.produce(numbered(5, partition=0) + numbered(5, partition=1))
    with log.consumer("g", [IN], member="a") as consumer:
        consumer.pause(frozenset({P0}))
        seen = eventually(consumer, lambda batch: P1 in batch.at_end)
        assert [r.source for r in seen.records] == [P1] * 5
        assert consumer.position(P0) == 0
        assert consumer.poll(10, 0).at_end == {P1}
        consumer.pause(frozenset({P1}))
        assert len(drain(consumer)) == 5
        log.produce(numbered(1, partition=1))
        assert consumer.poll(10, 20).records == []
        consumer.pause(frozenset())
        assert len(drain(consumer)) == 1


def test_everything_paused_is_an_empty_poll(log: Log) -> None:
    log.produce(numbered(5))
    with log.consumer("g", [IN], member="a") as consumer:
        poll_records(consumer, 1)
        consumer.pause(consumer.assignment())
        assert consumer.poll(10, 20).records == []


def test_seek_both_ways(log: Log) -> None:
    log.produce(numbered(10, partition=0))
    with log.consumer("g", [IN], member="a") as consumer:
        drain(consumer)
        consumer.seek(P0, 4)
        assert consumer.position(P0) == 4
        assert [r.offset for r in drain(consumer)] == list(range(4, 10))
        consumer.seek(P0, 2)
        consumer.seek(P0, 9)
        assert [r.offset for r in drain(consumer)] == [9]
        with pytest.raises(TransportError, match="cannot seek"):
            consumer.seek(P0, -1)
        with pytest.raises(TransportError, match="not assigned"):
            consumer.seek(TopicPartition(OUT, 0), 0)
        with pytest.raises(TransportError, match="not assigned"):
            consumer.position(TopicPartition(OUT, 0))


def test_start_at_the_end_but_never_skip_an_added_partition(transport: Transport, log: Log) -> None:
    log.produce(numbered(10))
    with log.consumer("g", [IN], member="a", start=StartAt(earliest=False)) as consumer:
        assert drain(consumer) == []
        log.produce(numbered(1, partition=0, first=50))
        transport.grow(IN, 3)
        log.produce(numbered(4, partition=2, first=60))
        got = drain(consumer, partitions=3)
    assert sorted(r.source.partition for r in got) == [0, 2, 2, 2, 2]


# --- commits ----------------------------------------------------------------------------------------------


def test_a_commit_writes_outputs_and_positions(log: Log) -> None:
    log.produce(numbered(10))
    with log.consumer("g", [IN], member="a") as consumer:
        batch = poll_records(consumer, 10)
        assert consumer.committed(P0) is None
        consumer.commit(echo(batch), ends(batch))
        assert {p: consumer.committed(p) for p in batch.ranges} == ends(batch)
    assert sorted(r.value or b"" for r in read_all(log, OUT)) == sorted(b"v%d" % i for i in range(10))
    with log.consumer("g", [IN], member="b") as successor:
        assert drain(successor) == []


def test_work_that_was_not_committed_comes_again(log: Log) -> None:
    log.produce(numbered(10, partition=0))
    with log.consumer("g", [IN], member="a") as consumer:
        batch = poll_records(consumer, 4)
        consumer.commit(echo(batch), ends(batch))
        assert len(poll_records(consumer, 4).records) == 4
    with log.consumer("g", [IN], member="b") as successor:
        again = drain(successor)
    assert [r.offset for r in again] == list(range(4, 10))
    assert len(read_all(log, OUT)) == 4


def test_a_member_started_again_under_its_name_goes_on_at_once(transport: Transport, log: Log) -> None:
    log.produce(numbered(10, partition=0))
    zombie = transport.connect_as("a").consumer("g", [IN], member="a")
    held = poll_records(zombie, 4)
    with transport.connect_as("a").consumer("g", [IN], member="a") as restarted:
        assert len(drain(restarted)) == 10
        with pytest.raises(FencedError):
            zombie.commit(echo(held), ends(held))
        with pytest.raises(TransportError, match="another process"):
            zombie.poll(1, 0)
        zombie.close()
        restarted.commit([], {P0: 10})
    assert read_all(log, OUT) == []


def test_a_commit_without_outputs_and_one_without_positions(log: Log) -> None:
    log.produce(numbered(2, partition=0))
    with log.consumer("g", [IN], member="a") as consumer:
        drain(consumer)
        consumer.commit([], {P0: 2})
        consumer.commit([Outgoing(OUT, None, b"clock", (), 1)], {})
        consumer.commit([], {})
        consumer.commit([], {P0: 1})
        assert consumer.committed(P0) == 1
    assert [r.value for r in read_all(log, OUT)] == [b"clock"]


def test_a_commit_that_cannot_write_everything_writes_nothing(log: Log) -> None:
    log.produce(numbered(4, partition=0))
    with log.consumer("g", [IN], member="a") as consumer:
        batch = poll_records(consumer, 4)
        for bad in (Outgoing(NONE, None, b"v"), Outgoing(OUT, None, b"v", (), 9)):
            with pytest.raises(TransportError):
                consumer.commit([*echo(batch), bad], ends(batch))
        assert consumer.committed(P0) is None
        assert read_all(log, OUT) == []
        assert len(drain(consumer)) == 4  # they begin again at the committed position


def test_a_large_batch_is_one_commit(log: Log) -> None:
    log.create_topic(BLOCKS, 2)
    log.produce(numbered(5_000))
    with log.consumer("g", [IN], member="a") as consumer:
        batch = consumer.poll(5_000, 0)
        deadline = time.monotonic() + WAIT_S
        while len(batch.records) < 5_000:  # the two partitions hold not quite the same number
            assert time.monotonic() < deadline
            batch = joined(batch, consumer.poll(5_000 - len(batch.records), 0))
        consumer.commit([*echo(batch), *echo(batch, BLOCKS)], ends(batch))
        assert sum(consumer.committed(p) or 0 for p in (P0, P1)) == 5_000
    for topic in (OUT, BLOCKS):
        assert [(r.source.partition, r.offset, r.key) for r in read_all(log, topic)] == [
            (r.source.partition, r.offset, r.key) for r in read_all(log, IN)
        ]


def test_concurrent_producers_lose_and_double_nothing(transport: Transport, log: Log) -> None:
    def produce(log: Log, first: int) -> None:
        for i in range(first, first + 50):
            log.produce(numbered(4, partition=0, first=4 * i))

    threads = [Thread(target=produce, args=(transport.connect(), 1_000 * n)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = read_all(log, IN)
    assert [r.offset for r in records] == list(range(600))
    for n in range(3):
        own = [r.value for r in records if 4_000 * n <= int((r.value or b"")[1:]) < 4_000 * (n + 1)]
        assert own == [b"v%d" % i for i in range(4_000 * n, 4_000 * n + 200)]


# --- sharing a group --------------------------------------------------------------------------------------


def test_two_members_share_and_one_takes_over_from_the_dead(transport: Transport, log: Log) -> None:
    log.produce(numbered(20))
    one = log.consumer("g", [IN], member="a")
    two = transport.connect().consumer("g", [IN], member="b")
    one.poll(1, 0)
    settle([one, two], {P0, P1})
    for member in (one, two):
        for partition in member.assignment():
            member.seek(partition, 0)
    work = poll_records(one, 3)
    one.commit(echo(work), ends(work))
    assert len(work.records) == len(poll_records(one, 3).records) == 3
    transport.silence("g", IN, "a")
    got = drain(two, partitions=2)
    assert two.assignment() == {P0, P1}
    assert len(got) == len({(r.source, r.offset) for r in got}) == 17
    assert {(r.source, r.offset) for r in got}.isdisjoint((r.source, r.offset) for r in work.records)
    two.close()


def test_a_zombies_commit_is_fenced_and_unseen(transport: Transport, log: Log) -> None:
    log.produce(numbered(10, partition=0))
    zombie = log.consumer("g", [IN], member="a")
    held = poll_records(zombie, 10)
    transport.silence("g", IN, "a")
    with transport.connect().consumer("g", [IN], member="b") as heir:
        settle([heir], {P0, P1})
        with pytest.raises(FencedError, match="poll again"):
            zombie.commit(echo(held), ends(held))
        assert read_all(log, OUT) == []
        assert heir.committed(P0) is None
        heir.seek(P0, 0)
        batch = eventually(heir, lambda batch: len(batch.records) == 10)
        heir.commit(echo(batch), ends(batch))
    assert drain(zombie) == []  # it lives on, and sees what was done meanwhile
    assert len(read_all(log, OUT)) == 10
    zombie.close()


def test_a_batch_that_lost_one_of_its_partitions_comes_again_for_the_other(transport: Transport, log: Log) -> None:
    log.produce(numbered(5, partition=0) + numbered(5, partition=1))
    one = log.consumer("g", [IN], member="a")
    held = poll_records(one, 10)
    assert len(held.ranges) == 2
    transport.silence("g", IN, "a")
    with transport.connect().consumer("g", [IN], member="b") as two:
        settle([two], {P0, P1})
        with pytest.raises(FencedError):
            one.commit(echo(held), ends(held))
        settle([one, two], {P0, P1})
        got = [*drain(one), *drain(two)]
        assert one.assignment() | two.assignment() == {P0, P1}
        one_partition = next(iter(one.assignment()))
        assert one.position(one_partition) == 5
        assert {(r.source, r.offset) for r in got} <= {(p, o) for p in (P0, P1) for o in range(5)}
        one.commit([], {one_partition: 5})
    one.close()
    assert read_all(log, OUT) == []


def test_close_frees_the_partitions_at_once(transport: Transport, log: Log) -> None:
    one = log.consumer("g", [IN], member="a")
    two = transport.connect().consumer("g", [IN], member="b")
    one.poll(1, 0)
    settle([one, two], {P0, P1})
    assert len(two.assignment()) == 1
    one.close()
    eventually(two, lambda _: two.assignment() == {P0, P1})
    two.close()


@pytest.mark.parametrize("seed", range(3))
def test_however_members_come_and_go_each_partition_has_one_owner(transport: Transport, log: Log, seed: int) -> None:
    random_ = random.Random(seed)
    log.create_topic(MANY, 7)
    live: dict[str, Consumer] = {}
    for step in range(12):
        if live and random_.random() < 0.4:
            name = random_.choice(sorted(live))
            gone = live.pop(name)
            if random_.random() < 0.5:
                gone.close()
            else:
                transport.silence("g", MANY, name)
        else:
            name = f"m{random_.randrange(100)}-{step}"
            live[name] = transport.connect().consumer("g", [MANY], member=name)
        settle(list(live.values()), {TopicPartition(MANY, p) for p in range(7)})
    for member in live.values():
        member.close()


# --- what happens to topics -------------------------------------------------------------------------------


def test_an_added_partition_is_read_from_its_beginning(transport: Transport, log: Log) -> None:
    other = transport.connect()
    log.produce(numbered(4))
    with log.consumer("g", [IN], member="a") as consumer:
        assert len(drain(consumer)) == 4
        transport.grow(IN, 4)
        log.produce(numbered(50, partition=3))
        other.produce([Outgoing(IN, b"k%d" % i, b"") for i in range(100)])
        got = drain(consumer, partitions=4)
        assert len(consumer.assignment()) == 4
    assert len([r for r in got if r.source.partition == 3 and r.value]) == 50
    assert {r.source.partition for r in got if r.value == b""} == {0, 1, 2, 3}


def test_a_recreated_topic_stops_its_readers(transport: Transport, log: Log) -> None:
    log.produce(numbered(10))
    with log.consumer("g", [IN], member="a") as consumer:
        batch = poll_records(consumer, 10)
        consumer.commit([], ends(batch))
        before = log.topic_id(IN)
        transport.delete(IN)
        log.create_topic(IN, 2)
        assert log.topic_id(IN) != before
        log.produce(numbered(3))
        with pytest.raises(TopicRecreatedError, match=f"{IN} was deleted and created again"):
            eventually(consumer, lambda batch: bool(batch.records))
    with log.consumer("g", [IN], member="b") as late:
        if transport.keeps_positions_of_deleted_topics:
            with pytest.raises(TopicRecreatedError, match="positions of group"):
                late.poll(100, 0)
        else:
            assert len(drain(late)) == 3
    with log.consumer("another", [IN], member="b") as fresh:
        assert len(drain(fresh)) == 3


def test_a_position_that_retention_has_passed_is_an_error_and_a_seek_goes_on(transport: Transport, log: Log) -> None:
    log.produce(numbered(10, partition=0))
    with log.consumer("g", [IN], member="a") as consumer:
        poll_records(consumer, 2)
        consumer.seek(P0, 2)
        consumer.commit([], {P0: 2})
        transport.trim(P0, 6)
        for _ in range(2):
            with pytest.raises(PositionLostError, match="2 to 5 are gone") as lost:
                eventually(consumer, lambda batch: bool(batch.records))
            assert lost.value.lost == {P0: (2, 6)}
        consumer.seek(P0, 6)
        assert [r.offset for r in drain(consumer)] == [6, 7, 8, 9]


def test_a_lost_position_is_noticed_when_nothing_at_all_is_left(transport: Transport, log: Log) -> None:
    log.produce(numbered(10, partition=0))
    with log.consumer("g", [IN], member="a") as consumer:
        poll_records(consumer, 2)
        consumer.seek(P0, 2)
        transport.trim(P0, 10)
        with pytest.raises(PositionLostError, match="2 to 9 are gone"):
            eventually(consumer, lambda batch: bool(batch.records) or P0 in batch.at_end)


def test_a_new_group_starts_at_what_is_left(transport: Transport, log: Log) -> None:
    log.produce(numbered(10, partition=0))
    transport.trim(P0, 6)
    with log.consumer("g", [IN], member="a") as consumer:
        assert [r.offset for r in drain(consumer)] == [6, 7, 8, 9]
    assert [r.offset for r in log.read(P0, 0, 2)] == [6, 7]
    transport.trim(P0, 10)
    log.produce(numbered(1, partition=0))
    assert [r.offset for r in log.read(P0, 0, 2)] == [10]


def test_a_position_beyond_the_end_is_an_error(log: Log) -> None:
    with log.consumer("g", [IN], member="a") as consumer:
        settle([consumer], {P0, P1})
        consumer.seek(P0, 5)
        with pytest.raises(PositionLostError, match="ends at 0, before the position 5"):
            eventually(consumer, lambda batch: bool(batch.records))
