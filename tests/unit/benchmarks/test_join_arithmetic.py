"""The join benchmark's own arithmetic: what it writes, how it shares time out to stages, what it calls met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from benchmarks.join import GOALS, judged
from benchmarks.join_stages import STAGES, StageClock, stage_clock
from benchmarks.join_traffic import FIRST_PANE, HOUR_MS, LABEL_LAG_PANES, PARTITIONS, Part, Traffic
from stream_calib.config import TopicsSection
from stream_calib.events.blocks import unpack
from stream_calib.events.identity import fingerprints

_SCORES_AN_HOUR = 2_000
_TOPICS = TopicsSection()


def _hours(count: int) -> list[Part]:
    traffic = Traffic(_SCORES_AN_HOUR, _TOPICS)
    return [part for hour in range(count) for part in traffic.hour(hour, labels=hour >= LABEL_LAG_PANES)]


def test_each_score_comes_once_but_for_repeats_and_each_partition_has_some() -> None:
    parts = _hours(2)
    seen: Counter[int] = Counter()
    for part in parts:
        blocks = [record for record in part.records if record.topic == _TOPICS.blocks]
        assert {record.partition for record in blocks} == set(range(PARTITIONS))
        rows = [unpack(record.value or b"") for record in blocks]
        assert sum(len(block.fingerprint) for block in rows) == part.scores
        for block in rows:
            seen.update(block.fingerprint.tolist())
    # A tenth of the last quarter of an hour is still to come.
    assert len(seen) == 2 * _SCORES_AN_HOUR - _SCORES_AN_HOUR // 4 // 10
    assert set(seen.values()) == {1, 2}
    assert 0.01 < sum(n == 2 for n in seen.values()) / len(seen) < 0.03


def test_labels_come_after_their_scores_but_for_a_tenth_that_comes_before() -> None:
    written: dict[str, int] = {}
    early = total = 0
    scored: dict[int, int] = {}
    for place, part in enumerate(_hours(LABEL_LAG_PANES + 1)):
        for record in part.records:
            if record.topic == _TOPICS.blocks:
                block = unpack(record.value or b"")
                scored.update(zip(block.fingerprint.tolist(), block.event_time_ms.tolist(), strict=True))
        for record in part.records:
            if record.topic == _TOPICS.labels:
                label = msgspec.json.decode(record.value or b"")
                written.setdefault(label["event_id"], label["ts"])
        assert place >= 4 * LABEL_LAG_PANES or not part.labels
    for (event_id, time_ms), fingerprint in zip(written.items(), fingerprints(written).tolist(), strict=True):
        total += 1
        number = int(event_id.removeprefix("event-"))
        score_ms = FIRST_PANE * HOUR_MS + number * HOUR_MS // _SCORES_AN_HOUR
        assert score_ms < time_ms <= score_ms + LABEL_LAG_PANES * HOUR_MS
        early += time_ms == score_ms + 1_000
        assert scored.get(fingerprint, score_ms) == score_ms
    assert 0.09 < early / total < 0.11


class FakeTime:
    """Wall time that a test moves; the thread's own CPU is half of it."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.clock = StageClock(lambda: self.now_ns, lambda: self.now_ns // 2)

    def spend(self, seconds: int) -> None:
        self.now_ns += seconds * 1_000_000_000


def test_time_within_is_taken_out_of_the_stage_around_it() -> None:
    fake = FakeTime()
    inner = fake.clock.timed("pack", lambda: fake.spend(8))

    def middle() -> None:
        fake.spend(2)
        inner()

    outer = fake.clock.timed("round trip of apply", middle)

    def all_of() -> None:
        outer()
        inner()
        fake.spend(4)

    fake.clock.timed("rest of the step", all_of)()
    spent = {stage: (took.wall_s, took.own_cpu_s) for stage, took in fake.clock.times().items() if took.wall_s}
    assert spent == {"pack": (16, 8), "round trip of apply": (2, 1), "rest of the step": (4, 2)}


def test_a_generator_counts_while_it_runs_also_where_it_fails() -> None:
    fake = FakeTime()

    def numbers(last: int) -> Iterator[int]:
        fake.spend(2)
        yield from range(last)
        fake.spend(4)
        if not last:
            raise KeyError("nothing")

    timed = fake.clock.timed("pack", numbers)
    assert list(timed(3)) == [0, 1, 2]
    with pytest.raises(KeyError, match="nothing"):
        timed(0)
    assert fake.clock.times()["pack"].wall_s == 12


@pytest.mark.parametrize(("name", "better"), [(name, 2.0 if goal.at_least else 0.5) for name, goal in GOALS.items()])
def test_goals_are_judged_in_their_direction(name: str, better: float) -> None:
    goal = GOALS[name].value
    for value, met in ((goal, True), (goal * better, True), (goal / better, False)):
        assert judged({name: value, "something else": 1.0}) == {name: {"goal": goal, "value": value, "met": met}}


def test_every_stage_of_a_batch_is_a_function_that_is_there() -> None:
    with stage_clock() as clock:
        assert set(clock.times()) == set(STAGES)
