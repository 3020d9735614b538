"""What every implementation of the join must do (windows/shard_store.py). Times in seconds, panes from PANE_0 on."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from stream_calib.errors import PaneGoneError
from stream_calib.windows.input_batch import EMPTY_LABELS, judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.served_sums import Served, ServedClass
from stream_calib.windows.shard_store import Advance, Drop, Entry, Mark, ShardCall, ShardNotAt
from tests.oracle.offline import Clock, End, Label, Score
from tests.windows.backends import Backend, backend
from tests.windows.join import PANE_0, SETTINGS, Join, L, S, at, block, clock, label
from tests.windows.logs import settings_with
from tests.windows.records import Block, label_rows, records, score_rows

__all__ = ["backend"]


@pytest.fixture
def join(backend: Backend) -> Join:
    """One shard, one partition a side."""
    return Join(backend.shards(1, SETTINGS))


@pytest.fixture
def wide(backend: Backend) -> Join:
    """Three shards, two partitions a side."""
    return Join(backend.shards(3, SETTINGS), scores=2, labels=2)


def call(start: int, end: int, clock_ms: int | None, *blocks: Block, key: str = S) -> ShardCall:
    return ShardCall(0, {key: Advance(start, end, clock_ms, clock_ms)}, score_rows(blocks), EMPTY_LABELS)


def refused_at(join: Join, sent: ShardCall) -> dict[str, tuple[int, int | None]]:
    """Where the shard says that it is, for a call that it must refuse."""
    (answer,) = join.store.apply([sent], join.inputs)
    assert isinstance(answer, ShardNotAt)
    return {key: mark[:2] for key, mark in answer.marks.items()}


# --- positions


def test_a_call_is_applied_exactly_at_its_start(join: Join) -> None:
    store, one = join.store, call(0, 5, at(3), block(("a", 3)))
    assert store.apply([one], join.inputs) == [None]
    assert store.progress()[0].marks[S] == Mark(5, at(3), at(3))
    counted = store.counts_after(0)

    behind, ahead = one, call(6, 8, at(9), block(("b", 9)))
    for other in (behind, ahead):
        assert refused_at(join, other) == {S: (5, at(3))}
    assert store.progress()[0].marks[S] == Mark(5, at(3), at(3))
    assert store.counts_after(0) == counted == {"accepted": 1}


def test_where_one_input_does_not_fit_nothing_is_applied(join: Join) -> None:
    advances = {S: Advance(0, 2, at(3)), L: Advance(4, 6, at(3))}
    both = ShardCall(
        0, advances, score_rows([block(("a", 3))]), label_rows([label("a", 4)]), [Drop("label_late", PANE_0, 1)]
    )
    assert refused_at(join, both) == {S: (0, None), L: (0, None)}
    assert join.store.counts_after(0) == {}
    assert join.store.progress()[0].last_pane is None


def test_an_input_that_was_never_registered_is_answered_as_unknown(join: Join) -> None:
    strange = ShardCall(0, {"s:other:0": Advance(0, 1, at(1))}, EMPTY_ROWS, EMPTY_LABELS)
    assert refused_at(join, strange) == {"s:other:0": (0, None)}
    assert "s:other:0" not in join.store.progress()[0].marks


def test_registering_again_changes_nothing(join: Join) -> None:
    join.write(S, clock(5))
    before = join.store.progress()
    join.store.register({S: Mark(99, at(7)), L: Mark(99, at(7))})
    assert join.store.progress() == before
    join.store.register({"l:new:0": Mark(3, at(7))})
    assert join.store.progress()[0].marks["l:new:0"][:2] == (3, at(7))


def test_redelivered_and_overlapping_batches_are_trimmed(wide: Join) -> None:
    wide.write(S, *(block((f"id-{i}", i)) for i in range(9)))
    wide.write(L, *(label(f"id-{i}", i + 1) for i in range(9)))
    for start, stop in ((0, 9), (3, 5), (4, 9)):
        assert wide.deliver(S, start, stop) == {}
        assert wide.deliver(L, start, stop) == {}
    # A worker that stands at an old position brings what is new with what is known.
    wide.append(S, block(("late", 4)), *(block((f"new-{i}", 9)) for i in range(9)))
    wide.append(L, label("late", 3), *(label(f"new-{i}", 9.5) for i in range(9)))
    assert wide.deliver(S, 5, 14) == {}
    assert wide.deliver(S, 0, 19) == {}
    assert wide.deliver(L, 5, 14) == {}
    assert wide.deliver(L, 0, 19) == {}
    counts = {"accepted": 18, "score_late": 1, "labels": 18, "label_late": 1, "matched": 18}
    assert wide.store.counts_after(0) == counts
    assert {p.marks[S].next for p in wide.store.progress()} == {19}
    wide.move_clocks(60)
    for key in ("s:b:1", "l:t:1"):
        wide.write(key, clock(60))
    assert wide.sums(0) == (18, 18, 0)


def test_a_shard_that_was_rolled_back_has_the_input_rewound(backend: Backend) -> None:
    join = Join(backend.shards(2, SETTINGS))
    join.write(S, block(("a", 1), ("b", 1), ("c", 1)))
    copies = [backend.copy_shard(join.store, shard) for shard in range(2)]
    join.write(S, block(("d", 2), ("e", 2), ("f", 2)))
    join.write(S, block(("g", 3)))
    backend.put_shard(join.store, 1, copies[1])

    assert join.write(S, block(("h", 4))) == {S: Mark(1, at(1), at(1))}
    assert join.intake.restart(S) == Mark(1, at(1), at(1))
    assert join.deliver(S, 1, 4) == {}
    assert join.store.counts_after(0) == {"accepted": 8}


def test_shards_at_different_positions_have_the_input_rewound_to_the_least(backend: Backend) -> None:
    join = Join(backend.shards(3, SETTINGS))
    copies = []
    for i in range(4):
        join.write(S, block((f"id-{i}", i)))
        copies.append([backend.copy_shard(join.store, shard) for shard in range(3)])
    for shard, behind in ((0, 2), (1, 0), (2, 1)):
        backend.put_shard(join.store, shard, copies[behind][shard])
    assert join.deliver(S, 4, 4) == {S: Mark(1, at(0), at(0))}


def test_an_empty_batch_finds_a_shard_that_was_rolled_back(backend: Backend) -> None:
    join = Join(backend.shards(2, SETTINGS))
    join.write(S, block(("a", 1)))
    copied = backend.copy_shard(join.store, 0)
    join.write(S, clock(2))
    assert join.deliver(S, 2, 2) == {}
    assert join.store.progress()[1].marks[S] == Mark(2, at(2), at(1))
    backend.put_shard(join.store, 0, copied)
    assert join.deliver(S, 2, 2) == {S: Mark(1, at(1), at(1))}


def test_calls_of_a_large_batch_follow_each_other_without_a_gap(wide: Join) -> None:
    blocks = [block(*((f"id-{i}-{k}", i / 100) for k in range(400))) for i in range(20)]
    wide.write(S, *blocks)
    assert wide.store.counts_after(0) == {"accepted": 8_000}
    wide.move_clocks(40)
    wide.write("s:b:1", clock(40))
    assert wide.sums(0) == (0, 0, 8_000)


# --- predictions


def test_the_same_score_and_label_again(join: Join) -> None:
    """Field case 21."""
    join.write(S, block(("s1", 1)), block(("other", 2)), block(("s1", 1)))
    join.write(L, label("s1", 5), label("s1", 5), label("x", 6), label("s1", 5))
    join.move_clocks(40)
    found = join.matured(0)
    assert join.sums(0) == (1, 1, 1)
    assert found.counts == {"accepted": 3, "winners": 2, "labels": 4, "matched": 3, "label_never_scored": 1}


def test_an_id_is_one_prediction_a_pane(join: Join) -> None:
    join.write(S, block(("s1", 8)), block(("s1", 12)))
    join.write(L, label("s1", 14))
    join.move_clocks(60)
    assert [join.sums(p) for p in (0, 1)] == [(1, 1, 0), (1, 1, 0)]
    assert [join.matured(p).counts.get("matched", 0) for p in (0, 1)] == [0, 1]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_smallest_time_and_raw_score_wins_in_any_order(backend: Backend, order: tuple[int, ...]) -> None:
    join = Join(backend.shards(1, SETTINGS))
    rows = [block(("a", 5), score=0.3), block(("a", 4), score=0.9), block(("a", 4), score=0.7), block(("a", 6))]
    join.write(S, *(rows[i] for i in order))
    join.move_clocks(40)
    expected = Join(backend.shards(1, SETTINGS))
    expected.write(S, block(("a", 4), score=0.7))
    expected.move_clocks(40)
    assert join.scored(0) == expected.scored(0)
    assert join.matured(0).counts == {"accepted": 4, "winners": 1}


@pytest.mark.parametrize("first", [0, 1])
def test_equal_times_and_scores_with_other_attributes_do_not_depend_on_the_order(backend: Backend, first: int) -> None:
    join = Join(backend.shards(1, SETTINGS), scores=2)
    for i in (first, 1 - first):
        join.write(f"s:b:{i}", block(("a", 4), attribute="xy"[i], snapshot="xy"[i]))
    join.move_clocks(40)
    other = Join(backend.shards(1, SETTINGS))
    other.write(S, block(("a", 4), attribute="x"), block(("a", 4), attribute="y"))
    other.move_clocks(40)
    assert join.scored(0) == other.scored(0)


# --- labels

VERSIONS = [
    ([(3, 0), (5, 1)], 1, "the newest wins"),
    ([(3, 1), (5, 0)], 0, "the newest wins"),
    ([(3, 1), (5, None)], None, "a withdrawal wins when it is the newest"),
    ([(3, None), (5, 1)], 1, "a withdrawal can be overridden"),
    ([(5, 0), (5, 1)], 0, "0 before 1 at equal times"),
    ([(5, None), (5, 0)], None, "withdrawn before 0 at equal times"),
    ([(5, None), (5, 1)], None, "withdrawn before 1 at equal times"),
    ([(4, 1), (5, 0), (16, 1)], 1, "the newest of three"),
    ([(4, 1), (5, 0), (16.001, 1)], 0, "what lies beyond the horizon does not count"),
]


@pytest.mark.parametrize(("versions", "best", "why"), VERSIONS)
def test_the_best_version_is_taken_in_any_order(
    backend: Backend, versions: list[tuple[float, int | None]], best: int | None, why: str
) -> None:
    """The score, at 1 s, comes at any place among them; nothing is late because labels come by two partitions."""
    for order in permutations([None, *versions]):
        join = Join(backend.shards(1, SETTINGS), labels=len(versions))
        for item in order:
            if item is None:
                join.write(S, block(("a", 1)))
            else:
                join.write(f"l:t:{versions.index(item)}", label("a", item[0], item[1]))
        join.move_clocks(60)
        expected = (0, 0, 1) if best is None else (1, best, 0)
        assert join.sums(0) == expected, (why, order)
        matched = sum(join.matured(p).counts.get("matched", 0) for p in (0, 1))
        assert matched == sum(t <= 16 for t, _ in versions)


@pytest.mark.parametrize(("versions", "best", "why"), VERSIONS)
def test_the_best_version_is_taken_also_where_no_score_can_come_any_more(
    backend: Backend, versions: list[tuple[float, int | None]], best: int | None, why: str
) -> None:
    """Then a version that is not the best is not held at all."""
    for order in permutations(versions):
        join = Join(backend.shards(1, SETTINGS), labels=len(versions))
        join.write(S, block(("a", 1)), clock(40))
        for item in order:
            join.write(f"l:t:{versions.index(item)}", label("a", item[0], item[1]), label("a", item[0], item[1]))
        join.move_clocks(60)
        assert join.sums(0) == ((0, 0, 1) if best is None else (1, best, 0)), (why, order)
        matched = sum(join.matured(p).counts.get("matched", 0) for p in (0, 1))
        assert matched == 2 * sum(t <= 16 for t, _ in versions)


@pytest.mark.parametrize(
    ("seconds", "joined"), [(0.999, False), (1, False), (1.001, True), (16, True), (16.001, False)]
)
@pytest.mark.parametrize("label_first", [False, True])
def test_a_label_joins_after_the_score_and_up_to_the_horizon(
    join: Join, seconds: float, joined: bool, label_first: bool
) -> None:
    for side in (L, S) if label_first else (S, L):
        join.write(side, block(("a", 1)) if side == S else label("a", seconds))
    join.move_clocks(60)
    assert join.sums(0) == ((1, 1, 0) if joined else (0, 0, 1))
    pane = int(seconds // 10)
    counts = join.matured(pane).counts
    assert (counts["labels"], counts.get("matched", 0)) == (1, int(joined))


def test_an_early_label_waits_for_its_score(join: Join) -> None:
    """Field case 28: the label that arrives first with the later event time."""
    join.write(L, label("a", 8), label("a", 8), clock(14))
    join.write(S, clock(7), block(("a", 6)))
    join.move_clocks(40)
    assert join.sums(0) == (1, 1, 0)
    assert join.matured(0).counts["matched"] == 2


def test_a_label_before_its_score_is_not_joined(join: Join) -> None:
    """Field case 28: the answer that was known when the score was made."""
    join.write(L, label("a", 0.9), label("a", 1))
    join.write(S, block(("a", 1)))
    join.move_clocks(40)
    assert join.sums(0) == (0, 0, 1)
    assert join.matured(0).counts.get("matched", 0) == 0


def test_a_late_label_counts_once_and_an_accepted_one_within_the_grace_is_joined(join: Join) -> None:
    """Field case 20, with the lateness of 4 s: the label at 9 while its partition's clock is at 12, then at 13.001."""
    join.write(S, block(("s1", 0)), block(("s2", 0)), clock(12))
    join.write(L, clock(12), label("s1", 9), clock(13.001), label("s2", 9))
    join.move_clocks(60)
    assert join.sums(0) == (1, 1, 1)
    assert join.matured(0).counts == {"accepted": 2, "winners": 2, "labels": 1, "matched": 1}
    assert join.matured(1).counts == {"label_late": 1}


