"""The process's HTTP server: /metrics and the routes that it is given, on a thread of its own.

One for a process, whatever roles it runs. Routes that ask for a token say so themselves (bearer_token.py).
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any

import uvicorn
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_calib import metrics
from stream_calib.config_connections import HttpSection
from stream_calib.errors import ConfigurationError

_FINISH_REQUESTS_WITHIN_S = 2
_END_WITHIN_S = 5.0
_SEND_WITHIN_S = 10.0


class HttpServer:
    """Serves from `start` to `stop`. Use as a context manager."""

    def __init__(self, http: HttpSection, routes: Sequence[BaseRoute] = ()) -> None:
        """`http.listen` names host and port: port 0 takes a free one, no host all IPv4 addresses."""
        self._http = http
        served = [Route("/metrics", _metrics), *routes]
        paths = frozenset(route.path for route in served if isinstance(route, Route))
        self._app = Starlette(routes=served, middleware=[Middleware(_Timed, paths=paths)])
        self.address = ""
        """host:port that it listens on, once it is started."""

    def start(self) -> None:
        """Requests are taken from now on. Raises ConfigurationError where the address, certificate or key cannot be
        used."""
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_FINISH_REQUESTS_WITHIN_S,
            ssl_certfile=self._http.tls_certificate,
            ssl_keyfile=self._http.tls_key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"http.tls_certificate = {self._http.tls_certificate}, http.tls_key = {self._http.tls_key}: cannot be"
                f" used: {error}"
            ) from error
        listening = _listen(self._http.listen)
        host, port = listening.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._server = _Server(config)
        # Until the thread takes them, requests wait in the socket's backlog.
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="http", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Requests at work are answered, within two seconds."""
        self._server.should_exit = True
        self._thread.join(_END_WITHIN_S)

    def __enter__(self) -> HttpServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "0.0.0.0"
    if int(port) > 65_535:
        raise ConfigurationError(f"http.listen = {address}: there is no port {port}; they end at 65535")
    try:
        family, _, _, _, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        both = family is socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server(where[:2], family=family, dualstack_ipv6=both)
        # Inherited by connections. asyncio sets it only on sockets of its own making; without it the second part of an
        # answer waits 40 ms for the client to acknowledge the first.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise ConfigurationError(
            f"http.listen = {address}: cannot listen there: {error}; write host:port of this machine, with a free port"
        ) from error


class _Server(uvicorn.Server):
    """Closes connections that owe a request for too long: each takes one of the files that a process may have open, and
    the process's other connections are to the log and the state."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._looked_s = time.monotonic()
        self._owing: dict[Any, object] = {}
        """Connection -> the request that it was in the middle of at the last look, None before its first."""

    async def on_tick(self, counter: int) -> bool:
        now = time.monotonic()
        if now - self._looked_s >= _SEND_WITHIN_S:
            self._looked_s = now
            self._close_slow()
        return await super().on_tick(counter)

    def _close_slow(self) -> None:
        """Those that have sent neither the rest of their request nor another one since the last look."""
        connections: list[Any] = list(self.server_state.connections)
        owing = {one: one.cycle for one in connections if one.cycle is None or one.cycle.more_body}
        for connection, request in owing.items():
            if connection in self._owing and self._owing[connection] is request:
                connection.transport.close()
        self._owing = owing


async def _metrics(request: Request) -> Response:
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(REGISTRY), media_type=content_type)


class _Timed:
    """Observes how long each request took, and how it was answered."""

    def __init__(self, app: ASGIApp, paths: frozenset[str]) -> None:
        """`paths`: those that may be a label; what else is asked for is anybody's choice."""
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, began = 500, time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = scope["path"] if scope["path"] in self._paths else "other"
            metrics.HTTP_SECONDS.labels(route, str(status)).observe(time.perf_counter() - began)
