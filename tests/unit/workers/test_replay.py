from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError, TransportError
from stream_calib.events.control import clock_record, is_control
from stream_calib.events.topic_range import Bound
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from workers.replay import Pace, Replay, Replayed
from workers.replay_source import FileSource, Source, TopicSource
from workers.replay_times import EventTimes

MAY_2024_MS = 1_714_521_600_000
CONFIG = Config.model_validate(
    {
        "model": {"name": "m"},
        "scores": {"time": {"path": "at"}},
        "labels": {"time": {"path": "at", "unit": "iso8601"}},
        "windows": {"horizon": "24h"},
    }
)


class Clock:
    """The time at which the log takes records."""

    def __init__(self) -> None:
        self.ms = MAY_2024_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> MemoryLog:
    made = MemoryLog(now_ms=clock)
    made.create_topic("old", 3)
    made.create_topic("scores", 3)
    made.create_topic("wider", 5)
    return made


def score(at_ms: int, number: int = 0) -> bytes:
    return json.dumps({"event_id": str(number), "score": 0.5, "at": at_ms}).encode()


def put(log: MemoryLog, clock: Clock, partition: int, *taken_ms: int, topic: str = "old") -> None:
    for i, ms in enumerate(taken_ms):
        clock.ms = ms
        log.produce([Outgoing(topic, f"k{partition}-{i}".encode(), score(ms, i), (("h", b"x"),), partition)])


def contents(log: MemoryLog, topic: str) -> dict[int, list[Record]]:
    return {p: log.read(TopicPartition(topic, p), 0, 100_000) for p in range(log.partitions(topic))}


def run(log: MemoryLog, source: Source, topic: str = "scores", pace: Pace = Pace()) -> Replayed:  # noqa: B008 - immutable
    replay = Replay(log, topic, source, pace, threading.Event())
    replay.run(lambda _: None)
    return replay.state


def topic_source(log: MemoryLog, into: str = "scores", **options: Sequence[Any]) -> TopicSource:
    bounds = {name: [Bound.parse(text) for text in options.get(name, ())] for name in ("since", "until")}
    return TopicSource(log, "old", into, EventTimes(CONFIG, into), partitions=options.get("partitions", ()), **bounds)


# --- topics


def test_records_stay_as_they_are(log: MemoryLog, clock: Clock) -> None:
    put(log, clock, 0, MAY_2024_MS, MAY_2024_MS + 1)
    put(log, clock, 2, MAY_2024_MS + 5)
    log.produce([Outgoing("old", b"gone", None, (), 1)])  # a tombstone
    state = run(log, topic_source(log))
    assert (state.written, state.finished) == (4, True)
    before, after = contents(log, "old"), contents(log, "scores")
    for partition, records in before.items():
        assert [(r.key, r.value, r.headers) for r in after[partition]] == [(r.key, r.value, r.headers) for r in records]


def test_with_other_numbers_of_partitions_the_key_decides_and_order_is_by_time(log: MemoryLog, clock: Clock) -> None:
    """Both records of a key meet in one partition, and the partition's times rise."""
    for i in range(20):
        put(log, clock, 0, MAY_2024_MS + 2 * i)
    for i in range(20):
        put(log, clock, 1, MAY_2024_MS + 2 * i + 1)
    run(log, topic_source(log, "wider"), "wider")
    found = contents(log, "wider")
    keys = [{r.key for r in records} for records in found.values() if records]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 2
    written = sorted((r for records in found.values() for r in records), key=lambda r: json.loads(r.value or b"")["at"])
    assert len(written) == 40
    for records in found.values():
        times = [json.loads(r.value or b"")["at"] for r in records]
        assert times == sorted(times)


def test_the_start_of_a_range_by_time(log: MemoryLog, clock: Clock) -> None:
    """One partition spans the time, one is wholly older, one wholly newer; the older one does not start at 0."""
    put(log, clock, 0, MAY_2024_MS - 2, MAY_2024_MS - 1, MAY_2024_MS, MAY_2024_MS + 1)
    put(log, clock, 1, MAY_2024_MS - 9, MAY_2024_MS - 8)
    put(log, clock, 2, MAY_2024_MS + 7)
    state = run(log, topic_source(log, since=["2024-05-01T00:00Z"]))
    assert state.written == 3
    assert {p: len(records) for p, records in contents(log, "scores").items()} == {0: 2, 1: 0, 2: 1}