def test_labels_of_what_was_scored_before_the_first_pane_are_counted(join: Join) -> None:
    join.write(L, label("x", -25), label("y", -5), label("a", 2))
    join.write(S, block(("a", 1)))
    assert join.store.counts_before(PANE_0) == {"labels": 2}
    assert join.store.counts_after(PANE_0 - 1) == {"accepted": 1, "labels": 1, "matched": 1}
    join.move_clocks(60)
    assert join.remove(0) == [True]
    assert join.store.counts_before(PANE_0) == {"labels": 2}


def test_a_new_winner_looks_at_the_held_labels_again(join: Join) -> None:
    """A label beyond the new winner's horizon is no longer joined, one before the old winner's time is now."""
    join.write(S, block(("a", 9), ("b", 9)))
    join.write(L, label("b", 7), label("b", 7), label("a", 22), label("a", 22))
    assert join.store.counts_after(0) == {"accepted": 2, "labels": 4, "matched": 2, "label_leaked": 2}
    join.write(S, block(("a", 6.5), ("b", 6.5)))
    join.move_clocks(60)
    assert join.sums(0) == (1, 1, 1)
    assert [join.matured(p).counts.get("matched", 0) for p in (0, 2)] == [2, 0]


def test_a_label_that_two_predictions_take_is_matched_once(join: Join) -> None:
    join.write(S, block(("a", 9)), block(("a", 11)))
    join.write(L, label("a", 12, 0), label("a", 25, 1))
    join.move_clocks(60)
    assert [join.sums(p) for p in (0, 1)] == [(1, 0, 0), (1, 1, 0)]
    assert [join.matured(p).counts.get("matched", 0) for p in (1, 2)] == [1, 1]


