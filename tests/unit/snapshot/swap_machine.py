"""Everybody who changes what is served, in any order, each in the middle of what another one does.

Workers publish, hold and refuse, lose their lease, and go on with what they made before (zombies). People roll back,
pin, approve, reject and set shadows. The closer decides, asks and lets requests expire. Whatever one of them does, up
to two others act at chosen calls of its to the store, as if it had been paused there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stream_calib.alerts.model import Alert
from stream_calib.errors import PublicationRefusedError, SnapshotError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.changes import REFIT_LEASE
from stream_calib.snapshot.decision_log import Expired
from stream_calib.snapshot.follower import SnapshotFollower
from stream_calib.snapshot.history import is_publication
from stream_calib.snapshot.log_reader import LogReader
from stream_calib.snapshot.model import StructureSnapshot, sequence_of
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit, StateStore
from tests.unit.snapshot.asking import write
from tests.unit.snapshot.documents import report, request, structure

KEY = ModelKey("m", "1")
WORKERS = ("a", "b")
_BY_WORKERS = ("lease", "prepare", "publish", "hold", "refuse")
_BY_PEOPLE = ("rollback", "pin", "unpin", "approve", "reject", "shadow", "unshadow", "request_manual")
ACTS = st.tuples(
    st.sampled_from(
        (
            *("ask", "publish", "hold") * 4,
            *_BY_WORKERS,
            *_BY_PEOPLE,
            *("approve", "unpin") * 2,
            "decide",
            "expire",
            "poll",
        )
    ),
    st.integers(0, 7),
)
_COMMIT = 0
MEANWHILE = st.lists(st.tuples(st.just(_COMMIT) | st.integers(1, 8), ACTS), max_size=2)


class Interrupted:
    """Mixed into a store: at its calls of the planned numbers, or at the next commit, others act first."""

    plan: dict[int, Callable[[], None]]
    calls = 0

    def _reached(self, *numbers: int) -> None:
        self.calls += 1
        for number in (self.calls, *numbers):
            if (act := self.plan.pop(number, None)) is not None:
                act()

    def read(self, *given: Any) -> Any:
        self._reached()
        return super().read(*given)  # type: ignore[misc]  # of the store beside it, as the next three

    def commit(self, *given: Any) -> Any:
        self._reached(_COMMIT)
        return super().commit(*given)  # type: ignore[misc]

    def entries(self, *given: Any) -> Any:
        self._reached()
        return super().entries(*given)  # type: ignore[misc]

    def blobs(self, *given: Any) -> Any:
        self._reached()
        return super().blobs(*given)  # type: ignore[misc]


class InterruptedMemory(Interrupted, MemoryState):
    pass


class Worker(NamedTuple):
    """What one refit process holds; it does not notice what happens to its lease."""

    token: str | None
    made: tuple[StructureSnapshot, RefitReport] | None


class SwapMachine(RuleBasedStateMachine):
    """Over a store in memory; a subclass may make another one."""

    def __init__(self) -> None:
        super().__init__()
        self.state = self.make_state()
        self.state.plan = {}
        store: StateStore = self.store
        store.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
        # One who is paused has read what it has read: those who act meanwhile have readers of their own.
        self.stores = [SnapshotStore(store, KEY, "g", 1_000, self.tick) for _ in range(3)]
        self.closers = [LogReader(store) for _ in range(3)]
        self.follower = SnapshotFollower(
            store, ("região", "device"), poll_ms=0, max_staleness_ms=10**12, clock_ms=lambda: self.now_ms
        )
        self.now_ms = self.numbers = self.depth = 0
        self.workers = dict.fromkeys(WORKERS, Worker(None, None))
        self.decided_with: dict[int, str | None] = {}
        self.do("lease", 0)

    def make_state(self) -> Any:
        return InterruptedMemory()

    @property
    def store(self) -> Any:
        return self.state

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    @rule(act=ACTS, meanwhile=MEANWHILE)
    def step(self, act: tuple[str, int], meanwhile: list[tuple[int, tuple[str, int]]]) -> None:
        self.state.calls = 0
        self.state.plan = {number: lambda other=other: self.do(*other) for number, other in meanwhile}
        self.do(*act)
        self.state.plan = {}

    def do(self, name: str, number: int) -> None:
        """The act, by somebody; what it is refused is fine."""
        self.depth += 1
        try:
            if name in _BY_WORKERS:
                self.work(name, WORKERS[number % 2])
            elif name in _BY_PEOPLE:
                self.act(name, number)
            elif name == "poll":
                self.poll()
            else:
                self.close(name)
        except (PublicationRefusedError, SnapshotError):
            pass
        finally:
            self.depth -= 1

    def work(self, name: str, who: str) -> None:
        store, worker = self.stores[self.depth - 1], self.workers[who]
        if name == "lease":
            for other in WORKERS:
                self.state.release_lease(REFIT_LEASE, other)
            self.workers[who] = worker._replace(token=self.state.acquire_lease(REFIT_LEASE, who, 600_000))
        elif name == "prepare":
            asked = store.log().open_request
            if asked is not None:
                self.numbers += 1
                candidate = structure(asked.id, asked.parent, rows=self.numbers)
                self.workers[who] = worker._replace(made=(candidate, report(asked.id, pane=asked.pane)))
        elif worker.made is not None and worker.token is not None:
            candidate, made = worker.made
            if name == "refuse":
                store.settle(made.model_copy(update={"outcome": "refused"}), worker.token)
            else:
                (store.publish if name == "publish" else store.hold)(candidate, made, worker.token)
            # The commit was the last call to the store, so this is as it was then.
            plan, self.state.plan = self.state.plan, {}
            assert self.store.read([f"token:{REFIT_LEASE}"]) == {f"token:{REFIT_LEASE}": worker.token}, (
                "a zombie's work"
            )
            self.state.plan = plan

    def act(self, name: str, number: int) -> None:
        store = self.stores[self.depth - 1]
        if name in ("unpin", "unshadow", "request_manual"):
            getattr(store, name)("ann", "why")
            return
        log = store.log()
        if name in ("approve", "reject"):
            known = [*log.held]
        else:
            moves = [move["version"] for move in store.history() if is_publication(move)]
            known = [version for version in (*moves, *log.held) if version != log.current]
        if known:
            getattr(store, name)(known[number % len(known)], "ann", "why")

    def close(self, name: str) -> None:
        fields, log = self.closers[self.depth - 1].read(("decided",))
        decided = int(str(fields["decided"]))
        if name == "expire":
            if log.open_request is not None:
                expired = Expired(pane=decided + 1, request_id=log.open_request.id)
                write(self.store, expired, decided, tip=fields["tip"])
        elif log.open_request is None:
            pane = decided + 1
            current = log.current_at(pane)
            if name == "ask":
                done = write(self.store, request(f"r{pane}", pane, current), pane, tip=fields["tip"])
            else:
                expect = {"decided": fields["decided"], "tip": fields["tip"]}
                done = self.store.commit(Commit(expect, {"decided": str(pane)}))
            if done:
                self.decided_with[pane] = current
                for number in range(len(WORKERS) if name == "ask" else 0):
                    self.work("prepare", WORKERS[number])

    def poll(self) -> None:
        before = self.follower.held
        served = self.follower.current()
        assert not self.follower.behind
        assert self.follower.damaged is None
        assert served is not None or before is None

    @invariant()
    def history_is_linear_and_its_parents_unbroken(self) -> None:
        store = SnapshotStore(self.store, KEY, "g", 1_000, self.tick)
        moves = [move for move in store.history() if is_publication(move)]
        assert [move["before"] for move in moves] == [None, *(move["version"] for move in moves[:-1])][: len(moves)]
        published = [move for move in moves if move["what"] == "publish"]
        for move in published:
            assert store.document(move["version"]).parent == move["before"]
        sequences = [sequence_of(move["version"]) for move in published]
        assert sequences == sorted(set(sequences))
        assert all(move["version"] in {p["version"] for p in published} for move in moves)
        assert store.current() == (moves[-1]["version"] if moves else None)

    @invariant()
    def the_log_says_the_same_whoever_reads_it(self) -> None:
        fields, log = LogReader(self.store).read(("current", "open_request", "sequence"))
        assert log.current == (fields["current"] or None)
        assert (fields["open_request"] or None) == (None if log.open_request is None else log.open_request.id)
        assert {pane: log.current_at(pane) for pane in self.decided_with} == self.decided_with
        assert self.stores[0].log().folded() == log.folded() if log.open_request is None else True

    @invariant()
    def what_waits_can_be_read(self) -> None:
        store = self.stores[0]
        log = store.log()
        for version in log.waiting:
            assert store.load(version).version == version
        assert log.shadow is None or log.shadow.version != log.current
        assert log.pin is None or log.pin.version == log.current

    @invariant()
    def the_alert_of_held_candidates_is_open_while_there_are_some(self) -> None:
        events = [Alert.decode(raw) for raw in self.store.entries("outbox", 0)]
        held = [event for event in events if event.kind == "refit_held"]
        is_open = False
        for event in held:
            assert is_open == (event.state != "open")
            is_open = event.state != "close"
        assert is_open == bool(self.stores[0].log().held)
        assert len({event.id for event in held}) == len(held)

    @invariant()
    def a_reader_comes_to_what_is_current(self) -> None:
        served = self.follower.current()
        assert (None if served is None else served.version) == self.stores[0].current()
