from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stream_calib.errors import PublicationRefusedError, SnapshotError, SnapshotPinnedError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.decision_log import DecisionLog, Expired, Request, chain
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.snapshot.operator_entries import Pin, Unpin
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.outbox import alarms
from tests.unit.snapshot.documents import level, report, request, structure


class Interrupted(MemoryState):
    """Runs a piece of somebody else's work before the next commits."""

    def __init__(self) -> None:
        super().__init__()
        self.before_commit: list[Callable[[], object]] = []

    def commit(self, change: Commit) -> bool:
        if self.before_commit:
            self.before_commit.pop(0)()
        return super().commit(change)


@pytest.fixture
def state() -> Interrupted:
    made = Interrupted()
    made.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
    assert made.acquire_lease("refit", "w", 1_000) == "1"
    return made


@pytest.fixture
def store(state: Interrupted) -> SnapshotStore:
    return SnapshotStore(state, ModelKey("m", "1"), "g", 1_000, lambda: 77)


def append(state: MemoryState, *entries: Request | Expired, decided: int | None = None) -> None:
    """What the closer does."""
    raw = [e.encode() for e in entries]
    tip = state.read(["tip"])["tip"]
    length = len(state.entries("decisions", 0)) + len(raw)
    fields = {"log_length": str(length), "tip": str(chain(tip, raw))}
    if decided is not None:
        fields["decided"] = str(decided)
    MemoryState.commit(state, Commit(fields=fields, appends={"decisions": raw}))


def published(state: MemoryState, store: SnapshotStore, number: int) -> str:
    parent = store.current()
    append(state, request(f"r{number}", 9 + number, parent), decided=9 + number)
    return store.publish(structure(f"r{number}", parent, rows=number), report(f"r{number}"), "1")


def test_a_publication_moves_everything_at_once(state: Interrupted, store: SnapshotStore) -> None:
    append(state, request("r1", 9))
    version = store.publish(structure("r1"), report("r1"), "1")
    assert store.current() == version
    assert version.startswith("000001-")
    assert store.load(version).structure == structure("r1")
    log = store.log()
    assert log.open_request is None
    assert (log.current_at(9), log.current_at(10)) == (None, version)
    (move,) = store.history()
    assert (move["what"], move["version"], move["before"], move["time_ms"]) == ("publish", version, None, 77)
    (kept,) = store.reports()
    assert (kept.outcome, kept.version) == ("published", version)


def test_sequences_go_on_and_parents_chain(state: Interrupted, store: SnapshotStore) -> None:
    versions = [published(state, store, n) for n in (1, 2, 3)]
    assert [v[:6] for v in versions] == ["000001", "000002", "000003"]
    assert [m["before"] for m in store.history()] == [None, *versions[:2]]


def test_a_history_that_cannot_be_read_is_a_damaged_state(state: Interrupted, store: SnapshotStore) -> None:
    published(state, store, 1)
    state.commit(Commit(appends={"history": [b"{garbage"]}))
    with pytest.raises(StateError, match="`history` cannot be read"):
        store.history()


def test_the_same_candidate_gets_the_same_version_whatever_the_clock(state: Interrupted) -> None:
    append(state, request("r1", 9))
    first = SnapshotStore(state, ModelKey("m", "1"), "g", 1_000, lambda: 5).publish(structure("r1"), report("r1"), "1")
    other = Interrupted()
    other.commit(Commit(fields={"first_pane": "1", "decided": "9", "token:refit": "1"}))
    append(other, request("r1", 9))
    second = SnapshotStore(other, ModelKey("m", "1"), "g", 1_000, lambda: 6).publish(structure("r1"), report("r1"), "1")
    assert first == second
    assert state.blobs([f"snapshot:{first}"]) == other.blobs([f"snapshot:{second}"])


@pytest.mark.parametrize("token", ["0", "2", ""])
def test_a_stale_token_publishes_and_settles_nothing(state: Interrupted, store: SnapshotStore, token: str) -> None:
    append(state, request("r1", 9))
    for act in (
        lambda: store.publish(structure("r1"), report("r1"), token),
        lambda: store.settle(report("r1", "refused"), token),
    ):
        with pytest.raises(PublicationRefusedError, match="lease"):
            act()
    assert store.current() is None
    assert store.reports() == []
    assert store.log().open_request is not None


def test_a_request_is_answered_once(state: Interrupted, store: SnapshotStore) -> None:
    append(state, request("r1", 9))
    store.settle(report("r1", "refused"), "1")
    for act in (
        lambda: store.publish(structure("r1"), report("r1"), "1"),
        lambda: store.settle(report("r1", "failed"), "1"),
        lambda: store.settle(report("unknown", "failed"), "1"),
    ):
        with pytest.raises(PublicationRefusedError, match="not open"):
            act()
    assert len(store.reports()) == 1


def test_an_expired_request_cannot_be_published(state: Interrupted, store: SnapshotStore) -> None:
    append(state, request("r1", 9), Expired(pane=10, request_id="r1"))
    with pytest.raises(PublicationRefusedError):
        store.publish(structure("r1"), report("r1"), "1")


