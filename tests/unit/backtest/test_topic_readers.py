"""Partitions read by several processes: the same batches as in one, and failures as what they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stream_calib.backtest.topics.packed_batch import pack_batch, pack_error, place_of, unpack_batch, unpack_error
from stream_calib.backtest.topics.partition_reading import (
    OwnReadings,
    PartitionPlan,
    ReadBatch,
    Readings,
    partition_readings,
    read_bytes_of_each,
)
from stream_calib.backtest.topics.reader_processes import ReaderProcesses, processes_for
from stream_calib.errors import HistoryError, UnknownTopicError
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Log, OffsetRange, Outgoing, TopicPartition
from tests.redis_servers import wait_until
from tests.unit.backtest.test_topic_feed import CONFIG, KEY, MAY_2024_MS, Topics

PLANS = [
    PartitionPlan("s:b:0", TopicPartition("blocks", 0), OffsetRange(0, 350), None),
    PartitionPlan("l:l:0", TopicPartition("labels", 0), OffsetRange(3, 901), None),
    PartitionPlan("l:l:1", TopicPartition("labels", 1), OffsetRange(0, 1), MAY_2024_MS + 5),
]


def written() -> Log:
    """The same in every process that opens it."""
    topics = Topics(2)
    topics.scores(0, *range(MAY_2024_MS, MAY_2024_MS + 350))
    topics.labels(0, *range(MAY_2024_MS, MAY_2024_MS + 900))
    topics.labels(1, MAY_2024_MS)
    topics.log.produce([Outgoing("labels", None, b"{", (), 0)])
    return topics.log


def without_topics() -> Log:
    return MemoryLog()


def killed() -> Log:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is alive")


def all_of(readings: Readings, plans: Sequence[PartitionPlan] = PLANS) -> list[tuple[int, bytes]]:
    """Place and bytes of every batch, in turns."""
    found, ends = [], {place: plan.wanted.start for place, plan in enumerate(plans)}
    while left := [place for place, end in ends.items() if end < plans[place].wanted.end]:
        for place in left:
            batch = readings.next(place)
            ends[place] = batch.records.end
            found.append((place, pack_batch(place, batch)))
    return found


def own() -> OwnReadings:
    return OwnReadings(partition_readings(written(), PLANS, CONFIG, KEY))


def test_processes_give_the_batches_of_one() -> None:
    with closing(ReaderProcesses(written, CONFIG, KEY, PLANS, 2)) as readings:
        found = all_of(readings)
    assert found == all_of(own())
    assert len(found) > len(PLANS)


def test_a_batch_survives_its_bytes() -> None:
    for place, packed in all_of(own()):
        batch = unpack_batch(packed)
        assert place_of(packed) == place
        assert pack_batch(place, batch) == packed
    batch = own().next(1)
    back = unpack_batch(pack_batch(1, batch))
    assert isinstance(back, ReadBatch)
    assert (back.held, dict(back.rejects)) == (200, {})
    np.testing.assert_array_equal(back.records.rows.event_time_ms, np.arange(200) + MAY_2024_MS + 3)
    assert own().next(0).signatures == unpack_batch(pack_batch(0, own().next(0))).signatures != {}


def test_an_error_survives_its_bytes() -> None:
    packed = pack_error("HistoryError", "why")
    assert (place_of(packed), unpack_error(packed)) == (None, ("HistoryError", "why"))
    assert json.loads(packed[8:]) == {"kind": "HistoryError", "message": "why"}


@pytest.mark.parametrize(
    ("opener", "kind", "message"),
    [(without_topics, UnknownTopicError, "labels"), (killed, HistoryError, r"labels-0 was ended by SIGKILL")],
)
def test_a_failure_is_the_caller_s(opener: Callable[[], Log], kind: type[Exception], message: str) -> None:
    with closing(ReaderProcesses(opener, CONFIG, KEY, PLANS[1:2], 1)) as readings:
        for _ in range(2):
            with pytest.raises(kind, match=message):
                readings.next(0)


KILLED = """
import multiprocessing, os, signal
from tests.unit.backtest.test_topic_readers import CONFIG, KEY, PLANS, ReaderProcesses, written
if __name__ == "__main__":
    readings = ReaderProcesses(written, CONFIG, KEY, PLANS, 2)
    readings.next(0)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, str(script)], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    children = [int(pid) for pid in done.stdout.split()]
    assert len(children) == 2
    wait_until(lambda: all(map(is_over, children)), "its processes end")


def test_a_batch_that_cannot_be_taken_is_said_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(packed: bytes) -> int | None:
        raise MemoryError

    monkeypatch.setattr("stream_calib.backtest.topics.reader_processes.place_of", full)
    with closing(ReaderProcesses(written, CONFIG, KEY, PLANS[1:2], 1)) as readings:
        for _ in range(2):
            with pytest.raises(HistoryError, match=r"reads labels-0 has sent cannot be taken: MemoryError"):
                readings.next(0)


def test_many_partitions_are_read_in_smaller_parts() -> None:
    assert [read_bytes_of_each(n) * n for n in (1, 64, 1_000)] == [4_000_000, 256_000_000, 256_000_000]
    small = [plan._replace(read_bytes=1_000) for plan in PLANS]
    readings = OwnReadings(partition_readings(written(), small, CONFIG, KEY))
    first, second = readings.next(1).records, readings.next(1).records
    assert first.end - first.start == 200
    assert second.start == first.end
    assert second.end - second.start < 50


def test_few_records_are_not_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    many = [plan._replace(wanted=OffsetRange(0, 200_000)) for plan in PLANS]
    assert (processes_for(PLANS), processes_for(many)) == (0, 2)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert processes_for(many) == 0
