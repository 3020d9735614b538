"""The join in columns says at every moment what the plain one says, whatever comes in which batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import PaneGoneError
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.shard_store import LABEL_CLASSES, ReadGuard, ScoreRows
from stream_calib.windows.sorted_runs import Run, SortedRuns
from stream_calib.windows.walk import winners
from tests.oracle.offline import Clock, End, Label, Score
from tests.windows.join import PANE_0, SETTINGS, Join, at, block
from tests.windows.join import label as dated
from tests.windows.logs import settings_with
from tests.windows.records import Block, Item

PANES = 9
SCORES, LABELS = ("s:b:0", "s:b:1"), ("l:t:0", "l:t:1")
TIMES = st.integers(0, 60).map(float)
IDS = st.sampled_from("abcdef")


class Step(NamedTuple):
    what: str
    """`write` or `remove`."""
    key: str
    items: tuple[Item, ...]


def score(event_id: str, seconds: float, value: float, attribute: str) -> Score:
    return Score(event_id, at(seconds), value, (attribute,))


def label(event_id: str, seconds: float, value: int | None, taken_s: float, tombstone: bool) -> Label:
    return Label(event_id, None if tombstone else at(seconds), None if tombstone else value, at(taken_s))


scores = st.builds(score, IDS, TIMES, st.sampled_from([0.2, 0.6]), st.sampled_from("xy"))
blocks = st.builds(
    Block, st.lists(scores, min_size=1, max_size=4).map(tuple), st.sampled_from(["", "v1", "v2"]), st.just(0.5)
)
clocks = TIMES.map(lambda seconds: Clock(at(seconds)))
labels = st.builds(label, IDS, TIMES, st.sampled_from([0, 1, None]), TIMES, st.sampled_from([False] * 9 + [True]))
steps = st.lists(
    st.one_of(
        st.builds(Step, st.just("write"), st.sampled_from(SCORES), st.lists(blocks | clocks, max_size=3).map(tuple)),
        st.builds(Step, st.just("write"), st.sampled_from(LABELS), st.lists(labels | clocks, max_size=4).map(tuple)),
        st.just(Step("remove", "", ())),
    ),
    max_size=25,
)


def columns_of(rows: ScoreRows) -> list[tuple[object, ...]]:
    served_by = [rows.snapshots[i] for i in rows.snapshot_index.tolist()]
    columns = (rows.fingerprint, rows.event_time_ms, rows.score, rows.signature, rows.unit_bucket, rows.served)
    return sorted(zip(*(c.tolist() for c in columns), served_by, strict=True))


def said(join: Join, excluded: bool) -> list[object]:
    """Everything that the store answers."""
    store = join.store
    found: list[object] = [store.progress(), store.counts_after(PANE_0 + 2), store.counts_before(PANE_0 + 3)]
    ends = dict.fromkeys(LABELS[:1], 0) if excluded else {}
    for shard in range(store.count):
        for pane in range(PANE_0, PANE_0 + PANES):
            found.append(pane_of(join, shard, pane, ReadGuard(join.inputs, False)))
            found.append(pane_of(join, shard, pane, ReadGuard(join.inputs, True, ends)))
    return found


def pane_of(join: Join, shard: int, pane: int, guard: ReadGuard) -> object:
    try:
        read = join.store.read_rows(shard, pane, guard)
        if read is None:
            return None
        rows = winners(read.rows)
        codes = join.store.read_labels(shard, pane, guard, rows.fingerprint, rows.event_time_ms)
        assert codes is not None
        counters = join.store.read_counters(shard, pane, guard)
        return columns_of(read.rows), read.rows.snapshots, read.cut, codes[0].tolist(), codes[1], counters
    except PaneGoneError as error:
        return str(error)


def run(given_steps: Sequence[Step], of: PaneSettings, count: int, look_always: bool, excluded: bool) -> None:
    joins = [Join(made(count, of), scores=2, labels=2) for made in (MemoryShards, ColumnShards)]
    removed = PANE_0 - 1
    for step in given_steps:
        answers: list[object] = []
        for join in joins:
            if step.what == "write":
                answers.append(join.write(step.key, *step.items))
            else:
                answers.append(removal(join, removed + 1, excluded))
        assert answers[0] == answers[1]
        removed += step.what == "remove" and answers[0] == [True] * count
        if look_always:
            assert said(joins[0], excluded) == said(joins[1], excluded)
    for join in joins:
        for key in (*SCORES, *LABELS):
            join.write(key, End())
    assert said(joins[0], excluded) == said(joins[1], excluded)
    for pane in range(removed + 1, PANE_0 + PANES):
        assert removal(joins[0], pane, excluded) == removal(joins[1], pane, excluded) == [True] * count
        assert said(joins[0], excluded) == said(joins[1], excluded)


def removal(join: Join, pane: int, excluded: bool) -> list[bool]:
    guard = ReadGuard(join.inputs, True, {LABELS[0]: 0} if excluded else {})
    recorded = dict.fromkeys(LABEL_CLASSES, 1) if excluded else None
    return [join.store.remove(shard, pane, guard, recorded) for shard in range(join.store.count)]


@pytest.mark.parametrize("broker_clock", [False, True], ids=["event clock", "broker clock"])
@given(steps, st.integers(1, 2), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_all_reads_are_those_of_the_plain_join(
    broker_clock: bool, given_steps: list[Step], count: int, look_always: bool, excluded: bool
) -> None:
    """`look_always`: after every step, else only at the end, so that many batches become one run."""
    patient = replace(settings_with(broker_clock=broker_clock), score_lateness_ms=20_000, label_lateness_ms=30_000)
    run(given_steps, patient, count, look_always, excluded)


def traffic(seed: int) -> list[tuple[str, list[Item]]]:
    """An hour of busy inputs: thousands of ids, a tenth of the scores behind their labels, some of everything twice."""
    r = np.random.default_rng(seed)
    found: list[tuple[str, list[Item]]] = []
    for second in range(0, 200, 2):
        made: dict[str, list[Item]] = {key: [] for key in (*SCORES, *LABELS)}
        for _ in range(20):
            name, when = f"id-{r.integers(0, 20 * second + 20)}", second + float(r.integers(-15, 2_000)) / 1_000
            made[SCORES[r.integers(2)]].append(Block((score(name, when, float(r.random()), "xyz"[r.integers(3)]),)))
            for _ in range(r.integers(0, 3)):
                dated = when + float(r.integers(-9_000, 18_000)) / 1_000
                value = [0, 1, None][r.integers(3)]
                made[LABELS[r.integers(2)]].append(label(name, dated, value, dated, tombstone=False))
        found += made.items()
    return found


@pytest.mark.parametrize("enough", [1, 150, 10_000])
def test_runs_of_all_sizes_say_the_same(enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_calib.windows.column_join._ENOUGH", enough)
    of = replace(SETTINGS, score_lateness_ms=15_000, label_lateness_ms=30_000)
    joins = [Join(made(1, of), scores=2, labels=2) for made in (MemoryShards, ColumnShards)]
    removed, matched = -1, 0
    for key, items in traffic(enough):
        for join in joins:
            join.write(key, *items)
        while (found := [join.try_matured(removed + 1) for join in joins])[0] is not None:
            plain, columns = found
            assert plain is not None
            assert columns is not None
            assert plain.cells.pack() == columns.cells.pack()
            assert replace(plain, cells=columns.cells) == columns
            matched += plain.counts.get("matched", 0)
            removed += 1
            assert [join.remove(removed) for join in joins] == [[True], [True]]
        assert found == [None, None]
    assert removed > 10
    assert matched > 500


@pytest.mark.parametrize("made", [MemoryShards, ColumnShards])
def test_labels_without_a_score_are_forgotten_with_the_next_removal(made: type[MemoryShards]) -> None:
    """Both scores come behind their labels, so these leaked; of the first one nobody knows any more."""
    join = Join(made(1, SETTINGS))
    join.write("s:b:0", block(("other", 1)))
    join.move_clocks(60)
    join.write("l:t:0", dated("a", 56.5, 1))
    assert join.remove(0) == [True]
    join.write("l:t:0", dated("b", 56.5, 1))
    assert join.store.counts_after(PANE_0) == {"labels": 2}
    join.write("s:b:0", block(("a", 57.5), ("b", 57.5)))
    assert join.store.counts_after(PANE_0) == {"labels": 2, "accepted": 2, "label_leaked": 1}


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=12), st.integers(0, 8))
def test_runs_hold_what_was_added(added: list[list[int]], since: int) -> None:
    """Each entry has the number of its addition as its time; half of those before `since` may be dropped."""
    runs, held = SortedRuns(), list[tuple[int, int]]()
    for time, fingerprints in enumerate(added):
        column = np.sort(np.array(fingerprints, dtype=np.uint64))
        runs.add(Run.of(column, (np.full(len(column), time, dtype=np.int64),)), lambda run: run)
        held += [(fingerprint, time) for fingerprint in fingerprints]
    assert len(runs) == len(held)
    assert sorted(entries(runs)) == sorted(held)
    gone = sum(time < since for _, time in held)
    runs.forget(gone, since)
    left = [pair for pair in held if pair[1] >= since]
    assert len(runs) == (len(left) if 2 * gone >= len(held) else len(held))
    assert sorted(pair for pair in entries(runs) if pair[1] >= since) == sorted(left)


def entries(runs: SortedRuns) -> list[tuple[int, int]]:
    wanted = np.arange(31, dtype=np.uint64)
    return [
        (index, int(found.run.columns[0][place]))
        for found in runs.find(wanted)
        for index, place in zip(found.wanted.tolist(), found.place.tolist(), strict=True)
        if int(found.run.fingerprint[place]) == index
    ]
