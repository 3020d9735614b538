"""Connections to a Redis-compatible server, Sentinels' primary or cluster, and the Lua scripts that run there.

A lost connection is retried with backoff, so a command may be executed twice. That is safe only because every
command this project sends is idempotent: plain reads and sets are, and scripts that append carry an identity by which a
repeat is recognised. A command without that property must be sent with `retries = 0`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeAlias, overload

import redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import MasterNotFoundError
from redis.utils import HIREDIS_AVAILABLE

from stream_calib import fault_points, metrics, redis_clients
from stream_calib.config_connections import RedisSection
from stream_calib.errors import ConfigurationError, StateError, StreamCalibError
from stream_calib.redis_checks import inspect_server
from stream_calib.redis_clients import ClusterClient, RedisClient, is_worth_another_try, passes_with_time, pipelined
from stream_calib.redis_settings import redis_settings

_LOG = logging.getLogger(__name__)

_REFUSALS = ("BUSY", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN", "OOM", "UNBLOCKED")
"""Error replies of a server that works but cannot do it now. Other error replies are faults of this program."""

_GRANT = "allow this user the keys sc:* and the commands that docs/operations.md names under Rights (ACL SETUSER)"

_IN_PIPELINE = " of pipeline caused error: "
_WRAPPED_READ_ONLY = "-READONLY"
_SENTINEL_ASKED = re.compile(r"host=([^,()]+),port=([0-9]+).*?> - ([^,]+)")

_UNUSABLE = ("version", "mode", "eviction")
"""Findings that no waiting mends."""


@overload
def connect(to: str) -> redis.Redis: ...


@overload
def connect(to: RedisSection) -> RedisClient: ...


def connect(to: RedisSection | str) -> RedisClient:
    """A checked client that answers bytes. `to`: the configuration's section, or the address of a single server.

    Raises ConfigurationError where the section, the server's version or its eviction policy cannot be used, or the
    hiredis parser is missing; redis's own errors (see `answering`) where the server does not answer, or cannot be
    written to now.
    """
    client = unchecked_client(RedisSection.model_construct(url=to) if isinstance(to, str) else to)
    try:
        check_server(client)
    except BaseException:
        client.close()
        raise
    return client


def unchecked_client(section: RedisSection) -> RedisClient:
    """A client of whatever server there is, for checks. Raises ConfigurationError where the section cannot be used or
    the hiredis parser is missing."""
    if not HIREDIS_AVAILABLE:
        raise ConfigurationError("the hiredis parser is missing (replies are slow without it): pip install hiredis")
    settings = redis_settings(section)
    if section.cluster:
        return redis_clients.cluster(settings, section.retries)
    if section.sentinels:
        return redis_clients.sentinels_primary(settings, section.sentinel_service, section.retries)
    return redis_clients.one_server(settings, section.retries)


def check_server(client: RedisClient) -> None:
    """Refuses a server that would lose state, lacks commands or takes no writes; warns of one that may forget.

    Raises ConfigurationError, or redis's ReadOnlyError for what may be otherwise in a moment. An evicting policy drops
    state without an error, which nothing later could notice.
    """
    for finding in inspect_server(client):
        if finding.level == "warn" and finding.subject != "memory":
            _LOG.warning("%s", finding)
        elif finding.level == "fail" and finding.subject in _UNUSABLE:
            raise ConfigurationError(str(finding))
        elif finding.level == "fail":
            raise ReadOnlyError(str(finding))


def _reason(error: Exception) -> str:
    """What the error says; of Sentinels that did not answer, redis-py's gives all settings."""
    text = str(error).rstrip(".")
    if isinstance(error, MasterNotFoundError) and " : " in text:
        asked = _SENTINEL_ASKED.findall(text)
        return text.partition(" : ")[0] + " (" + ", ".join(f"{host}:{port}: {why}" for host, port, why in asked) + ")"
    return text


