"""The image's health check, as the engine runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HEALTHCHECK = Path(__file__).parents[2] / "deploy/healthcheck.py"


@contextmanager
def _answering(code: int, body: bytes) -> Iterator[int]:
    """A server on a port that answers /healthz so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as it is overridden
            """Nothing into the tests' output."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _check(listen: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "STREAM_CALIB_HTTP_LISTEN": listen}
    return subprocess.run([sys.executable, str(HEALTHCHECK)], env=environ, capture_output=True, text=True, timeout=30)


def test_a_role_that_comes_round_is_healthy() -> None:
    with _answering(200, b"{}") as port:
        assert _check(f"0.0.0.0:{port}").returncode == 0
        assert _check(f"[::]:{port}").returncode == 0


def test_a_role_that_hangs_is_not_and_the_reason_is_shown() -> None:
    with _answering(503, b'{"roles": {"calibrate": "has not come round for 80 s"}}') as port:
        done = _check(f"0.0.0.0:{port}")
    assert done.returncode == 1
    assert "calibrate" in done.stdout


def test_a_process_that_does_not_listen_is_not_healthy() -> None:
    with _answering(200, b"{}") as port:
        pass
    done = _check(f"0.0.0.0:{port}")
    assert done.returncode == 1
    assert "refused" in done.stdout
