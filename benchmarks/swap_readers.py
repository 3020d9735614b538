"""Real processes that serve by the current snapshot, as calibrate does, and say when each version was first used."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.redis_connection import connect
from stream_calib.snapshot.served_models import ServedModels
from stream_calib.windows.generations import LiveStates
from stream_calib.windows.redis_news import PointerNews
from workers.deployment import open_registry

ROWS = 500
"""Scores of a batch."""
WITHIN_S = 300.0


class Used(NamedTuple):
    """A reader's word."""

    version: str | None
    at_ns: int
    """Of the monotonic clock, which the processes of a machine share: the first batch was calibrated by it."""
    cpu_ns: int
    """That the reader took from the look at the pointer to the end of that batch."""


@contextmanager
def readers(raw: dict[str, Any], count: int, batch_ms: float, *, news: bool) -> Iterator[Callable[[str], list[Used]]]:
    """Processes that serve a batch every `batch_ms`. Given is what waits until all use a version, and then gives the
    word of each."""
    context = multiprocessing.get_context("spawn")
    ends: list[Connection] = []
    started = []
    for number in range(count):
        mine, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(raw, number, batch_ms, news, theirs), daemon=True)
        process.start()
        theirs.close()
        ends.append(mine)
        started.append(process)
    try:
        yield lambda version: [_wait_for(end, version) for end in ends]
    finally:
        for process in started:
            process.kill()
            process.join()


def _wait_for(end: Connection, version: str) -> Used:
    give_up = time.monotonic() + WITHIN_S
    while end.poll(max(0.0, give_up - time.monotonic())):
        used: Used = end.recv()
        if used.version == version:
            return used
    raise RuntimeError(f"a reader does not serve {version} after {WITHIN_S:.0f} s")


def _serve(raw: dict[str, Any], number: int, batch_ms: float, with_news: bool, end: Connection) -> None:
    config = Config.model_validate(raw)
    (key,) = configured_keys(config)
    rng = np.random.default_rng(number)
    score = rng.random(ROWS)
    signatures = [(f"carrier {c}", f"origin {o}") for c in range(8) for o in range(25)]
    index = rng.integers(0, len(signatures), ROWS).astype(np.intp)
    times_ms = np.zeros(ROWS, dtype=np.int64)
    with closing(connect(config.redis)) as client:
        heard = PointerNews(config.redis).came if with_news else lambda: False
        models = ServedModels(
            config, open_registry(client, config), LiveStates(client), lambda: time.monotonic_ns() // 1_000_000, heard
        )
        # So that the readers' polls are not in step.
        time.sleep(float(rng.uniform(0, config.serving.snapshot_poll_ms / 1000)))
        version: str | None = ""
        while True:
            began_ns = time.process_time_ns()
            models.refresh()
            served = models.serving(key).served
            if served is not None:
                served.apply(score, index, signatures, times_ms)
            if (found := None if served is None else served.version) != version:
                version = found
                end.send(Used(version, time.monotonic_ns(), time.process_time_ns() - began_ns))
            time.sleep(batch_ms / 1000)
