"""Slow polls led to a rebalance, the commit of the one that had been slow was refused, and the same records were worked
off by another member: counted twice, because counting them was not idempotent, and the process that was refused died.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from stream_calib.errors import FencedError, TransportError
from stream_calib.transport.port import Consumer, Outgoing, TopicPartition
from tests.cases.calibrating import NOW_MS, Calibrating
from tests.cases.joined import Joined, joined, label, score
from tests.windows.monitors import A

N = 100
ERRORS = [FencedError("the commit was refused: the group has another generation"), TransportError("no answer")]


def refuse_commits(consumer: Consumer, monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[int]:
    """Every commit of this member fails; how many did."""
    failed: list[int] = []

    def commit(outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        failed.append(len(outputs))
        raise error

    monkeypatch.setattr(consumer, "commit", commit)
    return failed


def feed(j: Joined) -> None:
    j.scores(*(score(f"id-{i}", 3 + i % 3, i / N) for i in range(N)))
    j.labels(*(label(f"id-{i}", 9, i % 2) for i in range(N)))


def check(j: Joined) -> None:
    j.matured(3)
    found = j.pane(3)
    assert (found.scored, found.labelled, found.positives, found.unlabelled) == (N, N, N // 2, 0)
    counts = found.record.counts
    assert (counts["accepted"], counts["winners"], counts["labels"], counts["matched"]) == (N, N, N, N)


@pytest.mark.services
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_second_monitor_counts_nothing_again(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with joined(redis_url, monkeypatch) as j:
        m = j.monitors
        feed(j)
        first = m.start()
        failed = refuse_commits(first._consumer, monkeypatch, error)
        m.until_applied(A)
        m.until(lambda: failed, "a commit that fails")
        m.until_applied(A)  # it lives on
        assert m.log.group_positions("monitor", "blocks") == {}
        m.stop(first)
        m.start()
        check(j)


@pytest.mark.services
def test_the_first_one_reads_where_the_shards_are_when_the_partition_comes_back(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(redis_url, monkeypatch) as j:
        m = j.monitors
        first = m.start()
        j.scores(*(score(f"id-{i}", 3 + i % 3, i / N) for i in range(N // 2)))
        m.until_applied(A)
        with monkeypatch.context() as refused:
            refuse_commits(first._consumer, refused, ERRORS[0])
            m.monitors.remove(first)  # it stands still, and its session ends
            m.operator.silence(first)
            second = m.start()
            j.scores(*(score(f"id-{i}", 3 + i % 3, i / N) for i in range(N // 2, N)))
            m.until_applied(A)
            m.stop(second)
            m.monitors.append(first)  # its memory is of before
        j.labels(*(label(f"id-{i}", 9, i % 2) for i in range(N)))
        check(j)


def test_calibrate_lives_on_and_repeats_the_same_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the outputs were written although the commit was refused, as without transactions, the users can see the
    repeat by the same id, source offset and snapshot."""
    made = Calibrating(scores={"time": {"path": "t"}})
    made.produce(*({"event_id": f"id-{i}", "score": i / N, "t": NOW_MS} for i in range(N)))
    role, consumer = made.member("a")

    def written_and_refused(outputs: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        made.log.produce(outputs)
        raise FencedError("the commit was refused: the group has another generation")

    with monkeypatch.context() as refused:
        refused.setattr(consumer, "commit", written_and_refused)
        role.step()
    first = [(r.key, r.value, r.headers) for r in made.read("calibrated")]
    assert len(first) == N
    assert consumer.committed(TopicPartition("scores", 0)) is None
    consumer.close()
    again, its_consumer = made.member("b")
    again.step()
    outputs = [(r.key, r.value, r.headers) for r in made.read("calibrated")]
    assert outputs == first * 2
    assert its_consumer.committed(TopicPartition("scores", 0)) == N
    members = [json.loads(value or b"")["stream_calib"]["m"] for _, value, _ in outputs]
    assert {member["snapshot"] for member in members} == {None}
    assert role.step()  # the process that was refused goes on
    assert len(made.read("calibrated")) == 2 * N
    its_consumer.close()


@pytest.mark.services
def test_a_repeat_of_the_blocks_is_counted_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        feed(j)
        blocks = j.monitors.log.read(TopicPartition("blocks", 0), 0, 100)
        j.monitors.log.produce([Outgoing("blocks", None, r.value, (), 0) for r in blocks])
        j.matured(3)
        found = j.pane(3)
        assert (found.scored, found.labelled, found.positives) == (N, N, N // 2)
        assert found.record.counts["accepted"] - found.record.counts["winners"] == N  # the repeats are duplicates