def test_a_tombstone_withdraws_at_its_partitions_clock(join: Join) -> None:
    join.write(S, block(("a", 1), ("b", 1)))
    join.write(L, label("a", 5), label("b", 7), Label("a", None, None), Label("b", None, None))
    before = join.store.progress()[0].marks[L]
    assert before.clock_ms == at(7)
    join.move_clocks(40)
    assert join.sums(0) == (0, 0, 2)
    assert join.matured(0).counts["matched"] == 4


# --- drops and clocks


def test_drops_are_counted_in_the_pane_of_their_partitions_clock(backend: Backend) -> None:
    join = Join(backend.shards(2, settings_with(skew=True)), scores=2)
    now = at(12)
    late = Block((Score("late", at(8.999), 0.5, ("a",), append_ms=now),))
    skewed = Block((Score("skewed", at(17.001), 0.5, ("a",), append_ms=now),))
    fine = Block((Score("edge", at(9), 0.5, ("a",), append_ms=now), Score("ahead", at(17), 0.5, ("a",), append_ms=now)))
    join.write(S, clock(12), late, skewed, fine)
    join.write("s:b:1", block(("elsewhere", 2)))
    join.write(L, clock(12), Label("x", at(7.999), 1, now), Label("x", at(17.001), 1, now), Label("x", at(8), 1, now))
    join.move_clocks(60)
    assert join.matured(0).counts == {"accepted": 2, "winners": 2, "labels": 1, "label_never_scored": 1}
    assert join.matured(1).counts == {
        "accepted": 1,
        "winners": 1,
        "score_late": 1,
        "score_skewed": 1,
        "label_late": 1,
        "label_skewed": 1,
    }


