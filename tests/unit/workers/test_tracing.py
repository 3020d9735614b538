"""Stages of batches: what is counted, and what an OpenTelemetry collector gets."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from prometheus_client import REGISTRY

from stream_calib.config_connections import TelemetrySection
from stream_calib.errors import ConfigurationError, FencedError, TransportError
from workers.batch_stages import Batches
from workers.tracing import BatchTracer, TimedStage, batch_tracer, traces_sent

OFF, OTLP = TelemetrySection(), TelemetrySection(traces="otlp")


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_batch_with_records_is_counted_by_stage() -> None:
    batches = Batches("tested", OFF)
    with batches.next() as batch:
        with batch.stage("fetch"):
            pass
        batch.read("scores", 3)
        batch.read("labels", 4)
        with batch.stage("commit"):
            pass
    assert sample("stream_calib_batch_records_sum", role="tested") == 7
    assert sample("stream_calib_records_read_total", role="tested", topic="labels") == 4
    for stage in ("fetch", "commit"):
        assert sample("stream_calib_batch_stage_seconds_count", role="tested", stage=stage) == 1
    assert sample("stream_calib_commits_total", role="tested", outcome="committed") == 1


def test_a_poll_without_records_leaves_no_trace() -> None:
    batches = Batches("idle", OFF)
    with batches.next() as batch:
        with batch.stage("fetch"):
            pass
        batch.read("scores", 0)
    assert sample("stream_calib_batch_records_count", role="idle") == 0
    assert sample("stream_calib_batch_stage_seconds_count", role="idle", stage="fetch") == 0


@pytest.mark.parametrize(("error", "outcome"), [(FencedError("other"), "fenced"), (TransportError("away"), "failed")])
def test_a_commit_that_fails_is_counted_and_passes_its_error_on(error: Exception, outcome: str) -> None:
    batches, before = Batches("failing", OFF), sample("stream_calib_commits_total", role="failing", outcome=outcome)
    with pytest.raises(type(error)):
        _commit(batches, error)
    assert sample("stream_calib_commits_total", role="failing", outcome=outcome) == before + 1
    assert sample("stream_calib_commits_total", role="failing", outcome="committed") == 0


def _commit(batches: Batches, error: Exception) -> None:
    with batches.next() as batch:
        batch.read("scores", 1)
        with batch.stage("commit"):
            raise error


def test_while_traces_are_off_nothing_of_it_is_imported() -> None:
    program = """
import sys
from stream_calib.config_connections import TelemetrySection
from workers.batch_stages import Batches
from workers.tracing import traces_sent
import workers.run
with traces_sent(TelemetrySection()):
    assert Batches("calibrate", TelemetrySection()).tracer is None
# redis-py itself imports other parts of OpenTelemetry where they are installed.
assert "opentelemetry.exporter" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'stream-calib\[otel\]'"):
        batch_tracer(OTLP)
    with pytest.raises(ConfigurationError, match=r"pip install 'stream-calib\[otel\]'"), traces_sent(OTLP):
        pass


@contextmanager
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportTraceServiceRequest]]:
    """A receiver of OTLP over HTTP; what it got, request by request."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()


def test_a_batch_is_a_span_with_its_stages_below(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(monkeypatch) as got:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
        tracer = BatchTracer(provider.get_tracer("tested"))
        stages = [TimedStage("fetch", 1_000, 200), TimedStage("commit", 1_300, 400)]
        tracer.write("calibrate batch", stages, {"stream_calib.records": 7}, TransportError("no broker"))
    spans: dict[str, Span] = {
        span.name: span for request in got for r in request.resource_spans for s in r.scope_spans for span in s.spans
    }
    whole, fetch, commit = spans["calibrate batch"], spans["fetch"], spans["commit"]
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (1_000, 1_700)
    assert (commit.start_time_unix_nano, commit.end_time_unix_nano) == (1_300, 1_700)
    assert {fetch.parent_span_id, commit.parent_span_id} == {whole.span_id}
    assert {fetch.trace_id, commit.trace_id} == {whole.trace_id}
    assert [(a.key, a.value.int_value) for a in whole.attributes] == [("stream_calib.records", 7)]
    assert whole.status.code == Status.STATUS_CODE_ERROR
    assert whole.status.message == "TransportError: no broker"


def test_a_process_sends_what_it_traced_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(monkeypatch) as got:
        subprocess.run([sys.executable, "-c", _TRACING], check=True, timeout=30)
    (resource,) = (r for request in got for r in request.resource_spans)
    assert "stream-calib" in [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
    assert sorted(span.name for scope in resource.scope_spans for span in scope.spans) == ["fetch", "monitor batch"]


def test_a_collector_that_does_not_answer_holds_the_end_up_for_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", _TRACING], check=True, timeout=30)
        assert time.monotonic() - began < 8


_TRACING = """
from stream_calib.config_connections import TelemetrySection
from workers.batch_stages import Batches
from workers.tracing import traces_sent
telemetry = TelemetrySection(traces="otlp")
with traces_sent(telemetry):
    with Batches("monitor", telemetry).next() as batch:
        with batch.stage("fetch"):
            batch.read("blocks", 1)
"""
