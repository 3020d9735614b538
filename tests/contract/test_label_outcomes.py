"""What becomes of labels, in every implementation of the join: the broker clock, the sample, labels that come after
their pane has matured, what the unmatched ones are. Times in seconds, panes from PANE_0 on."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from stream_calib.events.identity import fingerprints, sampled
from stream_calib.windows.intake import Intake
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.shard_store import Entry, Mark
from tests.oracle.offline import Clock, End, Label, Score, compute
from tests.windows.backends import Backend, backend
from tests.windows.expectation import UNMATCHED, counts_of, without_diagnosis
from tests.windows.join import PANE_0, SETTINGS, Join, L, S, at, block, clock, label
from tests.windows.logs import START_MS, settings_with
from tests.windows.records import Block, oracle_settings

__all__ = ["backend"]

BROKER = settings_with(broker_clock=True)
"""Horizon 15 s, label lateness 4 s: at the clock c the panes that end by c - 19 have matured by it."""
DAY_MS = 86_400_000


def taken(event_id: str, seconds: float | None, append: float, value: int | None = 1) -> Label:
    """A label that the log took at `append`; None: a tombstone."""
    if seconds is None:
        return Label(event_id, None, None, at(append))
    return Label(event_id, at(seconds), value, at(append))


def by_broker(backend: Backend, shards: int = 1, labels: int = 1) -> Join:
    return Join(backend.shards(shards, BROKER), labels=labels)


# --- the broker clock


@pytest.mark.parametrize(
    ("taken_at", "sums", "late"),
    [
        (28.999, (2, 2, 0), False),
        (29, (1, 1, 1), False),
        (38.999, (1, 1, 1), False),
        (39, (0, 0, 2), True),
    ],
)
@pytest.mark.parametrize("label_first", [False, True])
def test_a_label_reaches_the_panes_that_its_partitions_clock_has_not_matured(
    backend: Backend, taken_at: float, sums: tuple[int, int, int], late: bool, label_first: bool
) -> None:
    """The label at 14 is one of the scores at 9 and at 12. It can be held until the score clock has passed it."""
    join = by_broker(backend)
    join.write(L, Clock(at(taken_at)))
    for side in (L, S) if label_first else (S, L):
        join.write(side, block(("a", 9)) if side == S else taken("a", 14, taken_at))
    join.write(S, block(("a", 12)))
    join.move_clocks(80)
    assert tuple(sum(column) for column in zip(join.sums(0), join.sums(1), strict=True)) == sums
    counts = join.matured(1).counts
    assert counts.get("matched", 0) == (not late)
    assert sum(join.matured(pane).counts.get("label_late", 0) for pane in range(5)) == late


def test_of_two_versions_the_newest_within_reach_wins(backend: Backend) -> None:
    """The newer one came by a partition whose clock had matured the pane of the first score."""
    for order in permutations(["scores", "old", "new"]):
        join = by_broker(backend, labels=2)
        join.write("l:t:1", Clock(at(30)))
        for what in order:
            if what == "scores":
                join.write(S, block(("a", 9)), block(("a", 12)))
            elif what == "old":
                join.write(L, taken("a", 14, 14, 0), taken("a", 14, 14, 0))
            else:
                join.write("l:t:1", taken("a", 15, 30, 1), taken("a", 14, 30, 1), taken("a", 15, 30, 1))
        # From now on only what a prediction takes is held.
        join.write(S, clock(30))
        join.write("l:t:1", taken("a", 15, 30, 1))
        join.move_clocks(80)
        assert (join.sums(0), join.sums(1)) == ((1, 0, 0), (1, 1, 0)), order
        assert join.matured(1).counts["matched"] == 6, order
        for pane in range(6):
            assert join.remove(pane) == [True]
        assert join.store.counts_after(PANE_0 - 1) == {}, order


@pytest.mark.parametrize("values", [[0], [0, 1], [0, 0]])
def test_a_label_is_held_with_its_reach(backend: Backend, values: list[int]) -> None:
    """A smaller winner in a pane within reach takes it, one in an earlier pane does not, whenever they come."""
    for order in permutations([("a", 9), ("a", 12), ("a", 11)]):
        join = by_broker(backend)
        join.write(L, Clock(at(30)), *(taken("a", 11.5, 30, value) for value in values))
        for score in order:
            join.write(S, block(score))
        join.move_clocks(80)
        assert (join.sums(0), join.sums(1)) == ((0, 0, 1), (1, 0, 0)), order
        assert without_diagnosis(join.matured(1).counts)["matched"] == len(values), order


def test_a_label_dated_ahead_of_the_broker_clock_is_where_a_rebuilt_shard_must_start(backend: Backend) -> None:
    """Dates only, for example: the label's pane is one that the clock has not reached yet."""
    join = by_broker(backend)
    join.write(L, Clock(at(1)), taken("a", 1.5, 2), taken("a", 35, 3), taken("b", 36, 4), Clock(at(12)), Clock(at(38)))
    join.write(S, block(("a", 24)))
    join.move_clocks(90)
    assert [join.matured(pane).entries[L] for pane in range(4)] == [
        Entry(PANE_0, 0, None),
        Entry(PANE_0 + 1, 2, at(2)),
        Entry(PANE_0 + 2, 2, at(2)),
        Entry(PANE_0 + 3, 2, at(2)),
    ]
    assert join.sums(2) == (1, 1, 0)


