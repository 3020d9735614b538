"""Parts of the windows on their own: clocks, batches and their shares, rows and entries as bytes, winners, cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from struct import pack, unpack_from
from zlib import compress, decompress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import StateError
from stream_calib.events.identity import shards
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.clocks import NO_CLOCK, judge, least_of_all
from stream_calib.windows.input_batch import LATE, InputBatch, judge_records
from stream_calib.windows.intake import Intake, _cut, concatenate_scores
from stream_calib.windows.join_entry import (
    Version,
    best_label,
    fingerprint_bytes,
    join_buckets,
    label_codes,
    time_bytes,
)
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.pane_record import PaneRecord, chained, decode_record
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.registration import inputs_of
from stream_calib.windows.row_codec import EMPTY_ROWS, decode_rows, encode_rows
from stream_calib.windows.served_sums import Served, ServedClass
from stream_calib.windows.shard_store import Entry, Inputs, Mark, ScoreRows, ShardCall, ShardNotAt
from stream_calib.windows.walk import winners
from tests.oracle.offline import Clock, End, Label, Score, rank
from tests.windows.join import SETTINGS, L, S, at, block, clock, label
from tests.windows.logs import settings_with
from tests.windows.records import Block, Item, batch, records, score_rows

TIMES = st.integers(0, 60)
START = Mark(0, None)


# --- clocks


@given(st.lists(st.tuples(TIMES, TIMES), max_size=20), st.none() | TIMES, st.none() | st.just(5))
def test_an_event_is_judged_by_the_clock_before_it(
    events: list[tuple[int, int]], start: int | None, skew: int | None
) -> None:
    found = judge(
        np.array([t for t, _ in events], dtype=np.int64),
        np.array([a for _, a in events], dtype=np.int64),
        start,
        3,
        skew,
    )
    now = -math.inf if start is None else start
    for i, (time, append) in enumerate(events):
        assert found.clock_before[i] == (NO_CLOCK if now == -math.inf else now)
        skewed = skew is not None and time > append + skew
        late = not skewed and time < now - 3
        assert (found.skewed[i], found.late[i]) == (skewed, late)
        if not skewed and not late:
            now = max(now, time)
        assert found.clock_after[i] == (NO_CLOCK if now == -math.inf else now)


# --- batches


def made(key: str, *items: Item, mark: Mark = START, settings: PaneSettings = SETTINGS) -> InputBatch:
    return batch(key, items, mark, 1, settings)


def test_the_clock_within_a_block_moves_from_row_to_row() -> None:
    found = made(S, block(("a", 1), ("b", 30), ("late", 26.9), ("edge", 27)))
    assert found.scores.event_time_ms.tolist() == [at(1), at(30), at(27)]
    assert found.drop_pane.tolist() == [at(30) // SETTINGS.pane_ms]
    assert found.drop_kind.tolist() == [LATE]
    assert found.mark == Mark(1, at(30))


def test_records_without_rows_keep_clock_and_positions() -> None:
    found = made(L, label("a", 1), Clock(at(0)), label("b", 2), mark=Mark(7, at(1)))
    assert (found.start, found.end, found.mark) == (7, 10, Mark(10, at(2)))
    assert found.row_position.tolist() == [7, 9]
    assert made(L, mark=Mark(7, at(1))).mark == Mark(7, at(1))


def test_an_end_record_moves_the_clock_beyond_every_event() -> None:
    found = made(S, block(("a", 1)), End(), settings=settings_with(skew=True))
    assert found.mark == Mark(2, ENDED_CLOCK_MS)


def test_a_tombstone_takes_the_clock_before_it_and_one_before_any_clock_its_append_time() -> None:
    gone = Label("a", None, None, append_ms=at(3))
    found = made(L, gone, label("b", 10), gone, label("c", 12), gone)
    assert found.labels.event_time_ms.tolist() == [at(3), at(10), at(10), at(12), at(12)]
    assert found.mark.clock_ms == at(12)
    assert found.first_clock_ms == at(10)


def test_a_skewed_record_before_any_clock_counts_where_the_log_took_it() -> None:
    early = Block((Score("a", at(40), 0.5, ("x",), append_ms=at(12)),))
    found = made(S, early, block(("b", 20)), settings=settings_with(skew=True))
    assert found.drop_pane.tolist() == [at(12) // SETTINGS.pane_ms]
    assert (found.mark.clock_ms, found.first_clock_ms) == (at(20), at(20))


def test_entries_are_where_the_clock_first_reached_each_pane() -> None:
    found = made(S, block(("a", 5)), clock(7), block(("b", 38), ("c", 41)), block(("d", 40)), clock(50))
    first = at(0) // SETTINGS.pane_ms
    assert found.entries == [Entry(first, 0, None), Entry(first + 4, 2, at(7)), Entry(first + 5, 4, at(41))]
    assert found.first_clock_ms == at(5)


items = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("abcdefgh"), TIMES), min_size=1, max_size=4).map(lambda rows: block(*rows)),
        TIMES.map(clock),
    ),
    max_size=12,
)


@given(items, st.integers(0, 12))
@settings(max_examples=60)
def test_a_batch_judged_in_two_parts_is_the_batch_judged_at_once(log: list[Item], cut: int) -> None:
    cut = min(cut, len(log))
    whole = batch(S, log, Mark(0, None), 3, SETTINGS)
    first = batch(S, log[:cut], Mark(0, None), 3, SETTINGS)
    second = batch(S, log[cut:], first.mark, 3, SETTINGS)
    assert second.mark == whole.mark
    assert first.entries + second.entries == whole.entries
    assert np.array_equal(np.concatenate([first.row_position, second.row_position]), whole.row_position)
    assert np.array_equal(np.concatenate([first.drop_pane, second.drop_pane]), whole.drop_pane)


@given(items, st.integers(1, 3), st.integers(1, 5))
@settings(max_examples=60)
def test_the_calls_of_a_batch_give_each_shard_each_record_once(log: list[Item], count: int, most: int) -> None:
    """With calls of very few operations, so that a batch needs many."""
    store = MemoryShards(count, SETTINGS)
    store.register({S: Mark(0, None)})
    calls: list[ShardCall] = []
    apply = store.apply

    def noting(sent: object, inputs: object) -> object:
        calls.extend(sent)  # type: ignore[arg-type]  # passed on as they came
        return apply(sent, inputs)  # type: ignore[arg-type]  # as above

    store.apply = noting  # type: ignore[method-assign, assignment]  # an instance of this test's own
    given_batch = batch(S, log, Mark(0, None), count, SETTINGS)
    store.operations_a_call = most
    assert Intake(store, lambda: inputs_of([S])).apply([given_batch]) == {}
    for shard in range(count):
        mine = [call for call in calls if call.shard == shard]
        advances = [call.advances[S] for call in mine]
        assert [a.start for a in advances] == [0, *(a.end for a in advances)][: len(advances)]
        assert advances[-1].end == len(log)
        times = np.concatenate([call.scores.event_time_ms for call in mine])
        assert np.array_equal(times, given_batch.scores.event_time_ms[given_batch.row_shard == shard])
        assert sum(drop.n for call in mine for drop in call.drops) == int((given_batch.drop_shard == shard).sum())
        in_shard = given_batch.row_position[given_batch.row_shard == shard]
        for call in mine:
            assert set(shards(call.scores.fingerprint, count).tolist()) <= {shard}
            start, stop = np.searchsorted(in_shard, [call.advances[S].start, call.advances[S].end])
            assert stop - start <= most or len(set(in_shard[start:stop].tolist())) == 1, "more only of one record"
        assert [e for call in mine for e in call.entries.get(S, ())] == given_batch.entries
    assert all(progress.marks[S].clock_ms == given_batch.mark.clock_ms for progress in store.progress())


@given(st.lists(st.integers(0, 7), max_size=30), st.integers(1, 12))
def test_the_calls_of_a_batch_are_filled_in_order(rows: list[int], most: int) -> None:
    """As few as there can be; every record is in one of them."""

    class Noting(MemoryShards):
        operations_a_call = most

        def apply(self, sent: Sequence[ShardCall], inputs: Inputs) -> list[ShardNotAt | None]:
            calls.extend(sent)
            return super().apply(sent, inputs)

    calls: list[ShardCall] = []
    store = Noting(1, SETTINGS)
    store.register({S: Mark(0, None)})
    numbers = iter(range(sum(rows)))
    log: list[Item] = [block(*((f"id-{i}", i) for i in islice(numbers, n))) if n else clock(0) for n in rows]
    whole = batch(S, log, Mark(0, None), 1, SETTINGS)
    Intake(store, lambda: inputs_of([S])).apply([whole])
    taken = [rows[call.advances[S].start : call.advances[S].end] for call in calls]
    assert [n for call in taken for n in call] == rows
    assert [len(call.scores) for call in calls] == [sum(call) for call in taken]
    assert np.array_equal(
        np.concatenate([whole.scores.fingerprint[:0], *(call.scores.fingerprint for call in calls)]),
        whole.scores.fingerprint,
    )
    assert all(sum(call) <= most or sum(n > 0 for n in call) == 1 for call in taken)
    fewest, left = 0, 0
    for n in rows:
        if n > left:
            fewest, left = fewest + 1, max(most, n)
        left -= n
    assert len([call for call in taken if sum(call)]) == fewest


def test_large_records_share_calls() -> None:
    assert _cut(np.array([140] * 5), 300) == [2, 4, 5]


# --- bytes


def random_rows(seed: int, n: int) -> ScoreRows:
    r = np.random.default_rng(seed)
    return ScoreRows(
        r.integers(0, 2**64, n, dtype=np.uint64),
        r.integers(at(0), at(10), n),
        r.random(n),
        r.integers(0, 2**64, 5, dtype=np.uint64)[r.integers(0, 5, n)],
        r.integers(0, 20, n).astype(np.uint8),
        r.integers(0, 2, n).astype(np.uint16),
        r.integers(0, 2**32, n, dtype=np.uint32),
        ("", "v1") if seed % 2 else ("v2", "v1"),
    )


def same(one: ScoreRows, two: ScoreRows) -> bool:
    columns = ("fingerprint", "event_time_ms", "score", "signature", "unit_bucket", "served")
    versions = [[rows.snapshots[i] for i in rows.snapshot_index.tolist()] for rows in (one, two)]
    return versions[0] == versions[1] and all(np.array_equal(getattr(one, c), getattr(two, c)) for c in columns)


def test_rows_come_back_from_their_bytes() -> None:
    parts = [random_rows(seed, n) for seed, n in enumerate((1, 7, 1_000))]
    assert same(decode_rows([encode_rows(part) for part in parts]), concatenate_scores(parts))
    assert len(decode_rows([])) == 0
    repeated = parts[0].take(np.zeros(1_000, dtype=np.intp))
    assert len(encode_rows(repeated)) < 500
    assert same(decode_rows([encode_rows(repeated)]), repeated)


def test_rows_as_versions_before_wrote_them_come_back() -> None:
    """Their columns deflated row by row."""
    rows = random_rows(3, 50)
    body = decompress(encode_rows(rows)[16:])
    columns, offset = [], 0
    for width in (8, 4, 8, 2, 1, 1, 4):
        columns.append(np.frombuffer(body, "u1", 50 * width, offset).reshape(width, 50).T.tobytes())
        offset += 50 * width
    head = pack("<BI", 1, 50) + encode_rows(rows)[5:16]
    assert same(decode_rows([head + compress(b"".join(columns) + body[offset:])]), rows)


def test_versions_before_refuse_rows_as_they_are_written_now() -> None:
    """They take every form but 0 for deflated row by row, and as many rows as the head says."""
    chunk = encode_rows(random_rows(3, 50))
    form, n = unpack_from("<BI", chunk)
    assert form == 2
    with pytest.raises(ValueError, match="buffer is smaller than requested size"):
        np.frombuffer(decompress(chunk[16:]), "<u8", n)


def test_rows_in_a_form_of_later_versions_are_an_error() -> None:
    with pytest.raises(StateError, match="form 3 is not known; a later version"):
        decode_rows([b"\x03" + encode_rows(random_rows(0, 3))[1:]])


@pytest.mark.parametrize("cut", [1, 5, 17, 40])
def test_damaged_rows_are_an_error(cut: int) -> None:
    chunk = encode_rows(random_rows(0, 3))
    with pytest.raises(StateError, match="damaged"):
        decode_rows([chunk[:cut]])


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**48 - 1))
def test_places_and_times_have_their_bytes(fingerprint: int, time: int) -> None:
    one = np.array([fingerprint], dtype=np.uint64)
    assert fingerprint_bytes(one).tobytes() == fingerprint.to_bytes(8, "big")
    assert join_buckets(one).tolist() == [fingerprint >> 49]
    assert time_bytes(np.array([time])).tobytes() == time.to_bytes(6, "little")


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([None, 0, 1])), max_size=6), st.integers(0, 20))
def test_the_best_label_is_the_oracles(versions: list[tuple[int, int | None]], score_time: int) -> None:
    code = {None: 1, 0: 2, 1: 3}
    joined = [v for v in versions if score_time < v[0] <= score_time + 15]
    best = code[max(joined, key=lambda v: rank(*v))[1]] if joined else 0
    assert best_label([Version(time, code[value]) for time, value in versions], score_time, 15) == best


def test_entries_of_both_forms_give_their_labels() -> None:
    usual = (at(1) * 4 + 3).to_bytes(6, "little") + (5).to_bytes(4, "little")
    none = (at(1) * 4).to_bytes(6, "little") + bytes(4)
    version = at(3).to_bytes(6, "little") + bytes([2]) + (1).to_bytes(4, "little")
    general = b"O" + (1).to_bytes(2, "little") + at(1).to_bytes(6, "little") + version
    found = label_codes([usual, none, general], np.full(3, at(1)), 15_000)
    assert found.tolist() == [3, 0, 2]
    with pytest.raises(StateError, match="1 predictions of the pane have no join entry"):
        label_codes([usual, None], np.full(2, at(1)), 15_000)


def test_a_pane_record_comes_back_from_its_bytes() -> None:
    record = PaneRecord(
        5,
        {"accepted": 3},
        {"": Served(3, ServedClass(), ServedClass(1, 10.0, 0.1, 23.0))},
        {L: {"0": 4}},
        {S: Entry(5, 17, None), L: Entry(5, 4, at(3))},
        1,
        1,
        2,
        chained("", b"x"),
    )
    assert decode_record(record.encode()) == record
    with pytest.raises(StateError, match="cannot be read"):
        decode_record(b"{}")


def test_the_chain_depends_on_every_blob_and_their_order() -> None:
    chains = {chained(chained("", one), two) for one in (b"a", b"b") for two in (b"a", b"b")}
    assert len(chains) == 4
    assert all(len(c) == 64 for c in chains)


# --- winners and cells


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 3), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from(["", "v1"])
        ),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_winners_are_the_smallest_and_do_not_depend_on_the_order(
    rows: list[tuple[str, int, float, str]], random: object
) -> None:
    def won(given_rows: list[tuple[str, int, float, str]]) -> ScoreRows:
        blocks = [Block((Score(i, at(t), s, ("x",)),), snapshot) for i, t, s, snapshot in given_rows]
        return winners(score_rows(blocks))

    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    found = won(rows)
    best = {i: min((at(t), s) for j, t, s, _ in rows if j == i) for i, *_ in rows}
    assert sorted(zip(found.event_time_ms.tolist(), found.score.tolist(), strict=True)) == sorted(best.values())
    assert np.all(found.fingerprint[1:] > found.fingerprint[:-1])
    assert same(found, won(shuffled))


CELL = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3), st.sampled_from([-1, 0, 1]))


@given(st.lists(st.lists(CELL, max_size=8), max_size=4))
def test_cells_of_parts_add_up_to_the_cells_of_the_whole(parts: list[list[tuple[int, int, int, int]]]) -> None:
    def matured(rows: list[tuple[int, int, int, int]]) -> MaturedCells:
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return MaturedCells.count(
            columns[0].astype(np.uint8),
            columns[1].astype(np.uint64),
            columns[2].astype(np.uint16),
            columns[3].astype(np.int8),
        )

    def scored(rows: list[tuple[int, int, int, int]]) -> ScoredCells:
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return ScoredCells.count(columns[1].astype(np.uint64), columns[2].astype(np.uint16))

    whole = [row for part in parts for row in part]
    assert MaturedCells.merge([matured(p) for p in parts]).pack() == matured(whole).pack()
    assert ScoredCells.merge([scored(p) for p in parts]).pack() == scored(whole).pack()
    cells = MaturedCells.unpack(matured(whole).pack())
    assert int(cells.labelled.sum() + cells.unlabelled.sum()) == len(whole)
    assert int(cells.positives.sum()) == sum(value == 1 for *_, value in whole)
    keys = list(zip(cells.unit_bucket.tolist(), cells.signature.tolist(), cells.grid_bin.tolist(), strict=True))
    assert keys == sorted({row[:3] for row in whole})
    assert ScoredCells.unpack(scored(whole).pack()).n.sum() == len(whole)


def test_cells_that_are_not_cells_are_an_error() -> None:
    packed = ScoredCells.count(np.array([1], np.uint64), np.array([1], np.uint16)).pack()
    for blob in (b"", packed[:-3], b"XXXX" + packed[4:]):
        with pytest.raises(StateError, match="packed cells"):
            ScoredCells.unpack(blob)
    with pytest.raises(StateError, match="packed cells"):
        MaturedCells.unpack(packed)


def test_no_rows_make_no_winners() -> None:
    assert len(winners(EMPTY_ROWS)) == 0


def test_judging_no_records_keeps_the_clock() -> None:
    empty = judge_records(S, records("s", [], 5), at(3), 2, SETTINGS)
    assert (empty.mark, empty.entries, empty.first_clock_ms) == (Mark(5, at(3)), [], None)


def test_the_least_of_all_is_known_where_all_are() -> None:
    assert least_of_all([3, 1, 2]) == 1
    assert least_of_all([3, None]) is None
    assert least_of_all([]) is None