def test_control_records_are_never_skewed(backend: Backend) -> None:
    join = Join(backend.shards(1, settings_with(skew=True)))
    join.write(S, Block((Score("a", at(1), 0.5, ("a",), append_ms=at(1)),)), End())
    assert join.store.progress()[0].marks[S].clock_ms == ENDED_CLOCK_MS


def test_a_pane_closes_and_matures_when_every_clock_has_passed(wide: Join) -> None:
    wide.write(S, block(("a", 1)), clock(100))
    wide.write("s:b:1", clock(12.999))
    assert wide.scored(0) is None
    wide.write("s:b:1", clock(13))
    assert wide.scored(0) is not None
    wide.write("s:b:1", clock(28))
    wide.write(L, clock(100))
    assert wide.try_matured(0) is None
    wide.write("l:t:1", clock(28.999))
    assert wide.try_matured(0) is None
    wide.write("l:t:1", clock(29))
    assert wide.sums(0) == (0, 0, 1)
    assert wide.try_matured(1) is None


def test_each_shard_checks_its_own_clocks(backend: Backend) -> None:
    join = Join(backend.shards(2, SETTINGS))
    join.write(S, block(*((f"id-{i}", 1) for i in range(20))))
    copied = backend.copy_shard(join.store, 1)
    join.move_clocks(60)
    assert join.sums(0) == (0, 0, 20)
    backend.put_shard(join.store, 1, copied)
    assert join.scored(0) is None
    assert join.try_matured(0) is None
    assert join.remove(0) == [True, False]


