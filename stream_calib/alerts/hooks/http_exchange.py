"""One request and its answer over a socket, all of it within one time limit, however slowly the other side drips."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stream_calib.alerts.hooks.addresses import Endpoint, HttpAddress
from stream_calib.errors import HookAddressError

_CHUNK = 1 << 14
_MAX_TEXT_BYTES = 1 << 16
"""Of an answer; what is longer is not read."""


class Deadline:
    """What is left of a time limit."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """More than nothing. Raises TimeoutError where nothing is left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("time is over")
        return left


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    location: str | None
    retry_after: str | None
    text: str
    """The beginning of what came with a failure; empty otherwise."""


class Exchange:
    """A connection for one request; context manager. Everything raises TimeoutError once the time is over, and OSError
    (of TLS: ssl.SSLError) where the connection fails."""

    def __init__(self, endpoints: list[Endpoint], deadline: Deadline, connect_s: float) -> None:
        """Connects to the first that answers. `connect_s`: time limit for each."""
        self._deadline = deadline
        self._socket = _connected(endpoints, deadline, connect_s)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def tunnel(self, to: HttpAddress, authorization: str | None) -> None:
        """Asks the proxy that is at the other end to pass on everything. Raises HookAddressError where it does not."""
        host = f"[{to.host}]" if ":" in to.host else to.host
        head = [f"CONNECT {host}:{to.port} HTTP/1.1", f"Host: {host}:{to.port}"]
        head += [f"Proxy-Authorization: {authorization}"] if authorization else []
        self.sendall("\r\n".join([*head, "", ""]).encode("ascii"))
        answer = http.client.HTTPResponse(_as_socket(self), method="CONNECT")
        answer.begin()
        if answer.status != http.client.OK:
            raise HookAddressError(f"the proxy refused the way to {to.host} with status {answer.status}")

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """TLS from here on."""
        self._socket.settimeout(self._deadline.left_s())
        self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def post(self, address: HttpAddress, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """`target`: as the request line has it. Raises http.client.HTTPException where the answer is none of HTTP."""
        connection = http.client.HTTPConnection(address.host, address.port)
        connection.sock = _as_socket(self)
        own = {"Host": address.authority, "Connection": "close", "User-Agent": "stream-calib"}
        own |= {"Authorization": address.authorization} if address.authorization else {}
        connection.request("POST", target, body, {**own, **headers})
        response = connection.getresponse()
        text = "" if 200 <= response.status < 300 else _beginning(response)
        return Answer(response.status, response.headers["Location"], response.headers["Retry-After"], text)

    # --- what http.client asks of a socket

    def sendall(self, data: bytes) -> None:
        for start in range(0, len(data), _CHUNK):
            self._socket.settimeout(self._deadline.left_s())
            self._socket.sendall(data[start : start + _CHUNK])

    def makefile(self, _mode: str, *_: object) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def receive_into(self, buffer: Any) -> int:
        self._socket.settimeout(self._deadline.left_s())
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Left to the context."""


class _Reader(io.RawIOBase):
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._exchange.receive_into(buffer)


def _as_socket(exchange: Exchange) -> Any:
    """http.client sends, reads and closes, and asks for nothing else of a socket."""
    return exchange


def _beginning(response: http.client.HTTPResponse) -> str:
    try:
        return response.read(_MAX_TEXT_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""  # the status is the answer; the text only explains it


def _connected(endpoints: list[Endpoint], deadline: Deadline, connect_s: float) -> socket.socket:
    failure: OSError = TimeoutError("time is over")
    for family, address in endpoints:
        candidate = socket.socket(family, socket.SOCK_STREAM)
        try:
            candidate.settimeout(min(connect_s, deadline.left_s()))
            candidate.connect(address)
        except OSError as error:
            candidate.close()
            failure = error
        else:
            return candidate
    raise failure
