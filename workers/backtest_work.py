"""A backtest from its history on: policies and faults, each outcome kept, to the document."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from stream_calib.backtest.comparison.assemble import assemble
from stream_calib.backtest.document import BacktestDocument
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.backtest.policies.parallel import Progress, run_policies
from stream_calib.backtest.policies.policy import Policy
from stream_calib.backtest.what_if.detection import detect
from stream_calib.backtest.what_if.faults import Scenario
from stream_calib.backtest.what_if.injection import inject_all
from stream_calib.errors import BacktestError
from workers.backtest_progress import Steps


class Effort(NamedTuple):
    """How policies are run."""

    processes: int
    folder: Path
    """Where outcomes are kept."""
    warm_up_days: int
    seed: int
    """Of the drawing of days."""


class Worked(NamedTuple):
    """What was made."""

    document: BacktestDocument
    failed: list[str]
    """Policies that cannot be run, and why."""


def work(
    history: CellHistory, policies: Sequence[Policy], scenarios: Sequence[Scenario], effort: Effort, steps: Steps
) -> Worked:
    """Runs all policies, and the first one, which is the current one, also over the history with each scenario.

    Raises BacktestError where the current policy cannot be run, or a fault cannot be injected; StoppedError, with what
    was done in the folder.
    """
    injected = [inject_all(history, scenario) for scenario in scenarios]
    failed: list[str] = []
    outcomes = _run(history, policies, effort, steps, failed)
    current = policies[0]
    untouched = next((outcome for outcome in outcomes if outcome.policy == current.name), None)
    if untouched is None:
        raise BacktestError("the current policy failed, so there is nothing to compare with:\n" + "\n".join(failed))
    detections = []
    if scenarios:
        with_faults = _run_with_faults([one.history for one in injected], current, effort, steps)
        for scenario, one, outcome in zip(scenarios, injected, with_faults, strict=True):
            detections.append(detect(untouched, outcome, scenario, one.history, current.config, one.notes))
    return Worked(assemble(history, outcomes, current.name, detections, effort.seed), failed)


def _run_with_faults(
    histories: Sequence[CellHistory], policy: Policy, effort: Effort, steps: Steps
) -> list[PolicyOutcome]:
    """One policy over each history, in as many processes as there may be."""
    tell, done = steps.begin("trying faults"), [0.0] * len(histories)

    def run(place: int) -> PolicyOutcome:
        def seen(progress: Progress) -> None:
            done[place] = progress.done + progress.part
            tell(sum(done), len(done), f"{sum(int(one) for one in done)} of {len(done)}")

        history = histories[place]
        (outcome,) = run_policies(history, [policy], 1, effort.folder, seen, warm_up_days=effort.warm_up_days)
        return outcome

    # Each of these threads waits for its process.
    with ThreadPoolExecutor(effort.processes) as threads:
        return list(threads.map(run, range(len(histories))))


def _run(
    history: CellHistory,
    policies: Sequence[Policy],
    effort: Effort,
    steps: Steps,
    failed: list[str],
) -> list[PolicyOutcome]:
    tell = steps.begin("trying policies")

    def seen(progress: Progress) -> None:
        said = f"{progress.done} of {progress.of}" + (f", {progress.failed} failed" if progress.failed else "")
        tell(progress.done + progress.failed + progress.part, progress.of, said)

    return run_policies(
        history,
        policies,
        effort.processes,
        effort.folder,
        seen,
        warm_up_days=effort.warm_up_days,
        on_failed=lambda policy, error: failed.append(f"{policy.name}: {error}"),
    )
