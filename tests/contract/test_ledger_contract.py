"""What a hook is owed of an outbox is kept alike by every store of a state, and never lost between two processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_calib.alerts.acknowledgement import FIELD, Acknowledged, acknowledge, acknowledged
from stream_calib.alerts.delivery_ledger import Ledger
from stream_calib.alerts.delivery_record import GIVEN_UP, field_of, given_up_of, owed_of
from stream_calib.alerts.outbox import DROPPED, LIST, PASSED, SENT, confirm, drop_read, unsent, waiting
from stream_calib.alerts.silence import Silences
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit, StateStore
from tests.unit.alerts.receivers import KEY, OTHER, event
from tests.windows.backends import BACKENDS, RedisBackend, redis_backend

__all__ = ["redis_backend"]

HOOK = "ops"


@pytest.fixture(params=BACKENDS[:2])  # a cluster keeps it in one slot, as all of a state
def state(request: pytest.FixtureRequest) -> Iterator[StateStore]:
    if request.param == "memory":
        yield MemoryState()
    else:
        yield RedisBackend(request.getfixturevalue(f"{request.param}_client")).state()


def ledger(state: StateStore, now_ms: int = 0) -> Ledger:
    """As a process that has just begun."""
    made = Ledger(state, HOOK, lambda alert: alert.severity != "info")
    refresh(state, made, now_ms)
    return made


def refresh(state: StateStore, one: Ledger, now_ms: int = 0) -> None:
    one.refresh(state.read([SENT, DROPPED, PASSED, FIELD, field_of(HOOK)]), now_ms)


def test_it_is_the_same_for_the_next_process(state: StateStore) -> None:
    events = [event("open"), event("update", number=1), event("open", "label_outage", number=2)]
    first = ledger(state)
    assert first.take(events, Acknowledged(), 5)
    assert first.telling(first.owed[:2])
    first.failed(first.owed[:2], -1, "503", 9)
    assert first.delivered(first.owed[2:])
    second = ledger(state)
    assert (second.position, second.told) == (3, {"m/1:psi": 0, "m/1:label_outage": 0})
    assert second.owed == first.owed
    assert [(o.number, o.alert, o.taken_ms, o.failed_ms) for o in second.owed] == [
        (0, events[0], 5, 9),
        (1, events[1], 5, 9),
    ]
    second.rejected(second.owed, "404", 11)
    assert ledger(state).owed == owed_of(state, HOOK) == []
    assert ledger(state).told == {"m/1:label_outage": 0}
    number, given_up = given_up_of(state)
    assert (number, [(g.hook, g.reason, g.detail, g.time_ms) for g in given_up]) == (
        2,
        [(HOOK, "rejected", "404", 11)] * 2,
    )


def test_a_change_that_comes_too_late_is_not_made(state: StateStore) -> None:
    first, second = ledger(state), ledger(state)
    everything = Acknowledged()
    assert first.take([event("open")], everything, 1)
    assert not second.take([event("open")], everything, 1)
    assert not second.telling(second.owed or first.owed)
    refresh(state, second)
    assert (second.position, second.owed) == (1, first.owed)
    assert second.telling(second.owed)
    assert not first.delivered(first.owed)
    refresh(state, first)
    assert first.delivered(first.owed)
    refresh(state, second)
    assert second.owed == []


def test_entries_that_were_dropped_or_are_over_are_passed_and_what_is_open_is_told(state: StateStore) -> None:
    state.commit(Commit(appends={LIST: [event("open").encode()]}))
    one = ledger(state)
    events = [event("open" if number % 2 else "close", "label_outage", number) for number in range(1, 2_100)]
    state.commit(Commit(appends={LIST: [one.encode() for one in events]}))
    while (found := unsent(state, state.read([SENT])[SENT], 1_000)) is not None:
        assert confirm(state, found)
    drop_read(state, [2_100])
    assert int(state.read([DROPPED])[DROPPED] or 0) == 1_100
    refresh(state, one, 7)
    assert one.position == 2_100
    assert [(o.alert.dedup_key, o.number, o.taken_ms) for o in one.owed] == [
        ("m/1:psi", -1, 7),
        ("m/1:label_outage", -1, 7),
    ]


def test_the_end_of_what_a_hook_was_told_of_is_told_though_it_was_away_for_long(state: StateStore) -> None:
    one = ledger(state)
    one.take([event("open"), event("open", "lag", number=1)], Acknowledged(), 0)
    one.delivered(one.owed[:1])
    entries = [event("open"), event("open", "lag", number=1)]
    entries += [event("open" if n % 2 else "close", "label_outage", n) for n in range(2, 2_101)]
    entries += [event("close", number=2_101), event("close", "lag", number=2_102), event("close", "psi", 2_103, OTHER)]
    state.commit(Commit(fields={SENT: "2104"}, appends={LIST: [entry.encode() for entry in entries]}))
    drop_read(state, [2_104])
    back = ledger(state, 7)
    assert back.position == 2_104
    assert [(o.alert.kind, o.alert.state, o.number) for o in back.owed] == [
        ("lag", "open", 1),
        ("psi", "close", -1),
        ("lag", "close", -1),
    ]


def test_what_a_hook_has_not_read_is_not_dropped(state: StateStore) -> None:
    for number in range(21):
        entries = [event("update", number=100 * number + n).encode() for n in range(100)]
        state.commit(Commit(fields={SENT: str(100 * number + 100)}, appends={LIST: entries}))
    drop_read(state, [1_999, 2_100])
    assert len(state.entries(LIST, 0)) == 2_100
    drop_read(state, [2_000, 2_100])
    assert len(state.entries(LIST, 0)) == 1_100
    assert waiting(state) == 0


def test_into_a_state_that_was_wiped_nothing_is_written_before_it_is_read_anew() -> None:
    state = MemoryState()
    one = ledger(state)
    one.take([event("open", number=number, subject=str(number)) for number in range(2)], Acknowledged(), 0)
    vars(state).update(vars(MemoryState()))
    first, second = one.owed
    assert not one.delivered([first])
    assert not one.delivered([second])
    refresh(state, one)
    assert (one.position, one.owed) == (0, []), "the first events of the new outbox are not behind it"


def test_of_what_was_given_up_the_newest_stay(state: StateStore) -> None:
    one = ledger(state)
    events = [event("open", number=number, subject=str(number)) for number in range(250)]
    one.take(events, Acknowledged(), 0)
    one.rejected(one.owed, "no", 1)
    number, given_up = given_up_of(state)
    assert (number, len(given_up)) == (250, 200)
    assert given_up[-1].alert["pane"] == 249
    assert len(state.entries(GIVEN_UP, 0)) == 200


def test_a_record_that_cannot_be_read_holds_nothing_back(state: StateStore) -> None:
    one = ledger(state)
    one.take([event("open")], Acknowledged(), 0)
    assert len(owed_of(state, HOOK)) == 1
    state.commit(Commit(fields={FIELD: "{", "silences": "{", field_of(HOOK): "0:9"}, blobs={field_of(HOOK): b"{"}))
    begun_anew = ledger(state)
    assert (begun_anew.position, begun_anew.owed) == (0, [])
    assert acknowledged(state) == {}
    assert Silences(state).at(0) == []


def test_silences_have_numbers_of_their_own_and_end(state: StateStore) -> None:
    silences = Silences(state)
    assert silences.at(0) == []
    first = silences.add("m", None, 100, "ann", "x", 0)
    second = silences.add(None, "psi", 200, "bo", "y", 1)
    assert (first.id, second.id) == (1, 2)
    assert silences.at(99) == [first, second]
    assert silences.at(100) == [second]
    assert silences.end(1, 150) is None
    assert silences.end(2, 150) == second
    assert silences.at(0) == []
    assert silences.add(None, None, 300, "ann", "z", 150).id == 3


def test_an_acknowledgement_ends_with_the_opening_that_it_was_given_for(state: StateStore) -> None:
    opened = event("open")
    acknowledge(state, opened, 1, "ann", "on it", 5)
    acknowledge(state, event("open", "label_outage"), 2, "bo", "too", 6)
    found = Acknowledged.decode(state.read([FIELD])[FIELD])
    assert found.next == 1
    assert set(acknowledged(state)) == {"m/1:psi", "m/1:label_outage"}
    # The one before it does not end it, nor does an update; its own close does.
    assert found.after(0, [event("close")]).by_key == found.by_key
    left = found.after(1, [event("update"), event("close"), event("open")])
    assert (left.next, set(left.by_key)) == (4, {"m/1:label_outage"})
    assert [found.mutes(number, event("update")) for number in (0, 1)] == [False, True]
    assert not found.mutes(1, event("update", severity="critical"))
    assert not found.mutes(1, event("open"))
    assert Acknowledged().encode() == ""


def test_the_field_of_a_model_key_tells_of_no_other_hook(state: StateStore) -> None:
    one, other = (Ledger(state, name, lambda _: True) for name in ("a", "b"))
    for made in (one, other):
        made.refresh(state.read([SENT, DROPPED, PASSED, field_of("a"), field_of("b")]), 0)
    one.take([event("open", key=KEY)], Acknowledged(), 0)
    assert [len(owed_of(state, name)) for name in ("a", "b")] == [1, 0]
