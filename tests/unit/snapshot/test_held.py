"""Publication by approval: candidates are held, approved, rejected, superseded."""

from __future__ import annotations

from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.errors import (
    DamagedSnapshotError,
    PublicationRefusedError,
    SnapshotError,
    SnapshotPinnedError,
    StateError,
)
from stream_calib.events.contracts import ModelKey
from stream_calib.refit.retention import Retention
from stream_calib.snapshot.decision_log import MOST_HELD, DecisionLog
from stream_calib.snapshot.fate import fate
from stream_calib.snapshot.folded_log import FoldedLog
from stream_calib.snapshot.model import sequence_of
from stream_calib.snapshot.operator_entries import Approve, Reject, Shadow, Unshadow
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.outbox import alarms
from tests.unit.snapshot.asking import ask
from tests.unit.snapshot.documents import level, report, structure


@pytest.fixture
def state() -> MemoryState:
    made = MemoryState()
    made.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
    assert made.acquire_lease("refit", "w", 1_000) == "1"
    return made


@pytest.fixture
def store(state: MemoryState) -> SnapshotStore:
    return SnapshotStore(state, ModelKey("m", "1"), "g", 1_000, lambda: 77)


def held(state: MemoryState, store: SnapshotStore, name: str, rows: int = 1) -> str:
    parent = store.current()
    asked = ask(state, name, parent)
    return store.hold(structure(name, parent, rows=rows), report(name, pane=asked.pane), "1")


def published(state: MemoryState, store: SnapshotStore, name: str) -> str:
    parent = store.current()
    asked = ask(state, name, parent)
    return store.publish(structure(name, parent), report(name, pane=asked.pane), "1")


def alerts(state: MemoryState) -> list[tuple[str, str]]:
    return [(a.kind, a.state) for a in alarms(state)]


def test_a_held_candidate_answers_its_request_and_serves_nobody(state: MemoryState, store: SnapshotStore) -> None:
    version = held(state, store, "r1")
    log = store.log()
    assert (log.open_request, log.current, store.current()) == (None, None, None)
    assert [(h.version, h.parent, h.request_id, h.asked_pane, h.pane) for h in log.held.values()] == [
        (version, None, "r1", 10, 11)
    ]
    (kept,) = store.reports()
    assert (kept.outcome, kept.version) == ("held", version)
    assert store.load(version).structure.request_id == "r1"
    assert store.history() == []


def test_approving_publishes_the_bytes_that_were_held_with_who_and_why(
    state: MemoryState, store: SnapshotStore
) -> None:
    version = held(state, store, "r1")
    store.approve(version, "ann", "looks right")
    assert store.current() == version
    log = store.log()
    assert (log.current, log.held, log.held_since) == (version, {}, None)
    assert (log.current_at(10), log.current_at(11)) == (None, version)
    assert store.history() == [
        {
            "what": "publish",
            "version": version,
            "sequence": 1,
            "before": None,
            "pane": 11,
            "actor": "ann",
            "reason": "looks right",
            "request_id": "r1",
            "time_ms": 77,
        }
    ]
    assert fate(log, version) == "approved by ann: looks right"


def test_one_approval_supersedes_the_others_and_their_bytes_go(state: MemoryState, store: SnapshotStore) -> None:
    first, second, third = (held(state, store, f"r{n}", n) for n in (1, 2, 3))
    store.approve(second, "ann", "x")
    assert store.log().held == {}
    assert [blob is not None for blob in state.blobs([f"snapshot:{v}" for v in (first, second, third)])] == [
        False,
        True,
        False,
    ]
    for version in (first, third):
        with pytest.raises(SnapshotError, match=f"{version} cannot be approved: .*superseded when {second} was appr"):
            store.approve(version, "ann", "x")
    assert store.current() == second


