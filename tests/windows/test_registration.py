"""Inputs on record: added under a running model key, who knows fewer is refused; where a new key starts. Over both
stores; times are seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_calib.errors import GenerationMismatchError, StateError, StateUnavailableError, TopicRecreatedError
from stream_calib.windows.closer import Closer
from stream_calib.windows.input_batch import EMPTY_LABELS, Records
from stream_calib.windows.intake import Intake
from stream_calib.windows.new_model import starts_beside
from stream_calib.windows.registration import claim_fusion, claim_topics, inputs_of, recorded_inputs, register_inputs
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import Advance, Entry, Inputs, Mark, ReadGuard, ShardCall, ShardStore
from stream_calib.windows.state_store import Commit, StateStore
from tests.windows.backends import Backend, backend
from tests.windows.deciders import ChainDecider
from tests.windows.join import PANE_0, SETTINGS, L, S, at, block, clock, label
from tests.windows.records import Item, batch, records

__all__ = ["backend"]
S1, L1 = "s:b:1", "l:t:1"
OLD = {S: Mark(0, None), L: Mark(0, None)}
NEW = {**OLD, S1: Mark(7, None), L1: Mark(9, None)}


class Key:
    """One model key with two shards."""

    def __init__(self, backend: Backend) -> None:
        self.shards: ShardStore = backend.shards(2, SETTINGS)
        self.state: StateStore = backend.state()
        self.intake = Intake(self.shards, lambda: self.register(OLD))
        self.closer = Closer(self.shards, self.state, lambda first: ChainDecider(first, 10**6))

    def register(self, starts: dict[str, Mark]) -> Inputs:
        return register_inputs(self.shards, self.state, starts)

    def write(self, key: str, *items: Item) -> None:
        """To the end of the input, as a worker does."""
        made = batch(key, items, self.intake.restart(key), 2, SETTINGS)
        assert self.intake.apply([made]) == {}

    def run(self, seconds: float) -> None:
        """Clocks of the old inputs to there, and all panes that can be."""
        for key in OLD:
            self.write(key, clock(seconds))
        while self.closer.advance():
            pass

    def cursor(self, name: str) -> int:
        return int(self.state.read((name,))[name] or 0) - PANE_0


@pytest.fixture
def key(backend: Backend) -> Key:
    """With panes up to 4 closed and up to 2 matured: the watermarks are at 57 and 56 s."""
    made = Key(backend)
    made.write(S, block(("a", 4)), block(("b", 12)))
    made.write(L, label("a", 5))
    made.run(60)
    assert (made.cursor("closed"), made.cursor("matured")) == (4, 3)
    return made


def test_an_added_input_starts_at_its_position_with_a_clock_of_its_own(key: Key) -> None:
    assert key.register(NEW) == inputs_of(NEW)
    marks = [p.marks for p in key.shards.progress()]
    # Scores: the watermark (57 s) + the lateness. Labels: the end of the last matured pane + horizon + lateness.
    assert {m[S1] for m in marks} == {Mark(7, at(60), at(60))}
    assert {m[L1] for m in marks} == {Mark(9, at(40 + 15 + 4), at(59))}
    assert recorded_inputs(key.state, 4)[S1] == Mark(7, at(60), at(60))


def test_registering_again_keeps_the_first_word(key: Key) -> None:
    key.register(NEW)
    before = key.shards.progress()
    key.register({i: Mark(mark.next + 50, at(99)) for i, mark in NEW.items()})
    assert key.shards.progress() == before
    assert key.register(OLD) == inputs_of(NEW), "also those that this process does not see"


def test_before_the_first_event_an_added_input_has_no_clock(backend: Backend) -> None:
    key = Key(backend)
    key.register(NEW)
    assert {p.marks[S1] for p in key.shards.progress()} == {Mark(7, None)}


def test_a_shard_refuses_whoever_knows_fewer_inputs(key: Key) -> None:
    next_of = key.shards.progress()[0].marks[S].next
    call = ShardCall(0, {S: Advance(next_of, next_of + 1, at(61))}, EMPTY_ROWS, EMPTY_LABELS)
    guard = ReadGuard(inputs_of(OLD), matured=False)
    assert key.shards.read_rows(0, PANE_0 + 4, guard) is not None
    key.shards.register({}, inputs_of(NEW))
    assert key.shards.apply([call], inputs_of(OLD)) != [None]
    assert key.shards.read_rows(0, PANE_0 + 4, guard) is None
    assert key.shards.read_counters(0, PANE_0 + 4, guard) is None
    assert key.shards.remove(0, PANE_0 + 2, ReadGuard(inputs_of(OLD), matured=True)) is False
    assert key.shards.progress()[0].marks[S].next == next_of
    # With all of them, the new ones without a clock yet: it applies, and reads wait.
    assert key.shards.apply([call], inputs_of(NEW)) == [None]
    assert key.shards.read_rows(0, PANE_0 + 4, ReadGuard(inputs_of(NEW), matured=False)) is None


def test_a_shard_that_does_not_know_an_idle_input_waits_until_it_does(key: Key) -> None:
    """Rolled back to before the input was added: it has no clock to say where the input begins."""
    guard = ReadGuard(inputs_of(NEW), matured=True, excluded={L1: 0})
    pane = PANE_0 + 3
    without_score = replace(guard, inputs=inputs_of({**OLD, L1: Mark(0, None)}))
    for number in range(2):
        assert key.shards.read_counters(number, pane, without_score) is None
        assert key.shards.remove(number, PANE_0 + 2, without_score) is False
    key.shards.register({L1: Mark(0, at(59)), S1: Mark(0, at(60))}, inputs_of(NEW))
    for number in range(2):
        found = key.shards.read_counters(number, pane, guard)
        assert found is not None
        assert found.cut == {L1: 0}
        assert found.entries[L1] == Entry(pane, 0, at(59))


def test_a_worker_that_knows_fewer_learns_the_others_from_the_record(key: Key) -> None:
    key.register(NEW)
    assert key.intake.inputs == inputs_of(OLD)
    key.write(S, clock(70))
    assert key.intake.inputs == inputs_of(NEW)


def test_a_worker_waits_while_another_one_registers(key: Key) -> None:
    key.shards.register({}, inputs_of(NEW))
    with pytest.raises(StateUnavailableError, match="adding a partition"):
        key.write(S, clock(70))


def test_while_an_input_is_put_on_record_no_watermark_moves(key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what the input brings could belong to a pane that is closed by then, or join a label that was let go."""
    commit = key.state.commit

    def in_between(change: Commit) -> bool:
        monkeypatch.undo()
        with pytest.raises(StateUnavailableError):
            key.run(95)
        while key.closer.advance():
            pass
        return commit(change)

    monkeypatch.setattr(key.state, "commit", in_between)
    key.register(NEW)
    assert key.cursor("closed") == 4
    assert {p.marks[S].clock_ms for p in key.shards.progress()} == {at(60)}
    assert {p.marks[S1].clock_ms for p in key.shards.progress()} == {at(60)}


