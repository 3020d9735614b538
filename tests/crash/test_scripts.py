"""Scripts, tables and the shortening of what fails, without any server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.faults import POINTS, SLOTS, ClientKind, Fault, Script, ServerKind, random_script
from tests.crash.matrix import Matrix
from tests.crash.stream import SLICES, slices
from tests.crash.table import Outcome, read, table

KINDS: list[ServerKind] = ["single", "replica", "cluster"]
CLIENTS: list[ClientKind] = ["kafka", "librdkafka"]


@given(st.integers(0, 1_000_000), st.sampled_from(KINDS), st.sampled_from([1, 3]), st.sampled_from(CLIENTS))
def test_a_seed_makes_one_script_that_can_be_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, seed: int, redis: ServerKind, brokers: int, client: ClientKind
) -> None:
    script = random_script(seed, redis, brokers, client)
    assert script == random_script(seed, redis, brokers, client)
    file = tmp_path_factory.getbasetemp() / "script.json"
    file.write_text(script.text())
    assert Script.read(file) == script
    assert all(0 <= fault.step < SLICES and 0 <= fault.slot < len(SLOTS) for fault in script.faults)
    assert any(fault.what == "broker_lost" for fault in script.faults) == (brokers == 3)


def test_neighbouring_seeds_go_through_every_fault_point() -> None:
    seen = {
        fault.point
        for seed in range(-(-len(POINTS) // 2))
        for fault in random_script(seed, "single", 1, "kafka").faults
    }
    assert set(POINTS) <= seen


def test_a_seed_makes_one_stream_and_another_one_another() -> None:
    assert slices(1) == slices(1)
    assert slices(1) != slices(2)
    assert len(slices(1)) == SLICES
    assert all(slices(1))


class _Played(Matrix):
    """Fails when two of the faults happen together; nothing is started."""

    def __init__(self, needed: set[str], folder: Path) -> None:
        super().__init__(folder, lambda text: None)
        self._needed = needed
        self.performed = 0

    def perform(self, script: Script) -> Outcome:
        self.performed += 1
        names = sorted(fault.name for fault in script.faults)
        return Outcome(script.seed, "played", names, "wrong" if self._needed <= set(names) else "")


@given(st.sets(st.sampled_from(["kill", "pause", "leave", "join", "redis_kill", "redis_back"]), min_size=1), st.data())
def test_a_failing_script_is_shortened_to_what_it_needs(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], data: st.DataObject
) -> None:
    needed = data.draw(st.sets(st.sampled_from(sorted(names)), max_size=2))
    script = Script(1, 1, "single", 1, "kafka", tuple(Fault(2, name) for name in sorted(names)))
    matrix = _Played(needed, tmp_path_factory.getbasetemp())
    short = matrix.shortened(script)
    assert {fault.name for fault in short.faults} == needed
    assert matrix.performed <= 2 * len(names)


def test_the_table_counts_runs_and_mismatches_by_fault(tmp_path: Path) -> None:
    outcomes = [
        Outcome(1, "kafka, 1 broker, single Redis", ["kill", "redis.apply.after", "redis.apply.before"], ""),
        Outcome(2, "kafka, 1 broker, single Redis", ["kill", "redis.apply.after"], "cells differ"),
        Outcome(3, "kafka, 3 brokers, single Redis", ["broker_lost"], ""),
    ]
    for outcome in outcomes:
        outcome.write(tmp_path / "outcomes.jsonl")
    assert read([tmp_path / "outcomes.jsonl"]) == outcomes
    assert table(outcomes).splitlines() == [
        "| servers | runs | mismatches |",
        "|---|---|---|",
        "| kafka, 1 broker, single Redis | 2 | 1 |",
        "| kafka, 3 brokers, single Redis | 1 | 0 |",
        "",
        "| stops at | before the call | after it | mismatches |",
        "|---|---|---|---|",
        "| `redis.apply` | 1 | 2 | 1 |",
        "",
        "| fault | runs | mismatches |",
        "|---|---|---|",
        "| broker lost | 1 | 0 |",
        "| kill | 2 | 1 |",
    ]