def test_where_clocks_first_reached_a_pane_is_kept(wide: Join) -> None:
    wide.write(S, clock(1), clock(2), block(("a", 25), ("b", 45)), clock(60))
    wide.write("s:b:1", clock(60))
    wide.write(L, clock(60))
    wide.write("l:t:1", clock(29), clock(60))
    found = wide.matured(0).entries
    assert found[S] == Entry(PANE_0, 0, None)
    for pane in (1, 2):
        assert wide.counters(1, pane) is not None
        assert wide.matured(pane).entries[S] == Entry(PANE_0 + pane, 2, at(2))
    assert wide.matured(2).entries["l:t:1"] == Entry(PANE_0 + 2, 0, None)


def test_an_excluded_input_that_has_not_reached_the_pane_gives_where_it_is(wide: Join) -> None:
    wide.write("l:t:1", clock(5), clock(6))
    for key in (S, "s:b:1", L):
        wide.write(key, clock(60))
    entries = wide.matured(1, {"l:t:1": 2}).entries
    assert entries["l:t:1"] == Entry(PANE_0 + 1, 2, at(6))


def test_progress_says_first_clock_and_last_pane(join: Join) -> None:
    assert join.store.progress()[0].last_pane is None
    join.write(S, block(("a", 12)), block(("b", 11)), block(("c", 37)), clock(90))
    found = join.store.progress()[0]
    assert found.last_pane == PANE_0 + 3
    assert found.marks[S] == Mark(4, at(90), at(12))
    assert found.marks[L] == Mark(0, None, None)
    assert found.removed is None


