"""Workers, closers and a refit worker on one model key, interrupted at every call to a store, over random logs.

At each call of a shard or the state an actor may be put aside while others run (also for long: a zombie), or crash.
Beside that shards are rolled back to an earlier copy or wiped, the model key's state is rolled back, partitions are
dealt out anew, batches are delivered twice. In the end everything must be as the offline oracle says.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import StateUnavailableError
from stream_calib.snapshot.decision_log import DecisionLog, Settled, chain
from stream_calib.windows.closer import Closer
from stream_calib.windows.intake import Intake
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.registration import INPUTS, inputs_of, recorded_inputs, register_inputs
from stream_calib.windows.shard_store import (
    Inputs,
    Mark,
    PaneCounters,
    PaneRows,
    Progress,
    ReadGuard,
    ShardCall,
    ShardNotAt,
    ShardStore,
)
from stream_calib.windows.state_store import Commit, StateStore
from tests.windows.backends import Backend
from tests.windows.deciders import ChainDecider
from tests.windows.logs import Logs
from tests.windows.records import batch

IDLE_GRACE = 6
_DEEPEST = 3
KEEPING = ("deal", "zombie", "closer", "second_closer", "settler")
LOSING = ("roll", "roll", "wipe", "state")
"""Kinds of faults: without and with loss of writes."""
T = TypeVar("T")


class CrashedError(Exception):
    """The actor at work dies here."""


class InterruptedShards(ShardStore):
    """The store as one actor sees it: anything may happen before and after each of its calls."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store.count, world.store.settings)
        self._world = world

    def _do(self, call: Callable[[], T]) -> T:
        self._world.anything_may_happen()
        answer = call()
        self._world.anything_may_happen()
        return answer

    def register(self, marks: Mapping[str, Mark], inputs: Inputs | None = None) -> None:
        self._do(lambda: self._world.store.register(marks, inputs))

    def restart_wiped(self, shard: int, marks: Mapping[str, Mark], origin: int, inputs: Inputs | None = None) -> None:
        self._do(lambda: self._world.store.restart_wiped(shard, marks, origin, inputs))

    def progress(self) -> list[Progress]:
        return self._do(self._world.store.progress)

    def attach(self) -> None:
        self._do(self._world.store.attach)

    def apply(self, calls: Sequence[ShardCall], inputs: Inputs) -> list[ShardNotAt | None]:
        answers = []
        for call in calls:
            answers += self._do(lambda call=call: self._world.store.apply([call], inputs))  # type: ignore[misc]  # mypy cannot infer it
            self._world.keep_copy(call.shard)
        return answers

    def read_rows(self, shard: int, pane: int, guard: ReadGuard) -> PaneRows | None:
        return self._do(lambda: self._world.store.read_rows(shard, pane, guard))

    def read_labels(
        self, shard: int, pane: int, guard: ReadGuard, fingerprint: NDArray[np.uint64], event_time_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], dict[str, int]] | None:
        return self._do(lambda: self._world.store.read_labels(shard, pane, guard, fingerprint, event_time_ms))

    def read_counters(self, shard: int, pane: int, guard: ReadGuard) -> PaneCounters | None:
        return self._do(lambda: self._world.store.read_counters(shard, pane, guard))

    def counts_before(self, pane: int) -> dict[str, int]:
        return self._do(lambda: self._world.store.counts_before(pane))

    def counts_after(self, pane: int) -> dict[str, int]:
        return self._do(lambda: self._world.store.counts_after(pane))

    def remove(self, shard: int, pane: int, guard: ReadGuard, recorded: Mapping[str, int] | None = None) -> bool:
        return self._do(lambda: self._world.store.remove(shard, pane, guard, recorded))