def test_another_parent_is_refused(state: Interrupted, store: SnapshotStore) -> None:
    first = published(state, store, 1)
    published(state, store, 2)
    append(state, request("r3", 12, store.current()), decided=12)
    with pytest.raises(PublicationRefusedError, match="current"):
        store.publish(structure("r3", first), report("r3"), "1")
    store.rollback(first, "ann", "worse")
    with pytest.raises(PublicationRefusedError, match="current"):
        store.publish(structure("r3", store.history()[1]["version"]), report("r3"), "1")


def test_a_move_in_between_is_seen_and_the_change_is_made_again(state: Interrupted, store: SnapshotStore) -> None:
    append(state, request("r1", 9))
    other = SnapshotStore(state, ModelKey("m", "1"), "g", 1_000, lambda: 78)
    state.before_commit = [lambda: other.request_manual("ann", "please")]
    version = store.publish(structure("r1"), report("r1"), "1")
    assert [e.type for e in store.log().entries] == ["request", "manual", "settled"]
    assert store.current() == version


def test_a_request_answered_in_between_is_not_answered_again(state: Interrupted, store: SnapshotStore) -> None:
    append(state, request("r1", 9))
    other = SnapshotStore(state, ModelKey("m", "1"), "g", 1_000, lambda: 78)
    state.before_commit = [lambda: other.settle(report("r1", "failed"), "1")]
    with pytest.raises(PublicationRefusedError):
        store.publish(structure("r1"), report("r1"), "1")
    assert store.current() is None
    assert store.history() == []


def test_entries_name_the_pane_after_the_last_decided(state: Interrupted, store: SnapshotStore) -> None:
    assert store.request_manual("ann", "x") == 10
    state.commit(Commit(fields={"decided": "14"}))
    assert store.request_manual("bob", "y") == 15
    assert [m.actor for m in store.log().manual_at(15)] == ["bob"]


def test_before_the_first_pane_there_is_nothing_to_ask_for() -> None:
    with pytest.raises(StateError, match="nothing has been read"):
        SnapshotStore(MemoryState(), ModelKey("m", "1"), "g", 1_000, lambda: 0).request_manual("ann", "x")


def test_rollback_moves_back_with_actor_and_reason_and_the_log_agrees(state: Interrupted, store: SnapshotStore) -> None:
    first, second = published(state, store, 1), published(state, store, 2)
    state.commit(Commit(fields={"decided": "20"}))
    store.rollback(first, "ann", "complaints")
    assert store.current() == first
    assert (store.log().current_at(20), store.log().current_at(21)) == (second, first)
    assert store.history()[-1] | {"time_ms": 0} == {
        "what": "rollback",
        "version": first,
        "sequence": 1,
        "before": second,
        "pane": 21,
        "actor": "ann",
        "reason": "complaints",
        "request_id": None,
        "time_ms": 0,
    }
    state.commit(Commit(fields={"decided": "21"}))
    assert published(state, store, 13)[:6] == "000003"  # never a number twice


def test_rollback_to_what_was_never_current_is_refused(state: Interrupted, store: SnapshotStore) -> None:
    version = published(state, store, 1)
    with pytest.raises(SnapshotError, match="current"):
        store.rollback(version, "ann", "x")
    with pytest.raises(SnapshotError, match="not in the state store"):
        store.rollback("000009-0123456789ab", "ann", "x")


def test_level_snapshots_resolve_and_share_their_reference(state: Interrupted, store: SnapshotStore) -> None:
    first = published(state, store, 1)
    append(state, request("r2", 11, first), decided=11)
    second = store.publish(level(first, "r2", first), report("r2"), "1")
    resolved = store.load(second)
    assert (resolved.structure_version, resolved.level) == (first, -0.5)
    assert store.reference(second) is store.reference(first)


def test_references_of_long_ago_are_not_kept(state: Interrupted, store: SnapshotStore) -> None:
    versions = [published(state, store, n) for n in range(1, 41)]
    references = [store.reference(v) for v in versions]
    assert len(store._references) < 40
    assert store.reference(versions[-1]) is references[-1]
    assert store.reference(versions[0]).names == references[0].names


def test_failure_alerts_open_once_and_close_with_the_next_publication(state: Interrupted, store: SnapshotStore) -> None:
    for number, outcome in enumerate(["refused", "refused", "failed", "superseded"], 1):
        append(state, request(f"r{number}", 9 + number), decided=9 + number)
        store.settle(report(f"r{number}", outcome, 9 + number), "1")
    published(state, store, 5)
    published(state, store, 6)
    alerts = alarms(state)
    assert [(a.kind, a.state) for a in alerts] == [
        ("refit_refused", "open"),
        ("refit_failed", "open"),
        ("refit_refused", "close"),
        ("refit_failed", "close"),
    ]
    assert len({a.id for a in alerts}) == 4


