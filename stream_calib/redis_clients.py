"""redis-py's clients for the three ways in which Redis is run: one server, a primary named by Sentinels, a Cluster.

All of them send a command again, with backoff, after a lost connection and after a server that has become a replica in
between; what they connect to then is the primary of that moment. Commands sent here are therefore repeatable
(redis_connection.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ClusterError,
    ReadOnlyError,
    RedisClusterException,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel

from stream_calib.redis_settings import RedisSettings

_T = TypeVar("_T")

_AWAY = (RedisConnectionError, RedisTimeoutError, ReadOnlyError)
_MOVING = (AskError, TryAgainError, ClusterDownError, SlotNotCoveredError)

_NO_TOPOLOGY = ("Redis Cluster cannot be connected", "All slots are not covered", "startup_nodes could not agree")
"""How messages of RedisClusterException begin that are of the cluster's state; others are faults of this program."""


def passes_with_time(error: Exception) -> bool:
    """Whether the same command may go well in a moment: a server away or demoted, slots that move, a failover."""
    if isinstance(error, (*_AWAY, *_MOVING)):
        return True
    if isinstance(error, RedisClusterException):
        return str(error).startswith(_NO_TOPOLOGY)
    return type(error) is ClusterError  # redirected too often


def is_worth_another_try(error: Exception) -> bool:
    """Whether it may pass within the retries. A slot that redis-py has asked for sixteen times already is being moved,
    which takes longer."""
    return passes_with_time(error) and type(error) is not ClusterError


class ClusterClient(RedisCluster):
    """redis-py's client of a Redis Cluster, with backoff between its attempts (it has none of its own)."""

    def __init__(self, host: str, port: int, *, patience: Retry, **settings: Any) -> None:
        self._patience = patience
        # One attempt of its own after it has read the topology again; everything further waits first.
        super().__init__(host=host, port=port, retry=Retry(NoBackoff(), 1), **settings)

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        return self.patiently(lambda: super(ClusterClient, self).execute_command(*args, **kwargs))  # type: ignore[no-untyped-call]  # redis-py

    def patiently(self, do: Callable[[], _T]) -> _T:
        """`do`, again and again with backoff as long as its error passes with time and there are attempts left."""
        return self._patience.call_with_retry(do, lambda error: None, is_retryable=is_worth_another_try)

    def primary_of(self, key: str | bytes) -> ClusterNode:
        """The primary that the key's slot is on, as far as known. Raises SlotNotCoveredError."""
        return self.nodes_manager.get_node_from_slot(self.keyslot(key))  # type: ignore[no-untyped-call]  # redis-py

    def primaries(self) -> list[tuple[str, redis.Redis]]:
        """host:port of each primary, and the client of it alone."""
        return [(node.name, self.get_redis_connection(node)) for node in self.get_primaries()]  # type: ignore[no-untyped-call]  # redis-py


RedisClient: TypeAlias = redis.Redis | ClusterClient


def one_server(settings: RedisSettings, retries: int) -> redis.Redis:
    return redis.Redis(**settings.client, retry=_patience(retries))


def sentinels_primary(settings: RedisSettings, service: str, retries: int) -> redis.Redis:
    """A client of whatever server the Sentinels call the primary of `service` when a connection is made."""
    sentinel = Sentinel(
        list(settings.sentinels),
        sentinel_kwargs={**settings.sentinel_client, "retry": Retry(NoBackoff(), 0)},
    )
    found: redis.Redis = sentinel.master_for(
        service, **{n: v for n, v in settings.client.items() if n not in ("host", "port")}, retry=_patience(retries)
    )
    return found


def cluster(settings: RedisSettings, retries: int) -> ClusterClient:
    """Raises redis's errors where no node answers or slots are not covered."""
    client = dict(settings.client)
    host, port = client.pop("host", "localhost"), client.pop("port", 6379)
    patience = _patience(retries)
    return patience.call_with_retry(
        lambda: ClusterClient(host, port, patience=_patience(retries), **client),
        lambda error: None,
        is_retryable=is_worth_another_try,
    )


def _patience(retries: int) -> Retry:
    return Retry(
        ExponentialWithJitterBackoff(cap=1.0, base=0.02),
        retries,
        supported_errors=(*_AWAY, *_MOVING, RedisClusterException, TimeoutError),
    )


Command: TypeAlias = Sequence[str | bytes | int]


def replies_to(client: RedisClient, commands: Sequence[tuple[str | bytes, Command]]) -> list[Any]:
    """As `pipelined`. Raises the first error among the replies."""
    replies = pipelined(client, commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def pipelined(client: RedisClient, commands: Sequence[tuple[str | bytes, Command]]) -> list[Any]:
    """Replies to commands, each with the key that it goes to: one round trip for each server, to all at once.

    A reply may be an error. On a cluster redis-py would ask a server for the keys of each script's call, so all of it
    would be sent twice; it is told the node instead.
    """
    if not isinstance(client, ClusterClient):
        pipeline = client.pipeline(transaction=False)
        for _, command in commands:
            pipeline.execute_command(*command)
        return list(pipeline.execute(raise_on_error=False))

    def once() -> list[Any]:
        pipeline = client.pipeline()  # type: ignore[no-untyped-call]  # redis-py
        for key, command in commands:
            pipeline.execute_command(*command, target_nodes=client.primary_of(key))
        return list(pipeline.execute(raise_on_error=False))

    return client.patiently(once)