def test_a_publication_supersedes_what_is_held(state: MemoryState, store: SnapshotStore) -> None:
    version = held(state, store, "r1")
    current = published(state, store, "r2")
    assert sequence_of(current) == sequence_of(version) + 1
    with pytest.raises(SnapshotError, match=f"superseded when {current} was published"):
        store.approve(version, "ann", "x")
    # Back where it was compared with what is served, it stays superseded: it is gone.
    assert state.blobs([f"snapshot:{version}"]) == [None]


def test_a_candidate_whose_parent_was_rolled_back_waits_for_it(state: MemoryState, store: SnapshotStore) -> None:
    first, second = published(state, store, "r1"), published(state, store, "r2")
    version = held(state, store, "r3")
    store.rollback(first, "bob", "worse")
    with pytest.raises(SnapshotError, match=f"compared with {second} and {first} is current"):
        store.approve(version, "ann", "x")
    assert version in store.log().held
    store.rollback(second, "bob", "better than that")
    store.approve(version, "ann", "x")
    assert store.current() == version


def test_a_rejected_candidate_is_gone_with_who_and_why(state: MemoryState, store: SnapshotStore) -> None:
    version = held(state, store, "r1")
    store.reject(version, "ann", "declines too many")
    assert store.log().held == {}
    assert state.blobs([f"snapshot:{version}"]) == [None]
    (done,) = store.history()
    assert (done["what"], done["version"], done["before"], done["actor"], done["reason"]) == (
        "reject",
        version,
        None,
        "ann",
        "declines too many",
    )
    for act in (store.approve, store.reject):
        with pytest.raises(SnapshotError, match="rejected by ann: declines too many"):
            act(version, "bob", "y")


def test_what_was_never_held_cannot_be_approved(state: MemoryState, store: SnapshotStore) -> None:
    version = published(state, store, "r1")
    for act in (store.approve, store.reject):
        with pytest.raises(SnapshotError, match="no candidate of this version is held; see `snapshot held`"):
            act(version, "ann", "x")


def test_nothing_is_held_or_approved_while_a_version_is_pinned(state: MemoryState, store: SnapshotStore) -> None:
    published(state, store, "r1")
    version = held(state, store, "r2")
    store.pin(None, "bob", "audit")
    with pytest.raises(SnapshotError, match=r"bob pinned .*audit.*`snapshot unpin`"):
        store.approve(version, "ann", "x")
    with pytest.raises(SnapshotPinnedError, match="bob keeps"):
        held(state, store, "r3")
    store.unpin("bob", "over")
    store.approve(version, "ann", "x")
    assert store.current() == version


def test_a_stale_token_or_another_parent_holds_nothing(state: MemoryState, store: SnapshotStore) -> None:
    ask(state, "r1", None)
    with pytest.raises(PublicationRefusedError, match="lease"):
        store.hold(structure("r1"), report("r1"), "0")
    with pytest.raises(PublicationRefusedError, match="current"):
        store.hold(structure("r1", "000009-0123456789ab"), report("r1"), "1")
    assert store.log().open_request is not None
    assert state.read(["sequence"])["sequence"] is None


def test_settle_publishes_and_holds_nothing(state: MemoryState, store: SnapshotStore) -> None:
    ask(state, "r1", None)
    for outcome in ("published", "held"):
        with pytest.raises(ValueError, match="settled by `publish`"):
            store.settle(report("r1", outcome), "1")


def test_a_level_is_held_and_approved_like_a_structure(state: MemoryState, store: SnapshotStore) -> None:
    parent = published(state, store, "r1")
    ask(state, "r2", parent)
    version = store.hold(level(parent, "r2", parent), report("r2"), "1")
    store.approve(version, "ann", "x")
    assert store.load(version).structure_version == parent
    assert store.history()[-1]["structure"] == parent


def test_a_damaged_candidate_is_not_approved(state: MemoryState, store: SnapshotStore) -> None:
    version = held(state, store, "r1")
    state.commit(Commit(blobs={f"snapshot:{version}": b"{}"}))
    with pytest.raises(DamagedSnapshotError):
        store.approve(version, "ann", "x")
    assert store.current() is None
    assert version in store.log().held


