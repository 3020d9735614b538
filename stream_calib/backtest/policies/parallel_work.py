"""What a process of `run_policies` does: one policy after the other, as it is told."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.policies.policy import Policy
from stream_calib.backtest.policies.run import run_policy
from stream_calib.backtest.policies.run_folder import OutcomeFolder
from stream_calib.backtest.policies.shared_fits import SharedFits
from stream_calib.errors import StreamCalibError
from stream_calib.garbage_collection import collect_seldom


@dataclass(frozen=True, slots=True)
class Job:
    """All that a process is given."""

    history: CellHistory
    policies: Sequence[Policy]
    kept: OutcomeFolder
    warm_up_days: int


class Told(NamedTuple):
    """A process's word on the policy that it runs."""

    ended: bool
    part: float
    """Share of it that is done."""
    error: str | None = None
    """Why it failed, where it did."""


def work(asked: Connection) -> None:
    """Takes a Job, says that it is there, and runs the policies whose places come in, until the other side is gone."""
    try:
        job: Job = asked.recv()
        collect_seldom()
        asked.send(Told(False, 0.0))
        shared = SharedFits(job.history)
        while True:
            place: int = asked.recv()
            asked.send(_done(job, shared, job.policies[place], asked))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _done(job: Job, shared: SharedFits, policy: Policy, asked: Connection) -> Told:
    try:
        outcome = run_policy(
            job.history,
            policy.config,
            name=policy.name,
            overrides=policy.overrides,
            warm_up_days=job.warm_up_days,
            label_delay_panes=policy.label_delay_panes,
            shared=shared,
            on_progress=lambda done, of: asked.send(Told(False, done / of if of else 1.0)),
        )
        job.kept.write(policy, outcome)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except (StreamCalibError, OSError) as error:
        return Told(True, 1.0, f"{type(error).__name__}: {error}")
    except Exception:  # a fault of the program: the other policies are run all the same, and the caller is told in full
        return Told(True, 1.0, traceback.format_exc())
    return Told(True, 1.0)
