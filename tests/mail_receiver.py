"""A mail server that asks for TLS and a password, and keeps what it is sent."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword


class MailReceiver:
    """Listens on a free port of 127.0.0.1. Context manager."""

    def __init__(self, certificate: Path, passwords: Mapping[str, str]) -> None:
        """`certificate`: PEM file with the key; `passwords`: by user."""
        self.received: list[Envelope] = []
        self.port = 0
        self._passwords = passwords
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> MailReceiver:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            self._loop.create_server(self._protocol, "127.0.0.1", 0), self._loop
        ).result(10)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _protocol(self) -> SMTP:
        return SMTP(
            self,
            hostname="localhost",
            tls_context=self._tls,
            require_starttls=True,
            auth_required=True,
            authenticator=self._authenticate,
            loop=self._loop,
        )

    async def handle_DATA(self, _server: SMTP, _session: Any, envelope: Envelope) -> str:  # noqa: N802 # aiosmtpd's name
        self.received.append(envelope)
        return "250 OK"

    def _authenticate(self, _server: SMTP, _session: Any, _envelope: Any, _way: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        is_right = self._passwords.get(given.login.decode()) == given.password.decode()
        return AuthResult(success=is_right, handled=False)