@contextmanager
def answering(error_class: type[StreamCalibError], doing: str) -> Iterator[None]:
    """Maps what a server that is away, full, busy or failing over raises to `error_class`, rights that are missing to
    ConfigurationError, and keys of another type to StateError; other error replies are bugs and pass.

    `doing` completes the sentence "... while <doing>".
    """
    try:
        yield
    except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
        metrics.STATE_ERRORS.labels("access").inc()
        todo = _GRANT if isinstance(error, NoPermissionError) else "see user and password of its address"
        raise ConfigurationError(
            f"the Redis-compatible server refused access while {doing}: {error}; {todo}"
        ) from error
    except (OutOfMemoryError, ReadOnlyError, BusyLoadingError, NoScriptError) as error:
        # A script is sent again where it is missing; that it is missing then too is somebody flushing scripts just now.
        metrics.STATE_ERRORS.labels("refused").inc()
        raise error_class(f"the Redis-compatible server refused while {doing}: {error}") from error
    except InvalidResponse as error:
        metrics.STATE_ERRORS.labels("access").inc()
        raise ConfigurationError(
            f"what answers at the address of the Redis-compatible server is none, while {doing}: {error}; correct the"
            " address"
        ) from error
    except (RedisConnectionError, RedisTimeoutError) as error:
        metrics.STATE_ERRORS.labels("away").inc()
        reason = _reason(error)
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            raise ConfigurationError(
                f"the Redis-compatible server's certificate was refused while {doing}: {reason}; see ssl_ca_certs in"
                " redis.client, or the certificate's names and dates"
            ) from error
        raise error_class(f"no answer from the Redis-compatible server while {doing}: {reason}; retry later") from error
    except ResponseError as error:
        # redis-py puts the command before the answer where it was one of a pipeline.
        answer = str(error).rpartition(_IN_PIPELINE)[2]
        if answer.startswith(_REFUSALS) or passes_with_time(error):
            metrics.STATE_ERRORS.labels("refused").inc()
            raise error_class(f"the Redis-compatible server refused while {doing}: {error}") from error
        if "DB index" in str(error):
            raise ConfigurationError(
                f"the Redis-compatible server has no database of that number ({error}), while {doing}: correct the"
                " end of its address; a cluster has only 0"
            ) from error
        if "WRONGTYPE" in str(error):
            raise StateError(
                f"the Redis-compatible server has, under a key of ours, something that is not ours, while {doing}:"
                f" {error}; whoever wrote it needs a database of its own; put a backup of this one back"
            ) from error
        raise
    except (RedisClusterException, ClusterError) as error:
        if "Cluster mode is not enabled" in str(error):
            raise ConfigurationError(
                "redis.cluster is true, but the Redis-compatible server is a single one; set it to false"
            ) from error
        if not passes_with_time(error):
            raise
        metrics.STATE_ERRORS.labels("away").inc()
        raise error_class(f"no answer from the Redis Cluster while {doing}: {error}; retry later") from error


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
        name = file_names[-1].removesuffix(".lua")
        self._seconds = metrics.STATE_CALL_SECONDS.labels(name)
        self._fault_point = f"redis.{name}"

    @cached_property
    def text(self) -> bytes:
        return b"\n".join(files(self._package).joinpath(name).read_bytes() for name in self._file_names)

    @cached_property
    def sha(self) -> str:
        # Not a security matter: EVALSHA names scripts by SHA-1.
        from hashlib import sha1

        return sha1(self.text, usedforsecurity=False).hexdigest()

    def load(self, client: RedisClient) -> None:
        """Sends the script, for callers that run it by `sha` in a pipeline of their own."""
        with answering(self._error_class, f"loading {self._file_names[-1]}"):
            client.script_load(self.text)

    def __call__(self, client: RedisClient, keys: Sequence[str | bytes], args: Sequence[str | bytes | int] = ()) -> Any:
        """The script's reply. It may be executed twice when the connection is lost, so it must be idempotent."""
        with self._seconds.time(), answering(self._error_class, f"running {self._file_names[-1]}"):
            try:
                fault_points.before(self._fault_point)
                reply = self._run(client, keys, args)
                fault_points.after(self._fault_point)
                return reply
            except ResponseError as error:
                if _WRAPPED_READ_ONLY not in str(error) or isinstance(client, ClusterClient):
                    raise
                # A replica before Redis 7, whose answer redis-py does not know for a reason to connect again.
                client.connection_pool.disconnect()
                raise ReadOnlyError(str(error)) from error

    def _run(self, client: RedisClient, keys: Sequence[str | bytes], args: Sequence[str | bytes | int]) -> Any:
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(self.text, len(keys), *keys, *args)  # type: ignore[arg-type]  # bytes are sent as they are

    def many(self, client: RedisClient, calls: Sequence[Call]) -> list[Any]:
        """The replies to several independent calls, in one round trip to each server; each may run twice, as above.

        On a cluster all keys of a call must be of one slot.
        """
        if len(calls) == 1:
            return [self(client, *calls[0])]
        with self._seconds.time(), answering(self._error_class, f"running {self._file_names[-1]}"):
            fault_points.before(self._fault_point)
            replies = pipelined(
                client, [(keys[0], ("EVALSHA", self.sha, len(keys), *keys, *args)) for keys, args in calls]
            )
            fault_points.after(self._fault_point)
        for i, reply in enumerate(replies):
            if isinstance(reply, Exception) and (isinstance(reply, NoScriptError) or is_worth_another_try(reply)):
                replies[i] = self(client, *calls[i])  # which knows what to do about it
        with answering(self._error_class, f"running {self._file_names[-1]}"):
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return replies
