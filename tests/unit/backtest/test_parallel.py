from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.backtest.policies.parallel import Progress, run_policies
from stream_calib.backtest.policies.policy import Policy, current_policy, make_policy
from stream_calib.backtest.policies.run import run_policy
from stream_calib.backtest.policies.run_folder import OutcomeFolder
from stream_calib.errors import BacktestError
from tests.unit.backtest.made_up import history
from tests.unit.refit.world import config

CELLS = history(120)


def policies() -> list[Policy]:
    base = config()
    return [
        current_policy(base),
        make_policy("margin", {"refit.gate_margin": 0.5}, base, "test"),
        make_policy("ridge", {"calibration.offset_ridge": 40.0}, base, "test"),
        make_policy("late", {"label_delay": "5h"}, base, "test"),
    ]


def without_time(outcome: PolicyOutcome) -> dict[str, object]:
    return {name: getattr(outcome, name) for name in outcome.__struct_fields__ if name != "cpu_seconds"}


def test_outcomes_are_those_of_single_runs_in_order_and_are_kept(tmp_path: Path) -> None:
    told: list[Progress] = []
    made = run_policies(CELLS, policies(), 2, tmp_path, told.append)

    alone = [
        run_policy(CELLS, p.config, name=p.name, overrides=p.overrides, label_delay_panes=p.label_delay_panes)
        for p in policies()
    ]
    assert [without_time(one) for one in made] == [without_time(one) for one in alone]
    assert len(list(tmp_path.glob("*.json"))) == 4
    assert not list(tmp_path.glob("*.part"))
    assert (told[0].done, told[-1].done, told[-1].of) == (0, 4, 4)
    assert any(0 < progress.part < 4 for progress in told)
    # What is kept is not made again: no process is started, the outcomes are the very same.
    assert run_policies(CELLS, policies(), 2, tmp_path) == made


def test_it_goes_on_where_it_was_stopped_and_damaged_outcomes_are_made_again(tmp_path: Path) -> None:
    first = policies()[:2]
    stopped = []

    def stop(progress: Progress) -> None:
        if progress.done == 1:
            stopped.append(progress)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_policies(CELLS, first, 1, tmp_path, stop)
    (kept,) = tmp_path.glob("*.json")
    before = kept.read_bytes()
    made = run_policies(CELLS, first, 1, tmp_path)
    assert kept.read_bytes() == before
    assert [one.policy for one in made] == ["current", "margin"]
    kept.write_bytes(before[:-10])
    assert [without_time(one) for one in run_policies(CELLS, first, 1, tmp_path)] == [without_time(o) for o in made]


def test_a_policy_that_fails_is_named_and_ends_no_other(tmp_path: Path) -> None:
    good, *_ = policies()
    other_panes = config().model_copy(update={"windows": config().windows.model_copy(update={"pane_ms": 7_200_000})})
    bad = Policy("broken", {}, other_panes)
    with pytest.raises(BacktestError, match=r"1 of 2 policies failed:\nbroken: HistoryError: .*windows\.pane"):
        run_policies(CELLS, [bad, good], 1, tmp_path)
    failed: list[tuple[str, str]] = []
    made = run_policies(
        CELLS, [bad, good], 1, tmp_path, on_failed=lambda policy, error: failed.append((policy.name, error))
    )
    assert [one.policy for one in made] == ["current"]
    assert [name for name, _ in failed] == ["broken"]


class _Deadly(tuple[str, ...]):
    """Values of a signature that kill the process which unpickles them."""

    def __reduce__(self) -> tuple[Callable[[], NoReturn], tuple[()]]:
        return _die, ()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_process_that_dies_before_it_has_read_the_history_is_not_waited_for(tmp_path: Path) -> None:
    much = "x" * 10_000_000  # behind the signatures, and more than any pipe takes unread
    deadly = replace(CELLS, signatures={**CELLS.signatures, 1: _Deadly()}, source=much)
    failed: list[tuple[str, str]] = []
    made = run_policies(
        deadly, policies()[:1], 1, tmp_path, on_failed=lambda policy, error: failed.append((policy.name, error))
    )
    assert not made
    assert failed == [
        ("current", "its process was ended by SIGKILL before it had read the history; is there memory enough?")
    ]


def test_outcomes_of_other_code_are_not_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policies()[0]
    own = OutcomeFolder(tmp_path, "history", 14).path(policy)
    assert OutcomeFolder(tmp_path, "history", 14).path(policy) == own
    (tmp_path / "other.py").write_text("")
    monkeypatch.setattr("stream_calib.__file__", str(tmp_path / "__init__.py"))
    assert OutcomeFolder(tmp_path, "history", 14).path(policy) != own
