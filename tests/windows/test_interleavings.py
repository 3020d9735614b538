"""One pair of logs under two random plans gives the same bytes, and what the offline oracle says.

A plan is everything that the logs do not say: how partitions are dealt out to workers, batch sizes, deliveries that are
repeated, crashes, zombies, shards that are rolled back or wiped, a state that goes back, several closers, how many
shards there are, and whether they are in memory or in Redis. (Which label partitions are idle is in the record of a
pane, because the logs do not give it; so here none is left out.)
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from stream_calib.windows.pane_record import PaneNames, decode_record
from tests.windows.backends import Backend, MemoryBackend, RedisBackend, redis_backend
from tests.windows.expectation import check_world
from tests.windows.logs import Logs, generate
from tests.windows.simulation import World

__all__ = ["redis_backend"]

UNMATCHED = ("label_leaked", "label_beyond_horizon", "label_never_scored")
CURSORS = ("first_pane", "closed", "matured", "decided", "matured_chain", "detector", "tip", "log_length")


class Planned(World):
    """Runs the logs by the plan of a seed."""

    def idle_inputs(self) -> dict[str, int]:
        return {}


def outcome(logs: Logs, plan: int, faults: float, backend: Backend, steps: int = 60) -> dict[str, Any]:
    """Everything that is committed up to the last pane that must be decided: cells, records, decisions, alerts."""
    world = Planned(plan, backend, logs, faults=faults, steps=steps)
    world.run()
    check_world(world)
    last = world.last_pane()
    first = world.cursors()["first_pane"]
    names = [name for pane in range(first, last + 1) for name in PaneNames.of(pane)]
    found: dict[str, Any] = {
        name: without_diagnosis(blob) if blob and name.startswith("pane:") else blob
        for name, blob in zip(names, world.state.blobs(names), strict=True)
    }
    assert all(found.values())
    if logs.last_pane is None:  # every partition has ended, so that there is one place to stop
        found |= world.state.read(CURSORS)
        found |= {name: world.state.entries(name, 0) for name in ("decisions", "outbox")}
    return found


def without_diagnosis(blob: bytes) -> bytes:
    """The record with the unmatched labels in one count. Why a label is unmatched is told as well as it can be when it
    is looked at, and depends on what a shard still holds then; how many are does not."""
    record = decode_record(blob)
    counts = {kind: n for kind, n in record.counts.items() if n and kind not in UNMATCHED}
    unmatched = sum(record.counts.get(kind, 0) for kind in UNMATCHED)
    return msgspec.structs.replace(record, counts=counts | {"unmatched": unmatched}).encode()


@settings(max_examples=15)
@given(
    logs_seed=st.integers(0, 1_000_000),
    plans=st.tuples(st.integers(0, 1_000_000), st.integers(0, 1_000_000)),
    faults=st.tuples(st.sampled_from([0.0, 0.02, 0.08]), st.sampled_from([0.02, 0.08])),
)
def test_two_plans_give_the_same_bytes(logs_seed: int, plans: tuple[int, int], faults: tuple[float, float]) -> None:
    logs = generate(logs_seed)
    one, other = (outcome(logs, plan, much, MemoryBackend()) for plan, much in zip(plans, faults, strict=True))
    note(f"differ: {[name for name in one if one[name] != other.get(name)][:5]}")
    assert one == other


@pytest.mark.parametrize("logs_seed", [3, 4])
def test_memory_and_redis_give_the_same_bytes(redis_backend: RedisBackend, logs_seed: int) -> None:
    logs = generate(logs_seed)
    in_memory = outcome(logs, 1, 0.0, MemoryBackend())
    assert outcome(logs, 2, 0.05, redis_backend, steps=25) == in_memory


def test_the_plans_differ() -> None:
    """Else the tests above compare a run with itself."""
    logs = generate(11)
    happened = []
    for plan in range(6):
        world = Planned(plan, MemoryBackend(), logs, faults=0.08, steps=60)
        world.run()
        happened.append((world.store.count, tuple(sorted(world.happened.items()))))
    assert len(set(happened)) == 6
    assert {count for count, _ in happened} == {1, 2, 3}
    kinds = {kind for _, kinds in happened for kind, _ in kinds}
    assert kinds >= {"crash", "roll", "wipe", "state", "zombie", "second_closer", "deal"}