def test_the_oldest_of_too_many_is_superseded(state: MemoryState, store: SnapshotStore) -> None:
    versions = [held(state, store, f"r{n}", n) for n in range(MOST_HELD + 2)]
    assert list(store.log().held) == versions[2:]
    assert [b is None for b in state.blobs([f"snapshot:{v}" for v in versions])] == [True, True] + [False] * MOST_HELD
    assert fate(store.log(), versions[0]) == "superseded by later ones"
    assert [a.evidence["held"] for a in alarms(state)][-3:] == [MOST_HELD] * 3


def test_the_shadow_is_not_superseded_by_later_candidates(state: MemoryState, store: SnapshotStore) -> None:
    first = held(state, store, "r0")
    store.shadow(first, "ann", "watch it")
    versions = [held(state, store, f"r{n}", n) for n in range(1, MOST_HELD + 2)]
    assert list(store.log().held) == [first, *versions[2:]]
    store.approve(first, "ann", "it is better")
    assert store.log().shadow is None


# --- alerts


def test_the_alert_opens_once_is_updated_and_closes_once(state: MemoryState, store: SnapshotStore) -> None:
    first, second = held(state, store, "r1"), held(state, store, "r2", 2)
    store.reject(first, "ann", "x")
    store.approve(second, "ann", "x")
    found = alarms(state)
    assert [(a.kind, a.state, a.since_ms) for a in found] == [
        ("refit_held", "open", 10_000),
        ("refit_held", "update", 10_000),
        ("refit_held", "close", 10_000),
    ]
    assert found[1].evidence | {"held": 2, "version": second} == found[1].evidence
    assert f"snapshot approve {second}" in found[1].diagnosis
    assert len({a.id for a in found}) == 3


def test_the_alert_closes_with_the_last_rejection(state: MemoryState, store: SnapshotStore) -> None:
    for version in [held(state, store, "r1"), held(state, store, "r2", 2)]:
        store.reject(version, "ann", "x")
    held(state, store, "r3")
    assert alerts(state) == [("refit_held", s) for s in ("open", "update", "close", "open")]


def test_what_closes_twice_before_a_pane_is_decided_has_two_ids(state: MemoryState, store: SnapshotStore) -> None:
    """A receiver that drops repeats by their ids must hear of both."""
    first = held(state, store, "r1")
    asked = ask(state, "r2", None)
    store.reject(first, "ann", "x")
    second = store.hold(structure(asked.id, None, rows=2), report(asked.id, pane=asked.pane), "1")
    store.approve(second, "ann", "x")
    found = [alarm for alarm in alarms(state) if alarm.kind == "refit_held"]
    assert [alarm.state for alarm in found] == ["open", "close", "open", "close"]
    assert found[1].pane == found[3].pane
    assert len({alarm.id for alarm in found}) == 4


def test_a_candidate_that_passes_ends_the_alerts_of_those_that_did_not(
    state: MemoryState, store: SnapshotStore
) -> None:
    ask(state, "r1", None)
    store.settle(report("r1", "refused"), "1")
    version = held(state, store, "r2")
    store.approve(version, "ann", "x")
    assert alerts(state) == [
        ("refit_refused", "open"),
        ("refit_refused", "close"),
        ("refit_held", "open"),
        ("refit_held", "close"),
    ]


# --- the shadow


def test_a_shadow_is_held_or_was_published(state: MemoryState, store: SnapshotStore) -> None:
    first, second = published(state, store, "r1"), published(state, store, "r2")
    waiting = held(state, store, "r3")
    store.shadow(first, "ann", "was it better?")
    store.shadow(waiting, "ann", "is it better?")
    shadow = store.log().shadow
    assert shadow is not None
    assert (shadow.version, shadow.actor, shadow.structure) == (waiting, "ann", None)
    with pytest.raises(SnapshotError, match="is served"):
        store.shadow(second, "ann", "x")
    with pytest.raises(SnapshotError, match="is the shadow already"):
        store.shadow(waiting, "ann", "x")
    with pytest.raises(SnapshotError, match="not in the state store"):
        store.shadow("000099-0123456789ab", "ann", "x")
    assert store.unshadow("ann", "seen enough") == waiting
    with pytest.raises(SnapshotError, match="is the shadow"):
        store.unshadow("ann", "x")
    assert [move["what"] for move in store.history()[2:]] == ["shadow", "shadow", "unshadow"]
    assert store.current() == second