# --- idle label inputs


def test_an_idle_input_is_left_out_where_the_shard_has_read_to_its_end(backend: Backend) -> None:
    join = Join(backend.shards(2, SETTINGS), labels=2)
    join.write(S, block(*((f"id-{i}", 1) for i in range(20))), clock(60))
    join.write("l:t:1", *(label(f"id-{i}", 5) for i in range(10)))
    copied = backend.copy_shard(join.store, 1)
    join.write("l:t:1", *(label(f"id-{i}", 5, 0) for i in range(10, 16)))
    join.write(L, clock(60))
    assert join.try_matured(0) is None
    assert join.matured(0, {"l:t:1": 16}).cut == {"l:t:1": {"0": 16, "1": 16}}
    found = join.matured(0, {"l:t:1": 16})
    assert (int(found.cells.labelled.sum()), int(found.cells.positives.sum())) == (16, 10)
    assert join.try_matured(0, {"l:t:1": 17}) is None

    behind = Join(join.store, labels=2)
    backend.put_shard(join.store, 1, copied)
    for key in (S, L):
        behind.items[key], behind.marks_at[key] = join.items[key], join.marks_at[key]
        behind.deliver(key, 0, len(join.items[key]))
    assert join.try_matured(0, {"l:t:1": 16}) is None


def test_an_excluded_score_input_does_not_exist(wide: Join) -> None:
    """Score partitions leave the minimum by clock records only."""
    wide.write(S, block(("a", 1)), clock(60))
    wide.write(L, clock(60))
    wide.write("l:t:1", clock(60))
    assert wide.try_matured(0, {"s:b:1": 0}) is None


def test_labels_after_the_cut_do_not_change_what_was_read(backend: Backend) -> None:
    join = Join(backend.shards(1, SETTINGS), labels=2)
    join.write(S, block(("a", 1)), clock(60))
    join.write("l:t:1", clock(5))
    join.write(L, clock(60))
    assert join.matured(0, {"l:t:1": 1}).cut == {"l:t:1": {"0": 1}}
    join.write("l:t:1", label("a", 6))
    moved = join.matured(0, {"l:t:1": 1})
    assert moved.cut == {"l:t:1": {"0": 2}}
    assert int(moved.cells.labelled.sum()) == 1