def test_a_tombstone_is_dated_where_the_broker_took_it(backend: Backend) -> None:
    join = by_broker(backend)
    join.write(S, block(("a", 1), ("b", 1)))
    join.write(L, taken("a", 5, 2), taken("b", 5, 2), taken("a", None, 6), taken("b", None, 6))
    assert join.store.progress()[0].marks[L] == Mark(4, at(6), at(2))
    join.move_clocks(60)
    assert join.sums(0) == (0, 0, 2)
    assert join.matured(0).counts["matched"] == 4


@pytest.mark.parametrize(
    ("broker_clock", "loaded_on_day", "matched", "late"),
    [(True, 31, 300, 0), (True, 31.999, 300, 0), (True, 32, 290, 9), (False, 31, 11, 289)],
    ids=["broker", "just in time", "a pane too late", "event"],
)
def test_a_month_of_labels_in_reverse_order(
    backend: Backend, broker_clock: bool, loaded_on_day: float, matched: int, late: int
) -> None:
    """Ten scores a day, each labelled three hours later; horizon 30 days, lateness 1 day. Under the broker clock all
    is joined if it is loaded before the oldest pane's end + horizon + lateness; under the event clock what is older
    than the newest label by more than the lateness is late."""
    settings = PaneSettings(DAY_MS, 30 * DAY_MS, 0, DAY_MS, None, 2, broker_clock=broker_clock)
    start = START_MS // DAY_MS * DAY_MS
    append_ms = start + round(loaded_on_day * DAY_MS)
    times = [start + i * DAY_MS // 10 for i in range(300)]
    blocks = [Block((Score(f"id-{t}", t, 0.3, ("a",)),)) for t in times]
    labels = [Label(f"id-{t}", t + 3 * 3_600_000, 1, append_ms) for t in reversed(times)]
    begin = [Clock(append_ms)] if broker_clock else []
    whole = compute([[*(b.scores[0] for b in blocks), End()]], [[*begin, *labels, End()]], oracle_settings(settings))
    assert (whole.totals["labels_matched"], whole.totals["labels_late"]) == (matched, late)

    join = Join(backend.shards(2, settings))
    join.write(S, *blocks, End())
    join.write(L, *begin, *labels, End())
    first = start // DAY_MS
    found = Counter(join.store.counts_after(first + 30))
    for pane in range(first, first + 31):
        counts = join.matured(pane - PANE_0).counts
        assert without_diagnosis(counts) == counts_of(whole.pane(pane))
        found.update(counts)
    assert (found["matched"], found["label_late"], found["winners"]) == (matched, late, 300)


# --- the sample


@pytest.mark.parametrize("broker_clock", [False, True])
def test_unsampled_labels_are_counted_at_their_partitions_clock_and_never_joined(
    backend: Backend, broker_clock: bool
) -> None:
    join = Join(backend.shards(2, settings_with(broker_clock=broker_clock, sample_rate=0.5)))
    ids = [f"id-{i}" for i in range(40)]
    chosen = dict(zip(ids, sampled(fingerprints(ids), 0.5).tolist(), strict=True))
    out, inside = [i for i in ids if not chosen[i]], [i for i in ids if chosen[i]]
    join.write(S, block(*((i, 1) for i in inside)))
    # The first one has no clock before it, so its own counts; one after the other moves the clock.
    join.write(L, taken(out[0], 12, 12), taken(out[1], 23, 23), taken(out[2], 31, 31), taken(out[3], 2, 31.5))
    assert {p.marks[L].clock_ms for p in join.store.progress()} == {at(31.5 if broker_clock else 31)}
    join.write(L, taken(out[4], None, 32), *(taken(i, 2, 32) for i in inside))
    join.move_clocks(90)
    counts = [join.matured(pane).counts for pane in range(4)]
    assert [one.get("label_unsampled", 0) for one in counts] == [0, 2, 1, 1]
    assert sum(one.get("labels", 0) for one in counts) == 0
    assert counts[3]["label_late"] == 1 + len(inside), "what is late is judged first"


# --- labels that come after their pane has matured


def woken(backend: Backend) -> Join:
    """Panes 0 and 1 have been read with the cut 2 on one label partition; nothing was removed yet."""
    join = Join(backend.shards(1, SETTINGS), labels=2)
    join.write(S, block(("a", 1), ("b", 1), ("c", 11)), clock(60))
    join.write("l:t:1", clock(5), label("a", 6))
    join.write(L, clock(60))
    return join


def recorded(join: Join, pane: int) -> dict[str, int]:
    found = join.matured(pane, {"l:t:1": 2})
    assert found.cut == {"l:t:1": {"0": 2}}
    return found.labels_at_cut["0"]


def test_labels_that_come_between_maturing_and_removal_are_counted_in_a_later_pane(backend: Backend) -> None:
    join = woken(backend)
    kept = recorded(join, 0)
    assert kept == {"labels": 1}
    join.write("l:t:1", label("b", 7), label("c", 12), label("b", 7.9), label("b", 8))
    guard = join.guard({"l:t:1": 2})
    assert join.store.remove(0, PANE_0, guard, kept)
    # The score watermark is at 57, so pane 5 cannot have matured. The label at 7.9 is late, in the pane of 12.
    assert join.store.counts_after(PANE_0 + 4) == {"label_after_mature": 2}
    assert join.store.remove(0, PANE_0, guard, kept)
    assert join.store.counts_after(PANE_0 + 4) == {"label_after_mature": 2}
    assert join.store.remove(0, PANE_0 + 1, guard, {})
    assert join.store.counts_after(PANE_0 + 4) == {"label_after_mature": 3, "label_late": 1}


def test_labels_of_a_pane_that_was_dropped_are_counted_in_a_later_one(backend: Backend) -> None:
    join = woken(backend)
    kept = [recorded(join, pane) for pane in (0, 1)]
    guard = join.guard({"l:t:1": 2})
    assert join.store.remove(0, PANE_0, guard, kept[0])
    assert join.store.remove(0, PANE_0 + 1, guard, kept[1])
    join.write("l:t:1", label("b", 7), label("c", 12), label("b", 7.9), label("c", 21))
    # The late one is of the pane of its partition's clock, which is gone too.
    assert join.store.counts_after(PANE_0 + 4) == {"label_after_mature": 2, "label_late": 1}
    join.move_clocks(100)
    join.write("l:t:1", clock(100))
    assert join.matured(2).counts == {"labels": 1, "label_never_scored": 1}
    assert join.matured(5).counts == {"label_after_mature": 2, "label_late": 1}
    for pane in range(2, 7):
        assert join.remove(pane) == [True]
    assert join.store.counts_after(PANE_0 - 1) == {}


def test_labels_before_the_origin_of_a_wiped_shard_are_not_counted_again(backend: Backend) -> None:
    join = Join(backend.shards(1, SETTINGS), labels=2)
    join.append("l:t:1", clock(5), label("a", 6), label("a", 12))
    join.store = backend.shards(1, SETTINGS)
    join.store.restart_wiped(0, {key: Mark(0, at(60)) for key in (S, L)} | {"l:t:1": Mark(1, at(5))}, PANE_0)
    join.intake = Intake(join.store, lambda: join.inputs)
    join.deliver("l:t:1", 1, 3)
    assert join.store.counts_after(PANE_0 - 9) == {"labels": 1}


# --- what the unmatched labels are


def test_unmatched_labels_are_leaked_beyond_the_horizon_or_of_no_score(backend: Backend) -> None:
    join = Join(backend.shards(2, SETTINGS))
    join.write(S, block(("leaked", 6), ("beyond", 6), ("matched", 6)), clock(20))
    join.write(L, label("leaked", 22), label("beyond", 22), label("matched", 21), label("never", 22))
    join.write(L, label("leaked", 23), label("leaked", 23), label("early", 24))
    join.write(S, block(("leaked", 23), ("early", 24)))
    join.move_clocks(90)
    counts = join.matured(2).counts
    diagnosis = {kind: counts[kind] for kind in UNMATCHED}
    assert diagnosis == {"label_leaked": 4, "label_beyond_horizon": 1, "label_never_scored": 1}
    assert (counts["labels"], counts["matched"]) == (7, 1)


def test_a_label_is_leaked_only_until_a_score_is_found_that_it_joins(backend: Backend) -> None:
    join = Join(backend.shards(1, SETTINGS))
    join.write(S, block(("a", 9)))
    join.write(L, label("a", 8), label("a", 8))
    assert join.store.counts_after(0) == {"accepted": 1, "labels": 2, "label_leaked": 2}
    join.write(S, block(("a", 7)))
    assert {k: n for k, n in join.store.counts_after(0).items() if n} == {"accepted": 2, "labels": 2, "matched": 2}
