"""Where the time of a monitor's batch goes, by wrapping the functions of its stages while a benchmark runs.

The product is not changed: it has a histogram of four stages of its own (workers/batch_stages.py); these are finer. A
function that is called within another one's time is taken out of that one's, so the stages add up to the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import isgeneratorfunction
from typing import Any, NamedTuple
from unittest.mock import patch

from stream_calib.windows import closer, intake, redis_calls
from stream_calib.windows.closer import Closer
from stream_calib.windows.intake import Intake
from stream_calib.windows.read_inputs import ReadBlocks, ReadLabels
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from workers import monitored_model
from workers.monitor import Monitor
from workers.monitor_commits import PositionCommits

STEP = "rest of the step"
_STAGES: tuple[tuple[Any, str, str], ...] = (
    (Monitor, "_step", STEP),
    (Monitor, "_poll", "fetch"),
    (ReadBlocks, "__init__", "decode blocks"),
    (ReadLabels, "__init__", "decode labels"),
    (ReadBlocks, "of", "rows of the model key"),
    (ReadLabels, "of", "rows of the model key"),
    (RedisState, "put_signatures", "attribute values"),
    (monitored_model, "judge_records", "judge"),
    (Intake, "apply", "share out to shards"),
    (intake, "_calls", "share out to shards"),
    (redis_calls, "apply_call", "pack"),
    (RedisShards, "apply", "round trip of apply"),
    (PositionCommits, "commit", "commit positions"),
    (Closer, "advance", "commit, decide"),
    (closer, "read_scored", "close"),
    (closer, "read_matured", "mature"),
    (RedisShards, "remove", "remove"),
)
"""Where a function is looked up, its name, its stage."""

STAGES = tuple(dict.fromkeys(stage for _, _, stage in (*_STAGES[1:], _STAGES[0])))
"""In the order of a batch."""


class StageTime(NamedTuple):
    """Seconds so far."""

    wall_s: float
    own_cpu_s: float
    """Of the thread that runs the role; what is missing from `wall_s` is waiting."""


class StageClock:
    """Times per stage, of one thread."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.perf_counter_ns,
        own_cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._wall_ns, self._own_cpu_ns = wall_ns, own_cpu_ns
        self._spent = {stage: [0, 0] for stage in STAGES}
        self._inner: list[list[int]] = []
        """Of each function that is running: nanoseconds of those within it."""

    def times(self) -> dict[str, StageTime]:
        """Stage -> seconds since the clock was made."""
        return {stage: StageTime(wall / 1e9, cpu / 1e9) for stage, (wall, cpu) in self._spent.items()}

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added to the stage; a generator is run to its end."""
        spent, inner, whole = self._spent[stage], self._inner, isgeneratorfunction(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            within = [0, 0]
            inner.append(within)
            wall, cpu = self._wall_ns(), self._own_cpu_ns()
            try:
                found = function(*args, **kwargs)
                return iter(list(found)) if whole else found
            finally:
                took = self._wall_ns() - wall, self._own_cpu_ns() - cpu
                inner.pop()
                for i in (0, 1):
                    spent[i] += took[i] - within[i]
                    if inner:
                        inner[-1][i] += took[i]

        return call


@contextmanager
def stage_clock() -> Iterator[StageClock]:
    """A clock of all monitors of this process, as long as the context lasts."""
    clock = StageClock()
    with ExitStack() as patches:
        for owner, name, stage in _STAGES:
            patches.enter_context(patch.object(owner, name, clock.timed(stage, getattr(owner, name))))
        yield clock