@pytest.mark.parametrize("moment", ["read_counters", "read_labels"])
def test_a_walk_whose_parts_saw_different_cuts_starts_again(
    join: Join, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The idle input moves on just before one of the parts is read; a pane without rows has no labels to read."""
    idle = Join(join.store, labels=2)
    if moment == "read_labels":
        idle.write(S, block(("a", 1)))
    idle.write(S, clock(60))
    idle.write("l:t:1", clock(5))
    idle.write(L, clock(60))
    reading = getattr(join.store, moment)

    def moved_on(*args: Any) -> Any:
        idle.write("l:t:1", label("a", 6))
        return reading(*args)

    monkeypatch.setattr(join.store, moment, moved_on)
    assert idle.try_matured(0, {"l:t:1": 1}) is None
    monkeypatch.undo()
    assert idle.matured(0, {"l:t:1": 1}).cut == {"l:t:1": {"0": 2}}


# --- removal


def test_a_pane_is_removed_once_it_is_ripe_and_then_answered_as_gone(wide: Join) -> None:
    wide.write(S, *(block((f"id-{i}", i)) for i in range(30)))
    wide.write(L, *(label(f"id-{i}", i + 1) for i in range(30)))
    assert wide.remove(0) == [False] * 3
    wide.move_clocks(100)
    assert wide.remove(0) == [True] * 3
    with pytest.raises(PaneGoneError, match="dropped pane"):
        wide.scored(0)
    with pytest.raises(PaneGoneError):
        wide.try_matured(0)
    assert {p.removed for p in wide.store.progress()} == {PANE_0}
    assert wide.sums(1) == (10, 10, 0)
    assert wide.remove(0) == [True] * 3
    assert wide.sums(1) == (10, 10, 0)
    assert wide.remove(2) == [False] * 3
    assert wide.sums(2) == (10, 10, 0)


def test_predictions_in_later_panes_survive_with_their_labels(join: Join) -> None:
    join.write(S, block(("a", 9)), block(("a", 19)), block(("a", 29)))
    join.write(L, label("a", 10, 0), label("a", 22, 1), label("a", 30, 0))
    join.move_clocks(100)
    assert [join.sums(p) for p in (0, 1, 2)] == [(1, 1, 0), (1, 0, 0), (1, 0, 0)]
    join.remove(0)
    assert [join.sums(p) for p in (1, 2)] == [(1, 0, 0), (1, 0, 0)]
    assert join.matured(2).counts == {"accepted": 1, "winners": 1, "labels": 1, "matched": 1}
    join.remove(1)
    assert join.sums(2) == (1, 0, 0)


def test_nothing_is_left_when_every_pane_was_removed(backend: Backend) -> None:
    join = Join(backend.shards(2, SETTINGS))
    join.write(S, *(block((f"id-{i % 17}", i)) for i in range(60)))
    join.write(L, *(label(f"id-{i % 23}", i + [0, 0.5, 3, 12, 17][i % 5], i % 3 % 2) for i in range(55)), clock(62))
    join.write(S, block(("z", 50)), block(("late", 12)))
    join.write(S, block(("id-1", 57.5)), block(("id-2", 59.5)))
    join.move_clocks(140)
    assert all(backend.size(join.store, shard) for shard in range(2))
    for pane in range(8):
        assert join.remove(pane) == [True, True], pane
    assert join.store.counts_after(0) == {}
    # Panes 8 to 14 have no rows, but clock entries.
    for pane in range(8, 11):
        join.remove(pane)
    join.move_clocks(200)
    for pane in range(11, 15):
        join.remove(pane)
    assert join.store.counts_after(0) == {}


def test_after_a_rollback_a_removed_pane_is_dropped_again(backend: Backend) -> None:
    join = Join(backend.shards(1, SETTINGS))
    join.write(S, *(block((f"id-{i}", i)) for i in range(25)))
    join.move_clocks(100)
    copied = backend.copy_shard(join.store, 0)
    join.remove(0)
    join.remove(1)
    backend.put_shard(join.store, 0, copied)
    join.remove(0)
    assert join.remove(2) == [False]
    assert [join.remove(1), join.remove(2)] == [[True], [True]]


def test_labels_of_removed_panes_leave_nothing_behind(backend: Backend) -> None:
    """An input that was left out of the minimum wakes up after the pane is gone."""
    join = Join(backend.shards(1, SETTINGS), labels=2)
    join.write(S, block(("a", 1)), clock(100))
    join.write("l:t:1", clock(5))
    join.write(L, clock(100))
    assert join.store.remove(0, PANE_0, join.guard({"l:t:1": 1}))
    size = backend.size(join.store, 0)
    join.write("l:t:1", label("a", 6), label("b", 7))
    assert join.store.counts_after(PANE_0) == {"label_after_mature": 2}
    assert backend.size(join.store, 0) == size + 1, "but for that counter"


# --- a wiped shard


def test_a_wiped_shard_starts_again_at_marks_and_answers_old_panes_as_gone(backend: Backend) -> None:
    join = Join(backend.shards(1, SETTINGS))
    join.write(S, *(block((f"id-{i}", i)) for i in range(0, 60, 3)))
    join.write(L, *(label(f"id-{i}", i + 5) for i in range(0, 60, 3)))
    join.move_clocks(120)
    whole = {pane: join.matured(pane) for pane in range(6)}
    scored = {pane: join.scored(pane) for pane in range(6)}
    entries = whole[2].entries
    marks = {key: Mark(entries[key].position, entries[key].clock_ms) for key in (S, L)}

    backend.put_shard(join.store, 0, None)
    assert join.store.progress()[0].marks == {}
    join.store.restart_wiped(0, marks, PANE_0 + 1)
    assert join.store.progress()[0].marks == marks
    assert join.store.progress()[0].removed == PANE_0 + 1
    for key in (S, L):
        join.deliver(key, marks[key].next, len(join.items[key]))
    for pane in (0, 1):
        with pytest.raises(PaneGoneError):
            join.scored(pane)
    # Labels that panes 2 and 3 count may have joined predictions of panes that were ignored.
    for pane in (2, 3):
        assert join.scored(pane) == scored[pane]
        with pytest.raises(PaneGoneError):
            join.try_matured(pane)
    for pane in (4, 5):
        again = join.matured(pane)
        assert (again.cells.pack(), again.counts) == (whole[pane].cells.pack(), whole[pane].counts)
        assert again.entries == whole[pane].entries
    assert [join.remove(pane) for pane in range(2, 7)] == [[True]] * 5
    assert join.store.counts_after(0) == {}


def test_a_wiped_shard_ignores_what_belongs_to_older_panes(backend: Backend) -> None:
    """Out of order, and before its score clock has passed it, so that it would be held."""
    join = Join(backend.shards(1, SETTINGS))
    join.append(S, clock(15), block(("new", 21)), block(("old", 19), ("new", 19.5)), clock(200))
    join.append(L, clock(15), label("new", 22), label("old", 19.5), label("never", 18.5), clock(200))
    join.store = backend.shards(1, SETTINGS)
    join.intake = Intake(join.store, lambda: join.inputs)
    marks = {key: Mark(1, at(15)) for key in (S, L)}
    join.store.restart_wiped(0, marks, PANE_0 + 1)
    join.deliver(L, 1, 4)
    join.deliver(S, 1, 3)
    assert join.store.counts_after(0) == {"accepted": 1, "labels": 1, "matched": 1}
    for key in (S, L):
        join.deliver(key, 1, len(join.items[key]))
    assert join.scored(2) is not None
    for pane in range(2, 15):
        assert join.remove(pane) == [True]
    assert backend.size(join.store, 0) == 2, "but for where the clocks are"


def test_only_a_shard_without_marks_counts_as_wiped(join: Join) -> None:
    join.write(S, block(("a", 1)))
    before = join.store.progress()
    join.store.restart_wiped(0, {S: Mark(7, at(50)), L: Mark(7, at(50))}, PANE_0 + 3)
    assert join.store.progress() == before
    join.move_clocks(60)
    assert join.sums(0) == (0, 0, 1)


# --- holes between positions


def test_positions_may_have_holes(backend: Backend) -> None:
    join = Join(backend.shards(2, SETTINGS))
    found = records("s", [block(("a", 1)), block(("b", 2)), block(("c", 3))], 0, gap=2)
    made = judge_records(S, found, None, 2, SETTINGS)
    assert join.intake.apply([made]) == {}
    assert {p.marks[S].next for p in join.store.progress()} == {6}
    # A reader that stands at the hole after the last record.
    rest = judge_records(S, records("s", [block(("d", 4))], 6, gap=2), at(3), 2, SETTINGS)
    assert join.intake.apply([rest]) == {}
    assert join.intake.apply([made]) == {}
    assert join.store.counts_after(0) == {"accepted": 4}


def test_rows_survive_as_they_came(join: Join) -> None:
    given = [
        Block((Score("a", at(1), 0.25, ("x",)), Score("b", at(2), 1.0, ("y",))), "v1", 0.125),
        Block((Score("c", at(9.999), 0.0, ("x",)),), "", 1.0),
    ]
    join.write(S, *given)
    join.move_clocks(60)
    read = join.store.read_rows(0, PANE_0, join.guard())
    assert read is not None
    rows, wanted = read.rows.take(np.argsort(read.rows.event_time_ms)), score_rows(given)
    for column in ("fingerprint", "event_time_ms", "score", "signature", "unit_bucket", "served"):
        assert np.array_equal(getattr(rows, column), getattr(wanted, column)), column
    versions = [rows.snapshots[i] for i in rows.snapshot_index]
    assert versions == ["v1", "v1", ""]
    assert join.matured(0).served == {
        "v1": Served(2, ServedClass(), ServedClass()),
        "": Served(1, ServedClass(), ServedClass()),
    }


def test_a_clock_record_is_no_input_of_any_class(join: Join) -> None:
    join.write(S, Clock(at(1)), Clock(at(2)))
    join.move_clocks(60)
    assert join.matured(0).counts == {}
