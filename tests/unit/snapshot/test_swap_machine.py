"""Any interleaving of publishers, people, lost leases and paused zombies yields one linear history."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.snapshot.swap_machine import SwapMachine


def test_any_interleaving_yields_a_linear_history() -> None:
    run_state_machine_as_test(SwapMachine, settings=settings(max_examples=40, stateful_step_count=40, deadline=None))
