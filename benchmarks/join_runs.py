"""One run of `join.py`: a monitor in this process, fed part by part; only its own steps are timed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import redis
from prometheus_client import REGISTRY

from benchmarks.join_server import ScriptCalls, ServerTotals, script_calls, totals, used_bytes, watch_calls
from benchmarks.join_stages import StageTime, stage_clock
from benchmarks.join_traffic import (
    FIRST_PANE,
    HORIZON_PANES,
    MODEL,
    PARTITIONS,
    SCORE_LATENESS,
    Part,
    Traffic,
)
from stream_calib.config import Config
from stream_calib.garbage_collection import collect_seldom
from stream_calib.redis_connection import connect
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import Log
from stream_calib.windows.state_store import StateStore
from workers.deployment import open_log, open_state
from workers.monitor import Monitor
from workers.topic_setup import create_topics

LogKind = Literal["embedded", "kafka", "librdkafka"]
_STALLED_AFTER_S = 120.0

Advance = Callable[[int], None]
"""Is told of events that are done."""


class JoinFigures(NamedTuple):
    """What one run measured."""

    pending_scores: int
    bytes_per_pending_score: float
    fill_scores_per_second: float
    fill_redis_cpu_us_per_score: float
    events: int
    seconds: float
    monitor_cpu_s: float
    """Of this process: with librdkafka its threads too."""
    redis: ServerTotals
    """Of the state's server, over the events."""
    script_calls: ScriptCalls
    panes_matured: int
    stages: Mapping[str, StageTime]
    """Of the events."""

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds

    @property
    def cpu_us_per_event(self) -> float:
        """Of the monitor and its server together: what an event would take if nothing disturbed them, and they never
        worked at the same time."""
        return 1e6 * (self.monitor_cpu_s + self.redis.cpu_s) / self.events


def configuration(kind: LogKind, log_url: str, state_url: str, shards: int) -> dict[str, Any]:
    """The raw configuration of one run: topics and groups of its own, historical records."""
    prefix = f"join-{uuid4().hex[:8]}"
    names = ("scores", "labels", "calibrated", "blocks", "dead_letters", "alerts")
    where = {"url": log_url} if kind == "embedded" else {"bootstrap_servers": log_url}
    return {
        "model": {"name": MODEL.model, "version": MODEL.version},
        "topics": {name: f"{prefix}-{name}" for name in names},
        "log": {
            "kind": kind,
            "group_prefix": prefix,
            "score_partitions": PARTITIONS,
            "label_partitions": PARTITIONS,
            **where,
        },
        "redis": {"url": state_url},
        "scores": {"time": {"path": "ts"}, "attributes": {"carrier": "carrier", "origin": "origin"}},
        "labels": {"time": {"path": "ts"}},
        "serving": {"clock_records": "off"},
        "windows": {
            "horizon": f"{HORIZON_PANES}h",
            "score_lateness": SCORE_LATENESS,
            "shards": shards,
            "max_clock_skew": "off",
            "idle_timeout": "off",
            "expire_requests": False,
        },
    }


def measure(kind: LogKind, log_url: str, *, pending: int, events: int, shards: int, advance: Advance) -> JoinFigures:
    """Fills the join with `pending` scores that wait for their labels, then measures about `events` events.

    The state has a server of its own, so that neither its memory nor its CPU is the log's.
    """
    with EmbeddedServer() as server, closing(connect(server.url)) as client:
        config = Config.model_validate(configuration(kind, log_url, server.url, shards))
        # Kafka's faster client writes, whichever of them is measured.
        writer_kind = "embedded" if kind == "embedded" else "librdkafka"
        writer = config.model_copy(update={"log": config.log.model_copy(update={"kind": writer_kind})})
        with open_log(writer) as log:
            create_topics(log, writer)
            with fed_monitor(config, log, advance) as monitor, closing(open_state(config)) as state:
                traffic = Traffic(max(pending // HORIZON_PANES, 40), config.topics)
                return _measure(monitor, traffic, events, client, state.store)


class FedMonitor:
    """A monitor that is stepped until it has applied what was written, and what that took."""

    def __init__(self, monitor: Monitor, log: Log, advance: Advance) -> None:
        self._monitor, self._log, self._advance = monitor, log, advance
        self._before = applied()
        self._written = 0
        self.seconds = self.cpu_s = 0.0

    def take(self, part: Part) -> None:
        """Writes the part, then steps until it is applied."""
        self._log.produce(part.records)
        self._written += part.events
        with self._timed():
            give_up = time.monotonic() + _STALLED_AFTER_S
            while applied() - self._before < self._written:
                self._monitor.step()
                if time.monotonic() > give_up:
                    raise RuntimeError(
                        f"the monitor has applied {applied() - self._before:,.0f} of {self._written:,} rows and labels;"
                        f" that is {_STALLED_AFTER_S:.0f} s for a part"
                    )
        self._advance(part.events)

    def until_matured(self, state: StateStore, pane: int) -> None:
        """Steps until the pane has matured."""
        give_up = time.monotonic() + _STALLED_AFTER_S
        while int(state.read(("matured",))["matured"] or -1) < pane:
            with self._timed():
                self._monitor.step()
            if time.monotonic() > give_up:
                raise RuntimeError(f"pane {pane} did not mature: {state.read(('closed', 'matured'))}")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - began
        self.cpu_s += time.process_time() - cpu


@contextmanager
def fed_monitor(config: Config, log: Log, advance: Advance) -> Iterator[FedMonitor]:
    """The role as a process runs it, but for its thread."""
    collect_seldom()
    monitor = Monitor(config)
    monitor.open()
    try:
        yield FedMonitor(monitor, log, advance)
    finally:
        monitor.close()
        gc.unfreeze()


def applied() -> float:
    """Rows and labels that monitors of this process have applied."""
    name = "stream_calib_rows_applied_total"
    return sum(REGISTRY.get_sample_value(name, {"model": str(MODEL), "side": side}) or 0.0 for side in ("s", "l"))


def _measure(monitor: FedMonitor, traffic: Traffic, events: int, client: redis.Redis, state: StateStore) -> JoinFigures:
    empty, before = used_bytes(client), totals(client)
    for pane in range(HORIZON_PANES):
        for part in traffic.hour(pane, labels=False):
            monitor.take(part)
    filled = totals(client).since(before)
    scores = traffic.scores_an_hour * HORIZON_PANES
    held = used_bytes(client) - empty
    fill_s = monitor.seconds

    watch_calls(client)
    before, wall, cpu, done = totals(client), monitor.seconds, monitor.cpu_s, 0
    pane = HORIZON_PANES
    with stage_clock() as clock:
        while done < events or pane < HORIZON_PANES + 3:
            for part in traffic.hour(pane, labels=True):
                monitor.take(part)
                done += part.events
            pane += 1
        # Labels may be an hour late, so two hours before the last one all are final.
        monitor.until_matured(state, FIRST_PANE + pane - HORIZON_PANES - 3)
    spent = totals(client).since(before)
    at = state.read(("first_pane", "matured"))
    return JoinFigures(
        pending_scores=scores,
        bytes_per_pending_score=held / scores,
        fill_scores_per_second=scores / fill_s,
        fill_redis_cpu_us_per_score=1e6 * filled.cpu_s / scores,
        events=done,
        seconds=monitor.seconds - wall,
        monitor_cpu_s=monitor.cpu_s - cpu,
        redis=spent,
        script_calls=script_calls(client, spent.scripts),
        panes_matured=int(at["matured"] or 0) - int(at["first_pane"] or 0) + 1,
        stages=clock.times(),
    )
