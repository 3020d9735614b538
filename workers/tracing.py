"""Traces of batches over OpenTelemetry, an optional extra; while `telemetry.traces` is off, nothing of it is imported.

Where to, how much is sampled and what the service is called come from OpenTelemetry's own variables (OTEL_*).
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from stream_calib.config_connections import TelemetrySection
from stream_calib.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_SCOPE = "stream_calib"
_FLUSH_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class TimedStage:
    """One stage of a batch: wall time at which it began, and how long it took, nanoseconds."""

    name: str
    began_ns: int
    took_ns: int


class BatchTracer:
    """Writes a span for a batch, with one below it for each stage."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def write(
        self, name: str, stages: Sequence[TimedStage], attributes: Mapping[str, str | int], error: BaseException | None
    ) -> None:
        """`stages` as they came, at least one; `error`: what the batch failed with."""
        from opentelemetry.trace import StatusCode, set_span_in_context

        last = stages[-1]
        span = self._tracer.start_span(name, start_time=stages[0].began_ns, attributes=dict(attributes))
        if error is not None:
            span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        below = set_span_in_context(span)
        for stage in stages:
            inner = self._tracer.start_span(stage.name, context=below, start_time=stage.began_ns)
            inner.end(stage.began_ns + stage.took_ns)
        span.end(last.began_ns + last.took_ns)


def batch_tracer(telemetry: TelemetrySection) -> BatchTracer | None:
    """None while traces are off. What it writes is sent once `traces_sent` runs in the process."""
    if telemetry.traces == "off":
        return None
    return BatchTracer(_opentelemetry().get_tracer(_SCOPE))


@contextmanager
def traces_sent(telemetry: TelemetrySection) -> Iterator[None]:
    """Sends what is traced meanwhile; what is left at the end is sent within two seconds, or dropped.

    Raises ConfigurationError where traces are asked for and the extra is not installed.
    """
    if telemetry.traces == "off":
        yield
        return
    trace = _opentelemetry()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {"service.name": "stream-calib"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        # On a thread: it takes as long as its exporter tries, whatever timeout it is given.
        shutdown = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        shutdown.start()
        shutdown.join(_FLUSH_WITHIN_S)


def _opentelemetry() -> ModuleType:
    """The module opentelemetry.trace."""
    try:
        importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        return importlib.import_module("opentelemetry.trace")
    except ImportError as error:
        raise ConfigurationError(
            'telemetry.traces = "otlp" needs OpenTelemetry, which is not installed: pip install'
            f" 'stream-calib[otel]', or set it to \"off\" ({error})"
        ) from error