@pytest.mark.parametrize("cursor", ["closed", "matured"])
def test_no_cursor_moves_over_an_input_that_was_added_since_the_panes_were_read(
    key: Key, cursor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards refuse a closer that knows fewer inputs, but this one had read them before."""
    before = key.cursor(cursor)
    for input_key in OLD:
        key.write(input_key, clock(100))
    register_before_commit_of(cursor, key, monkeypatch)
    key.closer.advance()
    assert recorded_inputs(key.state, 4).keys() == NEW.keys()
    assert key.cursor(cursor) == before


def test_the_first_pane_waits_for_an_input_that_was_added_since_the_clocks_were_read(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Key(backend)
    key.write(S, block(("a", 4)))
    register_before_commit_of("first_pane", key, monkeypatch)
    key.closer.advance()
    assert recorded_inputs(key.state, 4).keys() == NEW.keys()
    assert key.state.read(("first_pane",)) == {"first_pane": None}


def register_before_commit_of(field: str, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process adds inputs between what the closer reads and its next commit of that field."""
    commit = key.state.commit

    def in_between(change: Commit) -> bool:
        if field in change.fields:
            monkeypatch.undo()
            key.register(NEW)
        return commit(change)

    monkeypatch.setattr(key.state, "commit", in_between)


def test_the_closer_waits_for_the_clock_of_an_added_input(key: Key) -> None:
    key.register(NEW)
    key.run(100)
    assert key.cursor("closed") == 4
    key.intake.register()
    key.write(S1, clock(83))
    key.run(100)
    assert key.cursor("closed") == 7


def test_a_shard_that_is_wiped_reads_an_added_input_from_its_start(backend: Backend, key: Key) -> None:
    """Rows in the pane that the first clock had reached already."""
    key.register(NEW)
    key.intake.register()
    key.write(S1, block(("c", 61), ("d", 62), ("e", 63)), block(("f", 64)), clock(110))
    key.write(L1, clock(110))
    key.run(110)
    assert key.cursor("matured") == 8
    backend.put_shard(key.shards, 0, None)
    key.register(NEW)
    # Pane 5 is the oldest that is still needed; the added input was in pane 6 when it began.
    assert key.shards.progress()[0].marks[S1][:2] == (7, at(60))


def test_a_record_that_was_lost_is_made_again_from_the_shards(backend: Backend, key: Key) -> None:
    before = backend.copy_state(key.state)
    key.register(NEW)
    key.intake.register()
    key.write(S1, clock(90))
    backend.put_state(key.state, before)
    assert key.register(NEW) == inputs_of(NEW)
    assert recorded_inputs(key.state, 4)[S1] == Mark(7, at(60), at(60))


def test_counts_of_another_fusion_are_refused(backend: Backend) -> None:
    state = backend.state()
    claim_fusion(state, "a/1=0.5 b/1=0.5")
    claim_fusion(state, "a/1=0.5 b/1=0.5")
    with pytest.raises(GenerationMismatchError, match=r"as a/1=0.5 b/1=0.5, .* fuses a/1=1; .* give fusion.version"):
        claim_fusion(state, "a/1=1")


def test_a_topic_may_be_added_and_no_other_change_is_allowed(backend: Backend) -> None:
    state = backend.state()
    claim_topics(state, {"blocks": "1", "labels": "2"})
    claim_topics(state, {"blocks": "1", "labels": "2", "live": "3"})
    for topics in ({"blocks": "1", "labels": "2"}, {"blocks": "9", "labels": "2", "live": "3"}, {"other": "4"}):
        with pytest.raises(TopicRecreatedError):
            claim_topics(state, topics)
    claim_topics(state, {"blocks": "1", "labels": "2", "live": "3"})


# --- a new model key


def test_a_new_key_starts_at_the_others_scores_and_at_the_labels_of_their_oldest_kept_pane(key: Key) -> None:
    found = starts_beside([(key.shards, key.state)])
    assert found[S] == Mark(3, at(60), at(60))
    # Panes 2 and 3 are kept; the labels' clock reached pane 2 with the record that brought it to 60 s.
    assert found[L] == Mark(1, at(5), at(5))


def test_beside_several_keys_it_starts_at_the_least(backend: Backend, key: Key) -> None:
    other = Key(backend)
    other.write(S, block(("x", 2)))
    assert starts_beside([(key.shards, key.state), (other.shards, other.state)]) == {
        S: Mark(1, at(2), at(2)),
        L: Mark(0, None, None),
    }


def test_beside_none_nothing_is_known() -> None:
    assert starts_beside([]) == {}


# --- what a key that is ahead lacks


def test_records_since_a_position_are_those_that_are_left() -> None:
    items: list[Item] = [block(("a", 1), ("b", 2)), clock(3), block(("c", 4)), clock(5)]
    whole: Records = records("s", items, start=10, gap=2)
    assert whole.since(10) is whole
    for position in (11, 12, 13, 14, 17, 18):
        left = whole.since(position)
        rest = [item for item, at_position in zip(items, (10, 12, 14, 16), strict=True) if at_position >= position]
        expected = records("s", rest, start=18 - 2 * len(rest), gap=2)
        assert (left.start, left.end) == (position, 18)
        for name in ("position", "append_time_ms", "row_record", "clock_record", "clock_time_ms"):
            np.testing.assert_array_equal(getattr(left, name), getattr(expected, name), name)
        np.testing.assert_array_equal(left.rows.fingerprint, expected.rows.fingerprint)


def test_an_input_on_record_that_cannot_be_read_is_a_damaged_state(backend: Backend) -> None:
    state = backend.state()
    state.commit(Commit(fields={"inputs": "1"}, appends={"inputs": [b"{garbage"]}))
    with pytest.raises(StateError, match="`inputs` cannot be read"):
        recorded_inputs(state, 1)
