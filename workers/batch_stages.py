"""Where the time of a batch goes: its stages, as a histogram and, where traces are on, as spans.

    with self._batches.next() as batch:
        with batch.stage("fetch"):
            polled = consumer.poll(..)
        batch.read(topic, len(polled.records))
        ...
        with batch.stage("commit"):
            consumer.commit(..)

A poll that gave no records leaves no trace.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Literal, TypeAlias

from prometheus_client import Counter

from stream_calib import metrics
from stream_calib.config_connections import TelemetrySection
from stream_calib.errors import FencedError
from workers.tracing import BatchTracer, TimedStage, batch_tracer

Stage: TypeAlias = Literal["fetch", "decode", "apply", "encode", "commit"]


class Batches:
    """The batches of one role, one after the other. Not thread-safe."""

    def __init__(self, role: str, telemetry: TelemetrySection) -> None:
        self.role = role
        self.tracer: BatchTracer | None = batch_tracer(telemetry)
        self.sizes = metrics.BATCH_RECORDS.labels(role)
        self.commits: dict[str, Counter] = {
            outcome: metrics.COMMITS.labels(role, outcome) for outcome in ("committed", "fenced", "failed")
        }

    def next(self) -> Batch:
        """A new batch, as a context manager."""
        return Batch(self)


class Batch:
    """One batch. What it held is told when the context ends, also with an error."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._stages: list[TimedStage] = []
        self._records = 0

    def stage(self, name: Stage) -> _Stage:
        """Times what is done within. What comes out of "commit" is counted by outcome."""
        return _Stage(self, name)

    def read(self, topic: str, records: int) -> None:
        """So many records were read."""
        if records:
            self._records += records
            metrics.RECORDS_READ.labels(self._batches.role, topic).inc(records)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._records:
            return
        batches = self._batches
        batches.sizes.observe(self._records)
        for stage in self._stages:
            metrics.BATCH_STAGE_SECONDS.labels(batches.role, stage.name).observe(stage.took_ns / 1e9)
        if batches.tracer is not None and self._stages:
            attributes: dict[str, str | int] = {
                "stream_calib.role": batches.role,
                "stream_calib.records": self._records,
            }
            batches.tracer.write(f"{batches.role} batch", self._stages, attributes, error)

    def _add(self, stage: TimedStage, error: BaseException | None) -> None:
        self._stages.append(stage)
        if stage.name == "commit":
            outcome = "committed" if error is None else "fenced" if isinstance(error, FencedError) else "failed"
            self._batches.commits[outcome].inc()


class _Stage:
    __slots__ = ("_batch", "_began_ns", "_from_ns", "_name")

    def __init__(self, batch: Batch, name: str) -> None:
        self._batch, self._name = batch, name

    def __enter__(self) -> None:
        self._began_ns, self._from_ns = time.time_ns(), time.perf_counter_ns()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._batch._add(TimedStage(self._name, self._began_ns, time.perf_counter_ns() - self._from_ns), error)
