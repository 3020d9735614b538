"""A receiver of webhooks in a process of its own, which answers by the path that it is asked for.

`/ok`; `/status/<code>`, with the query's `text` as the answer's text and its `retry-after` as that header;
`/redirect/<code>?to=<address>`; `/hang`: no answer; `/drip`: an answer that never ends, a byte at a time; `/cut`: the
connection is closed without an answer; `/half`: an answer that promises more than comes; `/long`: 100 MB of text;
`/die`: the process kills itself with the request in its hands.

Run as a program it prints its port; standard library only, so that it is there at once.
"""

from __future__ import annotations

import argparse
import base64
import http.server
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class HookReceiver:
    """Context manager: the process runs within it."""

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        """`folder`: where it notes what it was sent; `certificate`: PEM file with the key, for TLS."""
        self._notes = folder / "received.jsonl"
        self._scheme = "http" if certificate is None else "https"
        self._command = [sys.executable, __file__, str(self._notes)]
        self._command += ["--certificate", str(certificate)] if certificate else []
        self.port = 0

    def __enter__(self) -> HookReceiver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Again at the same port, after it was killed."""
        self._process = subprocess.Popen(
            [*self._command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """With SIGKILL."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait(self) -> int:
        """For its end by itself: what ended it, negative for a signal."""
        return self._process.wait(10)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self.port}{path}"

    def received(self) -> list[Received]:
        """All requests whose body came whole, in their order."""
        if not self._notes.exists():
            return []
        lines = self._notes.read_text().splitlines()
        return [Received(n["path"], n["headers"], base64.b64decode(n["body"])) for n in map(json.loads, lines)]


class _Handler(http.server.BaseHTTPRequestHandler):
    notes: Path

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        note = {
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": base64.b64encode(body).decode(),
        }
        with self.notes.open("a") as file:
            file.write(json.dumps(note) + "\n")
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        what, _, code = parts.path.removeprefix("/").partition("/")
        self.close_connection = True
        getattr(self, f"_{what}")(int(code or 200), query)

    def _ok(self, code: int, query: dict[str, str]) -> None:
        self._answer(code, {}, b"taken")

    def _status(self, code: int, query: dict[str, str]) -> None:
        headers = {"Retry-After": query["retry-after"]} if "retry-after" in query else {}
        self._answer(code, headers, query.get("text", "").encode())

    def _redirect(self, code: int, query: dict[str, str]) -> None:
        self._answer(code, {"Location": query["to"]}, b"")

    def _hang(self, code: int, query: dict[str, str]) -> None:
        self.connection.recv(1)

    def _drip(self, code: int, query: dict[str, str]) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while True:
            self.wfile.write(b"x")
            time.sleep(0.02)

    def _cut(self, code: int, query: dict[str, str]) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def _half(self, code: int, query: dict[str, str]) -> None:
        self.wfile.write(b"HTTP/1.1 500 Sorry\r\nContent-Length: 1000\r\n\r\nhalf of it")

    def _long(self, code: int, query: dict[str, str]) -> None:
        self.wfile.write(b"HTTP/1.1 400 Bad\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(100):
            self.wfile.write(b"x" * 1_000_000)

    def _die(self, code: int, query: dict[str, str]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _answer(self, code: int, headers: dict[str, str], text: bytes) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are what it is for."""


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("notes", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate")
    given = parser.parse_args()
    _Handler.notes = given.notes
    server = _Server(("127.0.0.1", given.port), _Handler)
    if given.certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(given.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _main()