class InterruptedState(StateStore):
    """Likewise; and it checks the cursors' order at every commit."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _do(self, call: Callable[[], T]) -> T:
        self._world.anything_may_happen()
        return call()

    def read(self, names: Sequence[str]) -> dict[str, str | None]:
        return self._do(lambda: self._world.state.read(names))

    def commit(self, change: Commit) -> bool:
        done = self._do(lambda: self._world.state.commit(change))
        if done:
            self._world.committed()
        self._world.anything_may_happen()
        return done

    def entries(self, name: str, start: int, stop: int | None = None) -> list[bytes]:
        return self._do(lambda: self._world.state.entries(name, start, stop))

    def length(self, name: str) -> int:
        return self._do(lambda: self._world.state.length(name))

    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        return self._do(lambda: self._world.state.blobs(names))

    def put_signatures(self, signatures: Mapping[int, Sequence[str]], until_ms: int) -> None:
        raise NotImplementedError

    def signatures(self, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        raise NotImplementedError

    def drop_signatures(self, before_ms: int) -> int:
        raise NotImplementedError

    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        raise NotImplementedError

    def release_lease(self, name: str, owner: str) -> None:
        raise NotImplementedError


class Worker:
    """Reads some inputs; forgets everything when it is made anew."""

    def __init__(self, world: World, inputs: Sequence[str]) -> None:
        self.world = world
        self.inputs = list(inputs)
        self.marks: dict[str, Mark] = {}
        self.intake: Intake | None = None

    def _register(self) -> Inputs:
        starts = dict.fromkeys(self.world.visible(), Mark(0, None))
        return register_inputs(InterruptedShards(self.world), InterruptedState(self.world), starts)

    def step(self) -> None:
        if not self.inputs:
            return
        world, r = self.world, self.world.random
        if self.intake is None:
            self.intake = Intake(InterruptedShards(world), self._register)
        elif r.random() < 0.1:
            self.intake.register()
        chosen = r.sample(self.inputs, r.randint(1, len(self.inputs)))
        for key in chosen:
            if key not in self.marks:
                self.marks[key] = self.intake.restart(key)
        batches = []
        for key in chosen:
            mark, readable = self.marks[key], world.readable(key)
            items = [w.item for w in world.logs.inputs[key][mark.next : readable]][: r.choice([1, 3, 10, 30])]
            batches.append(batch(key, items, mark, world.store.count, world.store.settings))
        rewinds = self.intake.apply(batches)
        for made in batches:
            if made.input_key in rewinds:
                self.marks[made.input_key] = rewinds[made.input_key]
            elif r.random() > world.redelivery:
                self.marks[made.input_key] = made.mark
            world.note(made.input_key, self.marks[made.input_key])


class ClosingActor:
    def __init__(self, world: World) -> None:
        self.closer = Closer(
            InterruptedShards(world),
            InterruptedState(world),
            lambda first_pane: ChainDecider(first_pane, world.store.settings.horizon_panes),
            idle_inputs=world.idle_inputs,
        )

    def step(self) -> None:
        self.closer.advance()


class Settler:
    """Answers requests, as refit does."""

    def __init__(self, world: World) -> None:
        self.state = InterruptedState(world)

    def step(self) -> None:
        found = self.state.read(("tip", "open_request", "decided", "log_length"))
        if not found["open_request"] or found["decided"] is None:
            return
        entry = Settled(
            pane=int(found["decided"]) + 1, request_id=found["open_request"], outcome="refused", report_sha256="r"
        ).encode()
        tip = chain(found["tip"], [entry])
        self.state.commit(
            Commit(
                {"tip": found["tip"], "decided": found["decided"]},
                {"tip": str(tip), "open_request": "", "log_length": str(int(found["log_length"] or 0) + 1)},
                {"decisions": [entry]},
            )
        )


class World:
    """`faults` is how often something breaks: 0 for a quiet run."""

    def __init__(
        self,
        seed: int,
        backend: Backend,
        logs: Logs,
        *,
        faults: float,
        kinds: Sequence[str] = (*KEEPING, *LOSING),
        steps: int = 70,
    ) -> None:
        self.random = random.Random(seed)
        self.backend, self.logs, self.faults, self.steps = backend, logs, faults, steps
        self.kinds = kinds
        self.store = backend.shards(self.random.choice([1, 2, 3]), logs.settings)
        self.state = backend.state()
        self.now = 0
        self.reports: dict[str, tuple[int, int, int | None]] = {}
        self.redelivery = 0.2 if faults else 0.0
        self.happened: dict[str, int] = {}
        self._depth, self._calm = 0, False
        self._busy: list[Any] = []
        self._shard_copies: list[deque[Any]] = [deque(maxlen=6) for _ in range(self.store.count)]
        self._state_copies: deque[tuple[int, Any]] = deque(maxlen=8)
        self._furthest = -1
        self.workers: list[Worker] = []
        self.closers = [ClosingActor(self)]
        self.settlers = [Settler(self)]
        register_inputs(self.store, self.state, dict.fromkeys(self.visible(), Mark(0, None)))
        self._deal_out()

    # --- what time and the logs give

    def visible(self) -> list[str]:
        """The inputs that are there now."""
        return [key for key in self.logs.inputs if self.logs.added.get(key, 0) <= self.now]

    def readable(self, key: str) -> int:
        log = self.logs.inputs[key]
        return next((i for i, written in enumerate(log) if written.at > self.now), len(log))

    def note(self, key: str, mark: Mark) -> None:
        """A worker's report: position, clock, since when the input has been read to its end."""
        old = self.reports.get(key)
        since = None
        if mark.next >= self.readable(key):
            since = old[2] if old is not None and old[0] == mark.next and old[2] is not None else self.now
        self.reports[key] = (mark.next, -1 if mark.clock_ms is None else mark.clock_ms, since)

    def idle_inputs(self) -> dict[str, int]:
        """Label inputs read to their end for a while, while another is ahead."""
        labels = {key: self.reports.get(key) for key in inputs_of(self.visible()).labels}
        found = {}
        for key, report in labels.items():
            if report is not None and report[2] is not None and self.now - report[2] >= IDLE_GRACE:
                others = [o[1] for k, o in labels.items() if o is not None and k != key]
                if any(clock > report[1] for clock in others):
                    found[key] = report[0]
        return found

    # --- faults

    def anything_may_happen(self) -> None:
        if self._calm or self._depth >= _DEEPEST or not self.faults:
            return
        luck = self.random.random()
        if luck < self.faults / 4:
            raise CrashedError
        if luck < 2 * self.faults:
            self._depth += 1
            for _ in range(self.random.choice([1, 1, 2, 6])):
                self._something()
            self._depth -= 1

    def keep_copy(self, shard: int) -> None:
        if self.faults and self.random.random() < 0.1:
            self._shard_copies[shard].append(self.backend.copy_shard(self.store, shard))

    def committed(self) -> None:
        found = self.state.read(("closed", "matured", "decided"))
        closed, matured, decided = (int(found[name] or 0) for name in ("closed", "matured", "decided"))
        assert decided <= matured <= closed, found
        self._furthest = max(self._furthest, matured)
        if self.faults and self.random.random() < 0.3:
            self._state_copies.append((matured, self.backend.copy_state(self.state)))

    def _fault(self) -> None:
        r = self.random
        kind = r.choice(self.kinds)
        self.happened[kind] = self.happened.get(kind, 0) + 1
        if kind in ("deal", "zombie"):
            old = [w for w in self.workers if w not in self._busy] if kind == "zombie" else []
            self._deal_out()
            self.workers += old[:1]
        elif kind == "closer":
            self.closers = [ClosingActor(self)]
        elif kind == "second_closer":
            self.closers = [*self.closers[-1:], ClosingActor(self)]
        elif kind == "settler":
            self.settlers = [*self.settlers[-1:], Settler(self)]
        elif kind == "wipe":
            self._wipe(r.randrange(self.store.count))
        elif kind == "roll":
            shard = r.randrange(self.store.count)
            if self._shard_copies[shard]:
                self.backend.put_shard(self.store, shard, r.choice(self._shard_copies[shard]))
        else:
            # The state may be behind by as much as the shards keep, no more.
            keep = self.store.settings.keep_panes
            old_states = [s for matured, s in self._state_copies if matured >= self._furthest - keep]
            if old_states:
                self.backend.put_state(self.state, r.choice(old_states))

    def _wipe(self, shard: int) -> None:
        self.backend.put_shard(self.store, shard, None)
        self._shard_copies[shard].clear()

    def _deal_out(self) -> None:
        keys = self.visible()
        self.random.shuffle(keys)
        n = self.random.choice([1, 2, 3])
        self.workers = [Worker(self, keys[i::n]) for i in range(n)]

    # --- the run

    def _something(self) -> None:
        r = self.random
        if r.random() < 0.5:
            self.now = min(self.now + r.choice([0, 1, 2, 4]), self.logs.end)
        if r.random() < self.faults:
            self._fault()
        if {key for worker in self.workers for key in worker.inputs} < set(self.visible()) and r.random() < 0.3:
            self._deal_out()
        actors = [a for a in (*self.workers, *self.closers, *self.settlers) if a not in self._busy]
        if actors:
            self._act(r.choice(actors))

    def _act(self, actor: Any) -> None:
        self._busy.append(actor)
        depth = self._depth
        try:
            actor.step()
        except (CrashedError, StateUnavailableError) as error:
            kind = "crash" if isinstance(error, CrashedError) else "unseen"
            self.happened[kind] = self.happened.get(kind, 0) + 1
            self._depth = depth
            self._replace(actor)
        finally:
            self._busy.remove(actor)

    def _replace(self, actor: Any) -> None:
        if isinstance(actor, Worker):
            self.workers = [Worker(self, w.inputs) if w is actor else w for w in self.workers]
        elif isinstance(actor, ClosingActor):
            self.closers = [ClosingActor(self) if c is actor else c for c in self.closers]
        else:
            self.settlers = [Settler(self) if s is actor else s for s in self.settlers]

    def run(self) -> None:
        for _ in range(self.steps):
            self._something()
        self._calm = True
        self.faults, self.redelivery = 0, 0.0
        self._deal_out()
        for _ in range(400):
            self.now += 4
            if {key for worker in self.workers for key in worker.inputs} < set(self.visible()):
                self._deal_out()
            for actor in (*self.workers, *self.closers, *self.settlers):
                self._act(actor)
            if self._done():
                return
        raise AssertionError(f"stuck: {self.cursors()}, {self.store.progress()}")

    def cursors(self) -> dict[str, int]:
        names = ("first_pane", "closed", "matured", "decided")
        return {name: int(value) for name, value in self.state.read(names).items() if value is not None}

    def last_pane(self) -> int:
        """The last pane that must be decided in the end."""
        if self.logs.last_pane is not None:
            return self.logs.last_pane
        return max((p.last_pane for p in self.store.progress() if p.last_pane is not None), default=-1)

    def _done(self) -> bool:
        at = self.cursors()
        everything = all(
            progress.marks.get(key, Mark(0, None)).next == len(log)
            for progress in self.store.progress()
            for key, log in self.logs.inputs.items()
        )
        if not everything or not at or at["decided"] < self.last_pane():
            return False
        return not self.state.read(("open_request",))["open_request"]

    def first_clocks(self) -> dict[str, int]:
        """Of the inputs that started with a clock."""
        recorded = recorded_inputs(self.state, int(self.state.read((INPUTS,))[INPUTS] or 0))
        return {key: mark.clock_ms for key, mark in recorded.items() if mark.clock_ms is not None}

    def records(self) -> list[PaneRecord]:
        """Of every matured pane."""
        at = self.cursors()
        names = [PaneNames.of(pane).record for pane in range(at["first_pane"], at["matured"] + 1)]
        return [decode_record(blob) for blob in self.state.blobs(names) if blob is not None]

    def cuts(self) -> list[dict[str, dict[str, int]]]:
        """Of every matured pane."""
        return [record.cut for record in self.records()]

    def decision_log(self) -> DecisionLog:
        log = DecisionLog()
        log.extend(self.state.entries("decisions", 0))
        return log
