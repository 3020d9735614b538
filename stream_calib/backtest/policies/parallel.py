"""Many policies over one history, in several processes, each outcome kept as soon as it is made.

Each process is given policies that have much in common one after the other (work_order.py). After an interruption the
same call goes on with those that are not in the folder yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from stream_calib.backtest.child_process import ChildProcess
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.backtest.policies.parallel_work import Job, Told, work
from stream_calib.backtest.policies.policy import Policy
from stream_calib.backtest.policies.run import WARM_UP_DAYS
from stream_calib.backtest.policies.run_folder import OutcomeFolder
from stream_calib.backtest.policies.work_order import WorkOrder
from stream_calib.errors import BacktestError

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Read when numpy is imported: processes that each had a thread a core would only be in each other's way."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of all policies that were asked for."""

    done: int
    failed: int
    of: int
    part: float
    """Policies' worth of work done in those that run now."""


@dataclass(slots=True)
class _Process:
    number: int
    child: ChildProcess
    ready: bool = False
    """Whether it has read the history."""
    running: int | None = None
    """Place of the policy that it runs."""
    part: float = 0.0


def run_policies(
    history: CellHistory,
    policies: Sequence[Policy],
    processes: int,
    folder: Path,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    *,
    warm_up_days: int = WARM_UP_DAYS,
    on_failed: Callable[[Policy, str], None] | None = None,
) -> list[PolicyOutcome]:
    """The outcomes, in the policies' order, without those that failed.

    `folder`: where outcomes are kept; those that are there already are not made again. `on_failed`: told of each policy
    that cannot be run, and why; without it all others are run, then a BacktestError names those. Whatever ends the call
    early (KeyboardInterrupt) leaves what was done in the folder, and no process behind.
    """
    kept = OutcomeFolder(folder, history.content_sha256(), warm_up_days)
    outcomes = {place: known for place, policy in enumerate(policies) if (known := kept.read(policy)) is not None}
    failed: dict[int, str] = {}

    def tell(part: float = 0.0) -> None:
        on_progress(Progress(len(outcomes), len(failed), len(policies), part))

    tell()
    left = [place for place in range(len(policies)) if place not in outcomes]
    for place, error in _run(history, policies, left, min(processes, len(left)), kept, warm_up_days, tell):
        outcome = None if error is not None else kept.read(policies[place])
        if outcome is not None:
            outcomes[place] = outcome
        else:
            failed[place] = error or f"its outcome is not in {folder} any more"
            if on_failed is not None:
                on_failed(policies[place], failed[place])
        tell()
    if failed and on_failed is None:
        named = "\n".join(f"{policies[place].name}: {error}" for place, error in sorted(failed.items()))
        raise BacktestError(f"{len(failed)} of {len(policies)} policies failed:\n{named}")
    return [outcomes[place] for place in sorted(outcomes)]


def _run(
    history: CellHistory,
    policies: Sequence[Policy],
    left: Sequence[int],
    processes: int,
    kept: OutcomeFolder,
    warm_up_days: int,
    tell: Callable[[float], None],
) -> Iterator[tuple[int, str | None]]:
    """(place of a policy, why it failed or None) of each, as they end."""
    waiting = WorkOrder(policies, left)
    job = Job(history, policies, kept, warm_up_days)
    with _started(job, processes) as running:
        for one in running:
            _give(one, waiting)
        while busy := [one for one in running if one.running is not None]:
            for told in wait([one.child.pipe for one in busy]):
                one = next(one for one in busy if one.child.pipe is told)
                ended = _heard(one)
                if ended is None:
                    tell(sum(each.part for each in running))
                    continue
                yield ended
                if one.child.is_alive:
                    _give(one, waiting)
                elif waiting:
                    running.remove(one)
                    running.append(_start(one.number))
                    _say(running[-1], job)
                    _give(running[-1], waiting)


def _heard(one: _Process) -> tuple[int, str | None] | None:
    """What a process came to with its policy; None where it goes on."""
    place = one.running
    assert place is not None
    try:
        told: Told = one.child.pipe.recv()
    except (EOFError, OSError):
        one.running, one.part = None, 0.0
        when = "" if one.ready else " before it had read the history"
        return place, f"its process {one.child.end_text()}{when}; is there memory enough?"
    one.ready = True
    if not told.ended:
        one.part = told.part
        return None
    one.running, one.part = None, 0.0
    return place, told.error


def _give(one: _Process, waiting: WorkOrder) -> None:
    one.running = waiting.next(one.number)
    if one.running is not None:
        _say(one, one.running)


def _say(one: _Process, word: Job | int) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it has died: `_heard` hears that next, of its policy
        one.child.pipe.send(word)


@contextmanager
def _started(job: Job, processes: int) -> Iterator[list[_Process]]:
    running: list[_Process] = []
    try:
        for number in range(processes):
            running.append(_start(number))  # one by one, so that an interruption leaves none behind
        for one in running:
            _say(one, job)
        yield running
    finally:
        for one in running:
            if one.running is not None or not one.ready:
                one.child.terminate()
            one.child.pipe.close()  # at its next word the process finds nobody there and ends
        for one in running:
            one.child.end()


def _start(number: int) -> _Process:
    child = ChildProcess(work)
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        child.start()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return _Process(number, child)
