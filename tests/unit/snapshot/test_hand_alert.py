"""Alerts of what people decide, and of each refit: asked for, answered, published."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.alerts.standing import told_of
from stream_calib.errors import SnapshotError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.refit_alerts import RefitAlerts
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.outbox import alarms, events
from tests.unit.snapshot.asking import ask
from tests.unit.snapshot.documents import report, structure


def _state() -> MemoryState:
    made = MemoryState()
    made.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
    assert made.acquire_lease("refit", "w", 1_000) == "1"
    return made


@dataclass
class Model:
    """A model key whose snapshots are published, and changed by people."""

    state: MemoryState = field(default_factory=_state)
    versions: list[str] = field(default_factory=list)
    """Published ones, oldest first."""

    def __post_init__(self) -> None:
        times = iter(range(1, 10_000))
        self.store = SnapshotStore(self.state, ModelKey("m", "1"), "g", 1_000, lambda: next(times))

    def publish(self) -> None:
        name, parent = f"r{len(self.versions) + 1}", self.store.current()
        asked = ask(self.state, name, parent)
        rows = len(self.versions) + 1
        candidate, answer = structure(name, parent, rows=rows), report(name, pane=asked.pane)
        if self.store.log().pin is not None:
            self.store.settle(answer.model_copy(update={"outcome": "refused"}), "1")
        else:
            self.versions.append(self.store.publish(candidate, answer, "1"))

    def approve(self) -> None:
        name, parent = f"r{len(self.versions) + 1}", self.store.current()
        asked = ask(self.state, name, parent)
        rows = len(self.versions) + 1
        version = self.store.hold(structure(name, parent, rows=rows), report(name, pane=asked.pane), "1")
        self.store.approve(version, "ann", "fine")
        self.versions.append(version)

    def told(self) -> list[tuple[str, str]]:
        return [(e.state, e.diagnosis) for e in alarms(self.state) if e.kind == "rolled_back"]


def test_a_rollback_opens_it_and_the_next_publication_closes_it() -> None:
    model = Model()
    model.publish()
    model.publish()
    first, second = model.versions
    model.store.rollback(first, "ann", "too high for UA")
    model.publish()
    assert model.told() == [
        (
            "open",
            f"{first} is served, and {second} was published last, by ann: too high for UA; the next publication takes"
            " its place",
        ),
        ("close", f"{model.versions[2]} was published"),
    ]
    opened, closed = [e for e in alarms(model.state) if e.kind == "rolled_back"]
    assert opened.evidence == {
        "what": "rollback",
        "version": first,
        "newest": second,
        "actor": "ann",
        "reason": "too high for UA",
    }
    assert (opened.severity, opened.since_ms, closed.since_ms) == ("warning", 12_000, 12_000)
    assert opened.dedup_key == closed.dedup_key == "m/1:rolled_back"
    assert opened.id != closed.id


def test_going_forward_again_closes_it() -> None:
    model = Model()
    model.publish()
    model.publish()
    model.store.rollback(model.versions[0], "ann", "x")
    model.store.rollback(model.versions[1], "ann", "it was not that")
    assert model.told()[1] == (
        "close",
        f"{model.versions[1]}, the newest that was published, is served again, by ann: it was not that",
    )


def test_a_pin_holds_until_it_is_taken_off_and_a_further_one_is_an_update() -> None:
    model = Model()
    model.publish()
    model.publish()
    first, second = model.versions
    model.store.pin(None, "ann", "x")
    model.store.pin(first, "bob", "y")
    model.publish()  # refused
    assert model.told() == [
        (
            "open",
            f"{second} is served, by ann: x; it is pinned: no refit is published until `stream-calib snapshot unpin`,"
            " and it grows old",
        ),
        (
            "update",
            f"{first} is served, and {second} was published last, by bob: y; it is pinned: no refit is published until"
            " `stream-calib snapshot unpin`, and it grows old",
        ),
    ]
    model.store.unpin("bob", "z")
    assert model.told()[2] == (
        "update",
        f"{first} is served, and {second} was published last, by bob: z; the next publication takes its place",
    )
    model.publish()
    assert [state for state, _ in model.told()[3:]] == ["close"]


acts = st.lists(
    st.tuples(st.sampled_from(["publish", "approve", "rollback", "pin", "unpin"]), st.integers(0, 7)), max_size=25
)


@settings(max_examples=25, deadline=None)
@given(acts)
def test_it_is_open_exactly_while_a_hand_decides_what_is_served(made: list[tuple[str, int]]) -> None:
    model = Model()
    for act, which in made:
        before = len(model.told())
        version = model.versions[which % len(model.versions)] if model.versions else "000001-0123456789ab"
        log = model.store.log()
        try:
            if act == "publish":
                model.publish()
            elif act == "approve" and log.pin is None:
                model.approve()
            elif act == "rollback":
                model.store.rollback(version, "ann", "x")
            elif act == "pin":
                model.store.pin(version, "ann", "x")
            elif act == "unpin":
                model.store.unpin("ann", "x")
        except SnapshotError:
            pass  # an act that is refused tells nothing
        assert len(model.told()) <= before + 1
        log = model.store.log()
        by_hand = log.pin is not None or (bool(model.versions) and log.current != model.versions[-1])
        assert (told_of(model.state.read(["rolled_back"])["rolled_back"]).since_ms is not None) == by_hand
    states = [state for state, _ in model.told()]
    assert all(later != "open" if state != "close" else later == "open" for state, later in pairwise(states))
    assert states[:1] in ([], ["open"])
    ids = [event.id for event in events(model.state)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("how", ["publish", "approve"])
def test_a_publication_is_told_as_an_event_that_is_over_at_once(how: str) -> None:
    model = Model()
    model.publish()
    getattr(model, how)()
    told = [e for e in events(model.state) if e.kind == "refit_published"]
    assert [e.state for e in told] == ["open", "close"] * 2
    assert {e.severity for e in told} == {"info"}
    assert told[2].evidence["version"] == model.versions[1]
    assert told[2].evidence["before"] == model.versions[0]
    assert told[2].diagnosis.startswith(f"{model.versions[1]} is served from now on, in place of {model.versions[0]} (")


@pytest.mark.parametrize("outcome", ["refused", "failed", "superseded"])
def test_a_refit_that_was_asked_for_is_open_until_its_answer(outcome: str) -> None:
    model = Model()
    request = ask(model.state, "r1", None)
    alerts = RefitAlerts(ModelKey("m", "1"), "g", 1_000)
    asked = alerts.asked(request)
    model.state.commit(Commit(appends={"outbox": [asked]}))
    model.store.settle(report("r1", outcome, request.pane), "1")
    opened, closed = [e for e in events(model.state) if e.kind == "refit_asked"]
    assert (opened.state, closed.state, closed.evidence["outcome"]) == ("open", "close", outcome)
    assert opened.since_ms == closed.since_ms == request.pane * 1_000
    assert opened.dedup_key == closed.dedup_key
    assert closed.diagnosis == f"the structure refit ({request.reason}): {outcome}"