def test_older_records_behind_the_start_are_left_out(log: MemoryLog, clock: Clock) -> None:
    put(log, clock, 0, MAY_2024_MS - 1, MAY_2024_MS, MAY_2024_MS - 5, MAY_2024_MS + 1)  # a producer's clock went back
    run(log, topic_source(log, since=["2024-05-01T02:00:00+02:00"]))
    assert [json.loads(r.value or b"")["at"] for r in contents(log, "scores")[0]] == [MAY_2024_MS, MAY_2024_MS + 1]


def test_the_end_of_a_range_is_not_replayed(log: MemoryLog, clock: Clock) -> None:
    put(log, clock, 0, MAY_2024_MS - 1, MAY_2024_MS, MAY_2024_MS + 1)
    put(log, clock, 1, MAY_2024_MS, MAY_2024_MS + 1)
    assert run(log, topic_source(log, until=["2024-05-01"])).written == 1


def test_offsets_for_all_partitions_and_for_one(log: MemoryLog, clock: Clock) -> None:
    for partition in range(3):
        put(log, clock, partition, *range(MAY_2024_MS, MAY_2024_MS + 10))
    state = run(log, topic_source(log, since=["5", "1:8"], until=["2:6"]))
    assert {p: len(records) for p, records in contents(log, "scores").items()} == {0: 5, 1: 2, 2: 1}
    assert state.done == {0: 10, 1: 10, 2: 6}


def test_only_some_partitions(log: MemoryLog, clock: Clock) -> None:
    for partition in range(3):
        put(log, clock, partition, MAY_2024_MS)
    run(log, topic_source(log, partitions=[0, 2]))
    assert {p: len(records) for p, records in contents(log, "scores").items()} == {0: 1, 1: 0, 2: 1}
    with pytest.raises(ConfigurationError, match="old has no partition 3: it has 3"):
        topic_source(log, partitions=[3])
    with pytest.raises(ConfigurationError, match="no partition 7"):
        topic_source(log, since=["7:1"])


def test_what_comes_meanwhile_is_not_of_the_range(log: MemoryLog, clock: Clock) -> None:
    put(log, clock, 0, MAY_2024_MS)
    source = topic_source(log)
    put(log, clock, 0, MAY_2024_MS + 1)
    assert run(log, source).written == 1


def test_a_range_that_retention_has_passed_is_an_error_with_the_gap(log: MemoryLog, clock: Clock) -> None:
    put(log, clock, 0, *range(MAY_2024_MS, MAY_2024_MS + 10))
    log.trim(TopicPartition("old", 0), 7)
    with pytest.raises(ConfigurationError, match=r"old-0 begins at 7 now: 5 offsets from 2 on are gone.*--from 0:7"):
        topic_source(log, since=["2"])
    assert run(log, topic_source(log, since=["0:7"])).written == 3
    assert run(log, topic_source(log)).written == 3


@pytest.mark.parametrize("text", ["", "yesterday", "1:2:3", "-5", "2024-13-01", "1.5"])
def test_a_bound_that_is_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match="neither an offset"):
        Bound.parse(text)


def test_an_event_of_the_far_future_holds_up_nothing(log: MemoryLog, clock: Clock) -> None:
    clock.ms = MAY_2024_MS
    log.produce([Outgoing("old", None, score(4_000_000_000_000), (), 0), Outgoing("old", None, b"no json", (), 0)])
    put(log, clock, 0, MAY_2024_MS + 2)
    state = run(log, topic_source(log))
    assert state.last_ms == MAY_2024_MS + 2
    assert [r.value for r in contents(log, "scores")[0]][1] == b"no json"


# --- files


def write(path: Path, *lines: bytes) -> Path:
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
        stream.write(b"\n".join(lines) + b"\n")
    return path


def file_source(*paths: Path, kcat: bool = False, skip_lines: int = 0) -> FileSource:
    return FileSource(paths, "scores", EventTimes(CONFIG, "scores"), kcat=kcat, skip_lines=skip_lines)


