"""Rows of requests reach the log: merged, in time, across outages, never behind a clock."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.events.blocks import BlockRows, served_fixed_point, unpack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.control import is_control
from stream_calib.events.identity import fingerprints
from stream_calib.live.block_writer import BlockWriter
from stream_calib.live.request_rows import NOW
from stream_calib.live.waiting_rows import WaitingRows, records_of
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from tests.unit.live.requests_for_tests import KEY, NOW_MS, rows_of

TOPIC = "live"
DEADLINE_S = 30.0


class Server(MemoryLog):
    """A log that can be away."""

    def __init__(self, partitions: int = 2) -> None:
        super().__init__()
        self.away = self.half_way = False
        self.closed = False
        if partitions:
            self.create_topic(TOPIC, partitions)

    def produce(self, outputs: Sequence[Outgoing]) -> None:
        if self.half_way:
            super().produce(outputs)
        if self.away or self.half_way:
            raise TransportError("away")
        super().produce(outputs)

    def close(self) -> None:
        self.closed = True

    def records(self) -> list[Record]:
        return [r for p in range(self.partitions(TOPIC)) for r in self.read(TopicPartition(TOPIC, p), 0, 100_000)]

    def blocks(self) -> list[BlockRows]:
        return [unpack(record.value or b"") for record in self.records() if not is_control(record)]

    def fingerprints(self) -> list[int]:
        return [f for block in self.blocks() for f in block.fingerprint.tolist()]

    def clocks(self, partition: int) -> list[int]:
        records = self.read(TopicPartition(TOPIC, partition), 0, 100_000)
        return [json.loads(r.value or b"")["clock_ms"] for r in records if is_control(r)]


def writer_of(server: MemoryLog, **settings: Any) -> BlockWriter:
    return BlockWriter(lambda: server, TOPIC, **{"lateness_ms": 0, **settings})


def until(condition: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up, f"waited for {what}"
        time.sleep(0.005)


def sample(name: str) -> float:
    return REGISTRY.get_sample_value(f"stream_calib_live_rows_{name}") or 0.0


def ids(n: int, prefix: str = "e") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


# --- rows to records


def test_rows_of_many_requests_share_blocks_and_keep_their_columns() -> None:
    requests = [
        rows_of([f"e{i}"], [NOW_MS + i], region="eu" if i % 2 else "us", snapshot="v2" if i > 59 else "v1")
        for i in range(100)
    ]
    outputs = list(records_of(requests, TOPIC, 4))
    assert len(outputs) == 8  # a block for each snapshot and partition
    seen: dict[int, tuple[Any, ...]] = {}
    for output in outputs:
        assert output.topic == TOPIC
        block = unpack(output.value or b"")
        assert block.model_key == KEY
        assert (block.fingerprint % np.uint64(4) == output.partition).all()
        for i in range(len(block.fingerprint)):
            seen[int(block.fingerprint[i])] = (
                int(block.event_time_ms[i]),
                block.signatures[block.signature_index[i]],
                block.snapshots[block.snapshot_index[i]],
                float(block.score[i]),
                int(block.served[i]),
            )
    served = int(served_fixed_point(np.array([0.5]))[0])
    assert seen == {
        int(fingerprints([f"e{i}"])[0]): (
            NOW_MS + i,
            ("eu" if i % 2 else "us", "__missing__"),
            "v2" if i > 59 else "v1",
            0.25,
            served,
        )
        for i in range(100)
    }


def test_models_have_blocks_of_their_own_and_none_has_more_rows_than_a_call_is_to_bring() -> None:
    other = ModelKey("n", "3")
    times: list[int | None] = [NOW_MS] * 700
    outputs = list(records_of([rows_of(ids(700), times), rows_of(["x"], [NOW_MS], key=other)], TOPIC, 1))
    blocks = [unpack(output.value or b"") for output in outputs]
    assert [(b.model_key, len(b.fingerprint)) for b in blocks] == [
        (KEY, 200),
        (KEY, 200),
        (KEY, 200),
        (KEY, 100),
        (other, 1),
    ]


# --- the queue


def test_rows_wait_in_order_and_only_an_empty_queue_tells_until_when_it_is_complete() -> None:
    clock = iter([10, 20, 30, 40]).__next__
    waiting = WaitingRows(10**9, clock)
    first, second = rows_of(["a", "b"]), rows_of(["c"], [NOW_MS])
    assert waiting.put(first)
    assert waiting.put(second)
    taken = waiting.take(1)
    assert [one.event_time_ms.tolist() for one in taken.rows] == [[10, 10]]
    assert taken.all_until_ms is None
    rest = waiting.take(1)
    assert [one.event_time_ms.tolist() for one in rest.rows] == [[NOW_MS]]
    assert rest.all_until_ms == 20
    assert len(waiting) == 3  # until they are let go
    waiting.let_go(taken)
    waiting.let_go(rest)
    assert len(waiting) == 0
    assert first.event_time_ms.tolist() == [NOW, NOW]  # the caller's are as they were


def test_the_queue_is_bounded_by_memory_and_takes_again_what_it_has_room_for() -> None:
    one = rows_of(ids(100))
    waiting = WaitingRows(2 * one.memory_bytes, lambda: NOW_MS)
    assert waiting.put(one)
    assert waiting.put(one)
    assert not waiting.put(rows_of(["x"]))
    taken = waiting.take(150)
    assert not waiting.put(one)  # what is being written takes room too
    waiting.let_go(taken)
    assert waiting.put(one)
    waiting.close()
    assert not waiting.put(rows_of(["x"]))


# --- the writer


def test_rows_and_clocks_are_written() -> None:
    server = Server(partitions=3)
    writer = writer_of(server, lateness_ms=5_000)
    before, written = time.time_ns() // 1_000_000, sample("written_total")
    writer.put(rows_of(ids(10)))
    until(lambda: len(server.fingerprints()) == 10, "the rows")
    until(lambda: all(server.clocks(p) for p in range(3)), "a clock on every partition, also those without rows")
    writer.close()
    assert server.closed
    assert writer.waiting == 0
    assert sorted(server.fingerprints()) == sorted(fingerprints(ids(10)).tolist())
    assert sample("written_total") == written + 10
    now = time.time_ns() // 1_000_000
    assert all(before <= t <= now for block in server.blocks() for t in block.event_time_ms.tolist())
    assert all(before - 5_000 <= c <= now - 5_000 for p in range(3) for c in server.clocks(p))


def test_clocks_come_each_second_without_any_row() -> None:
    server = Server(partitions=1)
    writer = writer_of(server)
    writer.start()
    until(lambda: len(server.clocks(0)) >= 3, "clocks")
    writer.close()
    gaps = np.diff(server.clocks(0))
    assert (gaps >= 1_000).all()
    assert server.blocks() == []


def test_no_clocks_where_they_are_off() -> None:
    now = NOW_MS

    def clock_ms() -> int:
        nonlocal now
        now += 10_000
        return now

    server = Server()
    writer = writer_of(server, clock_records=False, clock_ms=clock_ms)
    for n in range(3):
        writer.put(rows_of([f"e{n}"]))
        until(lambda n=n: len(server.fingerprints()) == n + 1, "the row")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
    writer.close()
    assert [record for record in server.records() if is_control(record)] == []


def test_a_clock_never_overtakes_a_row_that_waits_while_the_log_comes_and_goes() -> None:
    server = Server(partitions=2)
    writer = writer_of(server)  # lateness 0: a row behind any clock of its partition would be late
    stop = threading.Event()

    def serve(name: str) -> None:
        n = 0
        while not stop.is_set():
            writer.put(rows_of([f"{name}-{n}"]))
            n += 1
            stop.wait(0.002)
        counts[name] = n

    counts: dict[str, int] = {}
    threads = [threading.Thread(target=serve, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        begun = len(server.clocks(0))
        until(lambda b=begun: len(server.clocks(0)) > b, "clocks")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
        server.away = True
        waiting = writer.waiting
        until(lambda w=waiting: writer.waiting > w + 50, "rows that wait")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
        stands = len(server.records())
        until(lambda w=writer.waiting: writer.waiting > w + 50, "more rows that wait")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
        assert len(server.records()) == stands
        server.away = False
    stop.set()
    for thread in threads:
        thread.join()
    writer.close()
    expected = [f"{name}-{i}" for name, n in counts.items() for i in range(n)]
    assert sorted(server.fingerprints()) == sorted(fingerprints(expected).tolist())
    for partition in range(2):
        clock = 0
        for record in server.read(TopicPartition(TOPIC, partition), 0, 100_000):
            if is_control(record):
                clock = max(clock, json.loads(record.value or b"")["clock_ms"])
            else:
                assert unpack(record.value or b"").event_time_ms.min() >= clock


def test_rows_of_a_write_that_is_not_known_to_have_happened_are_written_again() -> None:
    server = Server()
    server.half_way = True
    writer = writer_of(server)
    writer.put(rows_of(["a"]))
    until(lambda: len(server.fingerprints()) >= 2, "a repeat")
    assert writer.waiting == 1
    server.half_way = False
    until(lambda: writer.waiting == 0, "the write that succeeds")
    writer.close()
    assert set(server.fingerprints()) == set(fingerprints(["a"]).tolist())


def test_more_than_may_wait_is_lost_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.away = True
    lost = sample("lost_total")
    one = rows_of(ids(100))
    writer = writer_of(server, max_waiting_bytes=3 * one.memory_bytes)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            writer.put(one)
    assert writer.waiting == 300
    assert sample("lost_total") == lost + 200
    assert [r.message for r in caplog.records if "rows are lost" in r.message] == [
        "rows are lost to the monitor: 300 wait for live, and no more may; requests are answered all the same"
    ]
    server.away = False
    until(lambda: writer.waiting == 0, "what waited")
    writer.close()
    assert len(server.fingerprints()) == 300


def test_close_writes_what_waits() -> None:
    server = Server()
    writer = writer_of(server)
    for n in range(50):
        writer.put(rows_of(ids(100, f"{n}-")))
    writer.close()
    assert len(server.fingerprints()) == 5_000
    lost = sample("lost_total")
    writer.put(rows_of(["late"]))
    assert sample("lost_total") == lost + 1


def test_close_gives_up_in_time_and_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.away = True
    writer = writer_of(server)
    writer.put(rows_of(ids(7)))
    lost, began = sample("lost_total"), time.monotonic()
    with caplog.at_level(logging.WARNING):
        writer.close(within_s=0.3)
    assert time.monotonic() - began < 10
    assert sample("lost_total") == lost + 7
    assert "7 rows are lost to the monitor: live did not take them in time" in caplog.text


def test_close_of_what_was_never_started() -> None:
    opened: list[MemoryLog] = []

    def open_log() -> MemoryLog:
        opened.append(Server())
        return opened[-1]

    writer = BlockWriter(open_log, TOPIC, lateness_ms=0)
    writer.close()
    writer.start()
    assert opened == []


def test_a_topic_that_is_not_there_yet_is_waited_for_and_named(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(partitions=0)
    with pytest.raises(UnknownTopicError):
        server.partitions(TOPIC)
    writer = writer_of(server)
    with caplog.at_level(logging.WARNING):
        writer.put(rows_of(["a"]))
        until(lambda: any(TOPIC in r.getMessage() for r in caplog.records), "a message")
    server.create_topic(TOPIC, 1)
    until(lambda: server.fingerprints() == fingerprints(["a"]).tolist(), "the row")
    writer.close()


def test_partitions_that_are_added_get_clocks_and_rows() -> None:
    now = NOW_MS

    def clock_ms() -> int:
        nonlocal now
        now += 2_000
        return now

    server = Server(partitions=1)
    writer = writer_of(server, clock_ms=clock_ms)
    writer.start()
    until(lambda: server.clocks(0), "clocks")
    server.grow_topic(TOPIC, 2)
    until(lambda: server.clocks(1), "clocks on the new partition")
    writer.put(rows_of(ids(20)))
    until(lambda: len(server.fingerprints()) == 20, "the rows")
    writer.close()
    assert any(not is_control(record) for record in server.read(TopicPartition(TOPIC, 1), 0, 100_000))


def test_a_fault_of_ours_costs_the_rows_that_it_is_about_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    writer = writer_of(server)
    lost = sample("lost_total")
    writer.put(rows_of(["a"], [NOW_MS], key=ModelKey("no model", "1")))  # nothing that reads requests lets this pass
    until(lambda: sample("lost_total") == lost + 1, "the loss")
    writer.put(rows_of(["b"]))
    until(lambda: server.fingerprints() == fingerprints(["b"]).tolist(), "the other row")
    writer.close()


def test_a_forked_child_writes_its_own_rows_and_none_of_the_parents() -> None:
    """A log in a pipe, since memory is not shared."""
    reader, pipe = os.pipe()

    class Piped(Server):
        def produce(self, outputs: Sequence[Outgoing]) -> None:
            if os.getpid() == parent and self.away:
                raise TransportError("away")
            for output in outputs:
                if not output.headers:
                    found = unpack(output.value or b"").fingerprint.tolist()
                    os.write(pipe, json.dumps([os.getpid() == parent, found]).encode() + b"\n")

    parent = os.getpid()
    server = Piped()
    server.away = True
    writer = writer_of(server)
    writer.put(rows_of(["parent"]))
    child = os.fork()
    if child == 0:
        writer.put(rows_of(["child"]))
        writer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    server.away = False
    until(lambda: writer.waiting == 0, "the parent's row")
    writer.close()
    os.close(pipe)
    with os.fdopen(reader) as lines:
        written = [json.loads(line) for line in lines]
    assert written == [[False, fingerprints(["child"]).tolist()], [True, fingerprints(["parent"]).tolist()]]
