"""The bearer token of routes that ask for one: `Route(..., middleware=bearer_token(config.http))`."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from stream_calib.config_connections import HttpSection
from stream_calib.errors import ConfigurationError

_SCHEME = "bearer"


def bearer_token(http: HttpSection) -> list[Middleware]:
    """Answers requests without the token of `http.token_file` with 401; nothing where none is configured.

    Raises ConfigurationError where the file cannot be read, or is empty.
    """
    if http.token_file is None:
        return []
    try:
        token = http.token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"http.token_file = {http.token_file}: cannot be read: {error}") from error
    if not token:
        raise ConfigurationError(f"http.token_file = {http.token_file}: the file is empty; put the token into it")
    return [Middleware(_BearerToken, token=token)]


class _BearerToken:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        # Compared in constant time: how long an answer takes must not tell how much of a guess was right.
        if scheme.lower() == _SCHEME and hmac.compare_digest(given.strip().encode(), self._token):
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse(
            {"error": "this route asks for the bearer token of http.token_file: send Authorization: Bearer <token>"},
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)