def test_lines_are_values(log: MemoryLog, tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", score(MAY_2024_MS, 1), b"", b'{"odd": "caf\xc3\xa9"}', b"null")
    two = write(tmp_path / "b.jsonl.gz", score(MAY_2024_MS, 2))
    source = file_source(one, two)
    state = run(log, source)
    assert (state.written, state.last_ms) == (4, MAY_2024_MS)
    values = [r.value for records in contents(log, "scores").values() for r in records]
    assert sorted(v or b"" for v in values) == sorted(
        [score(MAY_2024_MS, 1), b'{"odd": "caf\xc3\xa9"}', b"null", score(MAY_2024_MS, 2)]
    )
    assert all(r.key is None and not r.headers for records in contents(log, "scores").values() for r in records)
    assert source.progress(state.done) == source.total == one.stat().st_size + two.stat().st_size


def test_lines_are_records_as_kcat_writes_them(log: MemoryLog, tmp_path: Path) -> None:
    lines = [
        {"topic": "x", "partition": 1, "offset": 5, "tstype": "create", "ts": 1, "broker": 0, "headers": ["a", "1"],
         "key": "k", "payload": "v"},
        {"partition": 1, "key": None, "payload": None},
        {"partition": 2, "key_base64": "/w==", "payload_base64": "AAE=", "headers": ["a", "1", "a", ""]},
    ]  # fmt: skip
    run(log, file_source(write(tmp_path / "a.jsonl", *(json.dumps(line).encode() for line in lines)), kcat=True))
    found = contents(log, "scores")
    assert [(r.key, r.value, r.headers) for r in found[1]] == [(b"k", b"v", (("a", b"1"),)), (None, None, ())]
    assert [(r.key, r.value, r.headers) for r in found[2]] == [(b"\xff", b"\x00\x01", (("a", b"1"), ("a", b"")))]


@pytest.mark.parametrize(
    "line", [b"[]", b"{", b'{"payload": 1}', b'{"headers": ["a"]}', b'{"payload_base64": "%"}', b'{"partition": "1"}']
)
def test_a_line_that_is_no_record_is_named(log: MemoryLog, tmp_path: Path, line: bytes) -> None:
    file = write(tmp_path / "a.jsonl", b'{"payload": "v"}', line)
    with pytest.raises(ConfigurationError, match=r"a\.jsonl, line 2: not a record as kcat"):
        run(log, file_source(file, kcat=True))


def test_files_that_cannot_be_read(log: MemoryLog, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.jsonl: cannot be read"):
        file_source(tmp_path / "none.jsonl")
    broken = write(tmp_path / "a.jsonl.gz", *(score(MAY_2024_MS + i) for i in range(100)))
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(ConfigurationError, match=r"a\.jsonl\.gz: cannot be read on after line"):
        run(log, file_source(broken))
    (tmp_path / "b.gz").write_bytes(b"plain text")
    with pytest.raises(ConfigurationError, match=r"b\.gz: cannot be read"):
        run(log, file_source(tmp_path / "b.gz"))


# --- stopping and going on


class FailingLog(MemoryLog):
    """Fails at its third write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def produce(self, outputs: Sequence[Outgoing]) -> None:
        self.writes += 1
        if self.writes == 3:
            raise TransportError("away")
        super().produce(outputs)


def test_after_a_failure_it_goes_on_where_the_log_has_everything_before(tmp_path: Path) -> None:
    log = FailingLog()
    log.create_topic("scores", 1)
    file = write(tmp_path / "a.jsonl", *(score(MAY_2024_MS + i, i) for i in range(17_500)))
    source = file_source(file)
    replay = Replay(log, "scores", source, Pace(), threading.Event())
    with pytest.raises(TransportError):
        replay.run(lambda _: None)
    assert not replay.state.finished
    assert source.resume_options(replay.state.done) == ["--from", "10000"]
    assert run(log, file_source(file, skip_lines=10_000)).finished
    values = [json.loads(r.value or b"")["event_id"] for r in contents(log, "scores")[0]]
    assert values == [str(i) for i in range(17_500)]


def test_a_stopped_topic_replay_goes_on_by_partition(log: MemoryLog, clock: Clock) -> None:
    put(log, clock, 0, *range(MAY_2024_MS - 1, MAY_2024_MS + 7_500))
    put(log, clock, 1, *range(MAY_2024_MS, MAY_2024_MS + 6_200))
    stop = threading.Event()
    source = topic_source(log, since=["2024-05-01T00:00Z"])
    replay = Replay(log, "scores", source, Pace(), stop)
    replay.run(lambda state: stop.set())
    assert not replay.state.finished
    assert 0 < replay.state.written < 13_700
    options = source.resume_options(replay.state.done)
    since = [value for name, value in zip(options[::2], options[1::2], strict=True) if name == "--from"]
    until = [value for name, value in zip(options[::2], options[1::2], strict=True) if name == "--until"]
    put(log, clock, 1, MAY_2024_MS + 99_999)  # after the range was fixed
    assert run(log, topic_source(log, since=since, until=until)).finished
    assert {p: len(records) for p, records in contents(log, "scores").items()} == {0: 7_500, 1: 6_200, 2: 0}


def test_large_records_are_taken_in_smaller_parts(log: MemoryLog, clock: Clock) -> None:
    class Watched(MemoryLog):
        written: list[int] = []  # noqa: RUF012 - of the one object

        def produce(self, outputs: Sequence[Outgoing]) -> None:
            self.written.append(sum(len(out.value or b"") for out in outputs))
            super().produce(outputs)

    watched = Watched()
    watched.create_topic("old", 3)
    watched.create_topic("scores", 3)
    for i in range(60):
        watched.produce([Outgoing("old", None, bytes(1_000_000), (), i % 3)])
    watched.written.clear()
    assert run(watched, topic_source(watched)).written == 60
    assert max(watched.written) <= 17_000_000


# --- pace


def test_a_rate_is_kept(log: MemoryLog, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *(score(MAY_2024_MS) for _ in range(300)))
    started = time.monotonic()
    assert run(log, file_source(file), pace=Pace(events_per_s=1_000)).written == 300
    assert 0.25 <= time.monotonic() - started < 30


def test_event_time_is_kept_so_many_times_faster(log: MemoryLog, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *(score(MAY_2024_MS + 60_000 * i) for i in range(6)))
    started = time.monotonic()
    run(log, file_source(file), pace=Pace(times_event_time=1_000))
    assert 0.28 <= time.monotonic() - started < 30


def test_a_stop_ends_a_long_wait_at_once(log: MemoryLog, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", score(MAY_2024_MS), score(MAY_2024_MS + 86_400_000))
    stop, source = threading.Event(), file_source(file)
    replay = Replay(log, "scores", source, Pace(times_event_time=1), stop)
    worker = threading.Thread(target=replay.run, args=(lambda _: stop.set(),))
    worker.start()
    worker.join(10)
    assert not worker.is_alive()
    assert (replay.state.written, replay.state.finished) == (1, False)
    assert source.resume_options(replay.state.done) == ["--from", "1"]


# --- control records


@pytest.mark.parametrize(("kind", "state"), [("last", "idle"), ("end", "end")])
def test_clocks_at_the_end(log: MemoryLog, tmp_path: Path, kind: Any, state: str) -> None:
    file = write(tmp_path / "a.jsonl", score(MAY_2024_MS + 5), score(MAY_2024_MS))
    replay = Replay(log, "scores", file_source(file), Pace(), threading.Event())
    replay.run(lambda _: None)
    assert replay.write_clocks(kind) == MAY_2024_MS + 5
    for records in contents(log, "scores").values():
        assert is_control(records[-1])
        assert json.loads(records[-1].value or b"") == {"clock_ms": MAY_2024_MS + 5, "state": state}


def test_control_records_keep_their_partition_or_are_left_out(log: MemoryLog, clock: Clock) -> None:
    value, headers = clock_record(MAY_2024_MS)
    log.produce([Outgoing("old", None, value, headers, p) for p in range(3)])
    put(log, clock, 0, MAY_2024_MS)
    same, other = run(log, topic_source(log)), run(log, topic_source(log, "wider"), "wider")
    assert (same.written, same.left_out) == (4, 0)
    assert (other.written, other.left_out) == (1, 3)
    assert not any(is_control(r) for records in contents(log, "wider").values() for r in records)
