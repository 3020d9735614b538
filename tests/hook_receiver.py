"""A receiver of webhooks in a process of its own, which answers by the path that it is asked for.

`/ok`; `/status/<code>` and `/status/<code>/<Retry-After>`, with the query's `text` as the answer's text, and an echo of
the request where it asks for one; `/redirect/<code>/<name of LOCATIONS>`; `/services/...`:
as Slack; `/v2/enqueue`: as PagerDuty; `/hang`: no answer; `/drip`: an answer that never ends, a byte at a time; `/cut`:
the connection is closed without an answer; `/half`: an answer that promises more than comes; `/long`: 100 MB of text;
`/die`: the process kills itself with the request in its hands. It is also a proxy, which leads all tunnels to one port.

Run as a program it prints its port; standard library only, so that it is there at once.
"""

from __future__ import annotations

import argparse
import base64
import errno
import http.server
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

LOCATIONS = {
    "same": "/ok",
    "itself": "/redirect/307/itself",
    "host": "http://127.0.0.2/ok",
    "metadata": "http://169.254.169.254/latest/",
    "port": "https://127.0.0.1/ok",
    "file": "file:///etc/passwd",
}


_PORT_WITHIN_S = 30.0


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class HookReceiver:
    """Context manager: the process runs within it."""

    def __init__(self, folder: Path, certificate: Path | None = None, tunnels_to: int = 0) -> None:
        """`folder`: where it notes what it was sent; `certificate`: PEM file with the key, for TLS; `tunnels_to`: port
        of this machine."""
        self._notes = folder / "received.jsonl"
        self._scheme = "http" if certificate is None else "https"
        self._command = [sys.executable, __file__, str(self._notes)]
        self._command += ["--certificate", str(certificate)] if certificate else []
        self._command += ["--tunnels-to", str(tunnels_to)]
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
    tunnels_to: int

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._note(body)
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        what, *more = map(unquote, parts.path.removeprefix("/").split("/"))
        self.close_connection = True
        getattr(self, f"_{what}")(more, query, body)

    def _note(self, body: bytes) -> None:
        note = {
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": base64.b64encode(body).decode(),
        }
        with self.notes.open("a") as file:
            file.write(json.dumps(note) + "\n")

    def _ok(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self._answer(200, {}, b"ok")

    def _status(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        headers = {"Retry-After": more[1]} if len(more) > 1 else {}
        echo = f"{self.path} {dict(self.headers)} {body.decode()}" if "echo" in query else ""
        self._answer(int(more[0]), headers, (query.get("text", "") + echo).encode())

    def _services(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self._answer(200, {}, b"ok")

    def _v2(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self._answer(202, {}, b'{"status": "success"}')

    def _redirect(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self._answer(int(more[0]), {"Location": LOCATIONS[more[1]]}, b"")

    def _hang(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self.connection.recv(1)

    def _drip(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while True:
            self.wfile.write(b"x")
            time.sleep(0.02)

    def _cut(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def _half(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 500 Sorry\r\nContent-Length: 1000\r\n\r\nhalf of it")

    def _long(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 400 Bad\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(100):
            self.wfile.write(b"x" * 1_000_000)

    def _die(self, more: list[str], query: dict[str, str], body: bytes) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_CONNECT(self) -> None:
        self.close_connection = True
        self._note(b"")
        with socket.create_connection(("127.0.0.1", self.tunnels_to)) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {self.connection: there, there: self.connection}
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    if not (data := end.recv(1 << 16)):
                        return
                    ends[end].sendall(data)

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


def _server(port: int) -> _Server:
    """A port that was given up a moment ago may serve somebody's outgoing connection for a while."""
    give_up = time.monotonic() + _PORT_WITHIN_S
    while True:
        try:
            return _Server(("127.0.0.1", port), _Handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > give_up:
                raise
        time.sleep(0.05)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("notes", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate")
    parser.add_argument("--tunnels-to", type=int, default=0)
    given = parser.parse_args()
    _Handler.notes, _Handler.tunnels_to = given.notes, given.tunnels_to
    server = _server(given.port)
    if given.certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(given.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _main()
