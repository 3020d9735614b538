"""A mail server that asks for TLS and a password, and keeps what it is sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

from tests.asyncio_server import AsyncioServer


class MailReceiver(AsyncioServer):
    """See the module."""

    def __init__(self, certificate: Path, passwords: Mapping[str, str]) -> None:
        """`certificate`: PEM file with the key; `passwords`: by user."""
        super().__init__()
        self.received: list[Envelope] = []
        self._passwords = passwords
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate)

    async def _listen(self) -> asyncio.Server:
        return await self._loop.create_server(self._protocol, "127.0.0.1", 0)

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
