"""Connections to a Redis-compatible server, and its Lua scripts.

A lost connection is retried here with backoff, so a command may be executed twice. That is safe only because every
command this project sends is idempotent: plain reads and sets are, and scripts that append carry an identity by which a
repeat is recognised. A command without that property must be sent with `connect(..., retries=0)`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeAlias

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.utils import HIREDIS_AVAILABLE

from stream_calib.config_values import mask_url
from stream_calib.errors import ConfigurationError, StreamCalibError

_LOG = logging.getLogger(__name__)

_MIN_VERSION = (6, 2)

SOCKET_TIMEOUT_S = 10.0
"""An answer that takes longer counts as a lost connection; blocking commands must ask for less."""

_REFUSALS = ("BUSY", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN", "OOM")
"""Error replies of a server that works but cannot do it now. Other error replies are faults of this program."""


def connect(url: str, *, socket_timeout_s: float = SOCKET_TIMEOUT_S, retries: int = 4) -> redis.Redis:
    """A checked client with `decode_responses=False`.

    Raises ConfigurationError where the URL, the server's version or its eviction policy cannot be used, or the hiredis
    parser is missing; redis's own ConnectionError (see `answering`) where the server does not answer.

    `url` is `redis://`, `rediss://` or `unix://`. `retries` counts the repeats after a lost connection, with about
    20, 40, 80, ... ms between.
    """
    if not HIREDIS_AVAILABLE:
        raise ConfigurationError("the hiredis parser is missing (replies are slow without it): pip install hiredis")
    try:
        client = redis.Redis.from_url(
            url,
            protocol=2,
            decode_responses=False,
            socket_timeout=socket_timeout_s,
            socket_connect_timeout=min(socket_timeout_s, 5.0),
            retry=Retry(ExponentialWithJitterBackoff(cap=1.0, base=0.02), retries),
            health_check_interval=0,
        )
    except ValueError:
        # What it says may quote the part of the address that is wrong, and that may be of a password.
        raise ConfigurationError(
            f"Redis address {mask_url(url)} cannot be read; write redis://host:port/0, rediss://... or unix:///path"
        ) from None
    check_server(client)
    return client


def check_server(client: redis.Redis) -> None:
    """Refuses a server that would lose state or lacks commands; warns of one that forgets at a restart.

    Raises ConfigurationError. An evicting policy drops state without an error, which nothing later could notice.
    """
    info: dict[str, Any] = client.info()
    found = str(info["redis_version"])
    if tuple(int(part) for part in found.split(".")[:2]) < _MIN_VERSION:
        raise ConfigurationError(f"the Redis-compatible server is version {found}: 6.2 or later is needed")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigurationError(
            f"the Redis-compatible server has maxmemory-policy {policy}: it would drop state silently when memory is"
            " full; set maxmemory-policy noeviction"
        )
    if info.get("redis_mode") == "cluster":
        raise ConfigurationError("the Redis-compatible server is in cluster mode: not supported yet, use a single one")
    if not info.get("aof_enabled"):
        _LOG.warning("the Redis-compatible server has appendonly off: a restart loses all state since its last dump")


@contextmanager
def answering(error_class: type[StreamCalibError], doing: str) -> Iterator[None]:
    """Maps what a server that is away, full or busy raises to `error_class`; other error replies are bugs and pass.

    `doing` completes the sentence "... while <doing>".
    """
    try:
        yield
    except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
        raise ConfigurationError(f"the Redis-compatible server refused access while {doing}: {error}") from error
    except (OutOfMemoryError, ReadOnlyError, BusyLoadingError, NoScriptError) as error:
        # A script is sent again where it is missing; that it is missing then too is somebody flushing scripts just now.
        raise error_class(f"the Redis-compatible server refused while {doing}: {error}") from error
    except (RedisConnectionError, RedisTimeoutError) as error:
        reason = str(error).rstrip(".")
        raise error_class(f"no answer from the Redis-compatible server while {doing}: {reason}; retry later") from error
    except ResponseError as error:
        if str(error).startswith(_REFUSALS):
            raise error_class(f"the Redis-compatible server refused while {doing}: {error}") from error
        raise


Call: TypeAlias = tuple[Sequence[str | bytes], Sequence[str | bytes | int]]
"""Keys and arguments of one call of a script."""


class LuaScript:
    """.lua files that are package data, run as one by their hash; sent in full only where the server lacks them."""

    def __init__(self, package: str, *file_names: str, error_class: type[StreamCalibError]) -> None:
        """`package` as for importlib.resources; the last file is the script, those before define what it calls.
        `error_class` is raised when the server is away, full or busy."""
        self._package = package
        self._file_names = file_names
        self._error_class = error_class

    @cached_property
    def text(self) -> bytes:
        return b"\n".join(files(self._package).joinpath(name).read_bytes() for name in self._file_names)

    @cached_property
    def sha(self) -> str:
        # Not a security matter: EVALSHA names scripts by SHA-1.
        from hashlib import sha1

        return sha1(self.text, usedforsecurity=False).hexdigest()

    def load(self, client: redis.Redis) -> None:
        """Sends the script, for callers that run it by `sha` in a pipeline of their own."""
        with answering(self._error_class, f"loading {self._file_names[-1]}"):
            client.script_load(self.text)

    def __call__(self, client: redis.Redis, keys: Sequence[str | bytes], args: Sequence[str | bytes | int] = ()) -> Any:
        """The script's reply. It may be executed twice when the connection is lost, so it must be idempotent."""
        with answering(self._error_class, f"running {self._file_names[-1]}"):
            try:
                return client.evalsha(self.sha, len(keys), *keys, *args)
            except NoScriptError:
                return client.eval(self.text, len(keys), *keys, *args)  # type: ignore[arg-type]  # bytes are sent as they are

    def many(self, client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        """The replies to several independent calls in one round trip; each may run twice, as above."""
        if len(calls) == 1:
            return [self(client, *calls[0])]
        with answering(self._error_class, f"running {self._file_names[-1]}"):
            replies = self._pipelined(client, calls)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                again = self._pipelined(client, [calls[i] for i in missing], load=True)
                for i, reply in zip(missing, again, strict=True):
                    replies[i] = reply
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            return replies

    def _pipelined(self, client: redis.Redis, calls: Sequence[Call], *, load: bool = False) -> list[Any]:
        """`load` sends the script ahead, over the same connection: a server restarted in between lacks it again."""
        pipeline = client.pipeline(transaction=False)
        if load:
            pipeline.script_load(self.text)
        for keys, args in calls:
            pipeline.evalsha(self.sha, len(keys), *keys, *args)
        return list(pipeline.execute(raise_on_error=False))[int(load) :]
