"""Requests of tests, straight to the server whatever proxy the environment names."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    text: str

    @property
    def content(self) -> Any:
        """Strict JSON."""
        return json.loads(self.text, parse_constant=_refuse)


def send(
    url: str,
    body: bytes | Mapping[str, Any] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
    timeout_s: float = 30.0,
) -> Answer:
    """POST where there is a body. Raises OSError where nobody answers."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(url, data=data, headers=dict(headers or {}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as response:
            return Answer(response.status, _lower(response.headers), response.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, _lower(error.headers), error.read().decode())


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