@pytest.mark.parametrize("end", ["approve", "reject", "publish", "rollback"])
def test_what_ends_a_shadow(state: MemoryState, store: SnapshotStore, end: str) -> None:
    first, _ = published(state, store, "r1"), published(state, store, "r2")
    shadow = first if end == "rollback" else held(state, store, "r3")
    store.shadow(shadow, "ann", "x")
    if end == "publish":
        published(state, store, "r4")
    else:
        getattr(store, end)(shadow, "ann", "x")
    assert store.log().shadow is None


# --- the log


def test_a_folded_log_goes_on_with_what_is_held(state: MemoryState, store: SnapshotStore) -> None:
    published(state, store, "r1")
    first, second = held(state, store, "r2"), held(state, store, "r3", 3)
    store.shadow(second, "ann", "x")
    log = store.log()
    again = DecisionLog(FoldedLog.decode(log.folded().encode()))
    assert (again.held, again.held_since, again.shadow) == (log.held, log.held_since, log.shadow)
    assert list(again.held) == [first, second]
    assert again.waiting == {first, second}


def test_a_log_without_what_is_held_folds_to_the_bytes_of_before(state: MemoryState, store: SnapshotStore) -> None:
    published(state, store, "r1")
    for name in (b"held", b"shadow"):
        assert name not in store.log().folded().encode()


ACT: dict[str, Any] = {"pane": 3, "actor": "a", "reason": "r", "time_ms": 1, "version": "000001-0123456789ab"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Approve(**ACT, left=None), "approve entry for .*, which is not held"),
        (Reject(**ACT), "reject entry for .*, which is not held"),
        (Unshadow(**ACT), "no longer the shadow, while nothing was"),
    ],
)
def test_acts_that_contradict_the_log_are_damage(entry: Approve | Reject | Unshadow, message: str) -> None:
    with pytest.raises(StateError, match=message):
        DecisionLog().extend([entry.encode()])


def test_a_shadow_of_what_is_current_is_damage(state: MemoryState, store: SnapshotStore) -> None:
    version = published(state, store, "r1")
    entry = Shadow(**ACT | {"pane": 30, "version": version}, structure=None)
    with pytest.raises(StateError, match="made the shadow while it is current"):
        store.log().extend([entry.encode()])


# --- retention


def test_retention_keeps_what_is_held_and_the_shadow_with_its_structure(
    state: MemoryState, store: SnapshotStore
) -> None:
    config = Config.model_validate(
        {"model": {"name": "m", "version": "1"}, "windows": {"horizon": "1h"}, "retention": {"publications": 20}}
    )
    structures = [published(state, store, f"s{n}") for n in range(2)]
    ask(state, "level", structures[1])
    old_level = store.hold(level(structures[1], "level", structures[1]), report("level"), "1")
    store.approve(old_level, "ann", "x")
    later = [published(state, store, f"r{n}") for n in range(30)]
    store.shadow(old_level, "ann", "was it better?")
    later += [published(state, store, f"r{n}") for n in range(30, 60)]
    waiting = held(state, store, "h")
    retention = Retention(state, config)
    while retention.advance(None):
        pass
    moves = store.history()
    assert moves[0]["version"] in later
    assert store.load(old_level).structure_version == structures[1]
    assert store.load(waiting).version == waiting
    for version in (structures[0], later[0]):
        with pytest.raises(SnapshotError, match="not in the state store"):
            store.load(version)
    store.shadow(waiting, "ann", "now this one")
    store.rollback(later[-2], "ann", "x")
    assert store.log().shadow is not None