def test_a_damaged_log_is_noticed(state: Interrupted, store: SnapshotStore) -> None:
    append(state, request("r1", 9))
    state.commit(Commit(fields={"tip": "0" * 64}))
    with pytest.raises(StateError, match="hash"):
        store.log()


def test_a_log_that_went_back_and_on_is_read_anew(state: Interrupted, store: SnapshotStore) -> None:
    reader = LogReader(state)
    append(state, request("r1", 9))
    assert reader.read()[1].open_request == request("r1", 9)
    lost: Sequence[Request] = [request("other", 8)]
    state._lists["decisions"].clear()
    state.commit(Commit(fields={"tip": "", "log_length": "0"}))
    state._fields.pop("tip")
    append(state, *lost)
    _, log = reader.read()
    assert log.open_request == lost[0]
    assert log.length == 1


def test_the_log_refuses_what_contradicts_itself() -> None:
    log = DecisionLog()
    log.extend([request("r1", 9).encode()])
    with pytest.raises(StateError, match="open"):
        log.extend([request("r2", 10).encode()])
    with pytest.raises(StateError, match="not open"):
        DecisionLog().extend([Expired(pane=3, request_id="r1").encode()])
    with pytest.raises(StateError, match="cannot be read"):
        DecisionLog().extend([b'{"type":"request"}'])


# --- pins


def test_nothing_is_published_while_a_version_is_pinned(state: Interrupted, store: SnapshotStore) -> None:
    first = published(state, store, 1)
    assert store.pin(None, "ann", "audit week") == first
    append(state, request("r2", 11, first), decided=11)
    with pytest.raises(SnapshotPinnedError, match=f"ann keeps {first} .audit week.; see `snapshot unpin`"):
        store.publish(structure("r2", first), report("r2"), "1")
    assert store.current() == first
    log = store.log()
    assert log.open_request is not None
    assert log.pin is not None
    assert (log.pin.version, log.pin.actor, log.pin.pane) == (first, "ann", 11)
    store.settle(report("r2", "refused"), "1")
    assert store.log().open_request is None

    assert store.unpin("bob", "audit over") == first
    assert store.log().pin is None
    assert published(state, store, 3) == store.current() != first
    moves = [(m["what"], m["version"], m["actor"], m["reason"]) for m in store.history()]
    assert moves[1:3] == [("pin", first, "ann", "audit week"), ("unpin", first, "bob", "audit over")]


def test_pinning_an_earlier_version_goes_back_to_it_in_one_step(state: Interrupted, store: SnapshotStore) -> None:
    first, _ = published(state, store, 1), published(state, store, 2)
    before = len(state.entries("decisions", 0))
    assert store.pin(first, "ann", "the new one declines too many") == first
    assert store.current() == first
    log = store.log()
    assert (log.current, log.current_at(12)) == (first, first)
    assert [e.type for e in log.entries[before:]] == ["rollback", "pin"]
    assert [m["what"] for m in store.history()] == ["publish", "publish", "rollback", "pin"]
    assert LogReader(state).read()[1].tip == log.tip


def test_a_pin_is_replaced_and_a_rollback_under_it_is_refused(state: Interrupted, store: SnapshotStore) -> None:
    first, second = published(state, store, 1), published(state, store, 2)
    store.pin(None, "ann", "x")
    with pytest.raises(SnapshotError, match="unpin"):
        store.rollback(first, "bob", "y")
    with pytest.raises(SnapshotError, match="pinned already, by ann"):
        store.pin(second, "bob", "y")
    assert store.pin(first, "bob", "y") == first
    pin = store.log().pin
    assert pin is not None
    assert (pin.version, pin.actor) == (first, "bob")


def test_what_cannot_be_pinned_or_unpinned(state: Interrupted, store: SnapshotStore) -> None:
    with pytest.raises(SnapshotError, match="nothing has been published"):
        store.pin(None, "ann", "x")
    with pytest.raises(SnapshotError, match="is pinned"):
        store.unpin("ann", "x")
    published(state, store, 1)
    with pytest.raises(SnapshotError, match="000009-0123456789ab"):
        store.pin("000009-0123456789ab", "ann", "x")
    assert store.log().pin is None
    assert len(store.history()) == 1


def test_a_publication_that_comes_first_is_what_gets_pinned(state: Interrupted, store: SnapshotStore) -> None:
    published(state, store, 1)
    other = SnapshotStore(state, ModelKey("m", "1"), "g", 1_000, lambda: 78)
    state.before_commit.append(lambda: published(state, other, 2))
    pinned = store.pin(None, "ann", "x")
    assert pinned == store.current()
    assert pinned.startswith("000002-")


@pytest.mark.parametrize("pinned", ["000002-0123456789ab", None])
def test_a_pin_that_contradicts_the_log_is_damage(pinned: str | None) -> None:
    entry: Pin | Unpin = Unpin(pane=3, version="000001-0123456789ab", actor="a", reason="r", time_ms=1)
    if pinned is not None:
        entry = Pin(pane=3, version=pinned, actor="a", reason="r", time_ms=1)
    with pytest.raises(StateError, match="pinned"):
        DecisionLog().extend([entry.encode()])
