"""How much faster two monitors are than one: real processes that work off the same backlog, seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.join_runs import Advance, configuration
from benchmarks.join_traffic import LABEL_LAG_PANES, Traffic
from benchmarks.serve_runs import toml
from stream_calib.config import Config
from stream_calib.transport.embedded_server import EmbeddedServer
from workers.deployment import State, open_log, open_state
from workers.run import STOP_WITH_PARENT
from workers.topic_setup import create_topics

_HOURS = LABEL_LAG_PANES + 12
"""Half of the events are labels once the first ones are due."""
_FROM, _TO = 0.3, 0.9
"""The share of the backlog over which is measured: by then all processes have their partitions."""
_WITHIN_S = 600.0
_LOOK_EVERY_S = 0.02


def backlog_rate(processes: int, *, events: int, shards: int, advance: Advance) -> float:
    """Offsets a second that so many monitors go through together, of a backlog of about `events`."""
    with (
        tempfile.TemporaryDirectory(prefix="join-") as folder,
        EmbeddedServer() as log_server,
        EmbeddedServer() as state_server,
    ):
        raw = configuration("embedded", log_server.url, state_server.url, shards)
        config = Config.model_validate(raw)
        total = 0
        with open_log(config) as log:
            create_topics(log, config)
            traffic = Traffic(max(events // (2 * _HOURS - LABEL_LAG_PANES), 40), config.topics)
            for hour in range(_HOURS):
                for part in traffic.hour(hour, labels=hour >= LABEL_LAG_PANES):
                    log.produce(part.records)
                    total += len(part.records)
                    advance(part.events)
        path = Path(folder) / "join.toml"
        path.write_text(toml(raw), encoding="utf-8")
        with closing(open_state(config)) as state, _monitors(path, processes) as started:
            return _rate(state, total, started, path.parent)


def _rate(state: State, total: int, started: list[subprocess.Popen[bytes]], folder: Path) -> float:
    seen: list[tuple[float, int]] = []
    give_up = time.monotonic() + _WITHIN_S
    while not seen or seen[-1][1] < _TO * total:
        done = min(sum(mark.next for mark in one.marks.values()) for one in state.shards.progress())
        if done >= _FROM * total:
            seen.append((time.monotonic(), done))
        for number, process in enumerate(started):
            if process.poll() is not None:
                words = (folder / f"{number}.log").read_text(errors="replace")[-2_000:]
                raise RuntimeError(f"a monitor ended with {process.returncode} before it had done its work:\n{words}")
        if time.monotonic() > give_up:
            raise RuntimeError(f"{done:,} of {total:,} records were worked off within {_WITHIN_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


@contextmanager
def _monitors(config_file: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Their output goes to files beside the configuration."""
    command = [sys.executable, "-m", "workers.cli", "run", "--role", "monitor", "--config", str(config_file)]
    environ = {**os.environ, STOP_WITH_PARENT: str(os.getpid())}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            with (config_file.parent / f"{number}.log").open("wb") as output:
                started.append(
                    subprocess.Popen(
                        command, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                    )
                )
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
