"""The implementations of the shard and state ports, with what only tests do to them: copy, roll back, wipe."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sized
from typing import Any

import pytest

from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.column_join import ColumnJoin
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.plain_join import PlainJoin
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.shard_store import ShardStore
from stream_calib.windows.state_store import StateStore

MODEL = ModelKey("m", "1")


class Backend(ABC):
    """Makes stores, each of a model of its own, and plays the failover that loses writes."""

    @abstractmethod
    def shards(self, count: int, settings: PaneSettings) -> ShardStore: ...

    @abstractmethod
    def state(self) -> StateStore: ...

    @abstractmethod
    def copy_shard(self, shards: ShardStore, shard: int) -> Any: ...

    @abstractmethod
    def put_shard(self, shards: ShardStore, shard: int, copied: Any) -> None:
        """Puts the shard back to the copy; None wipes it."""

    @abstractmethod
    def copy_state(self, state: StateStore) -> Any: ...

    @abstractmethod
    def put_state(self, state: StateStore, copied: Any) -> None: ...

    @abstractmethod
    def size(self, shards: ShardStore, shard: int) -> int:
        """How many things the shard holds beside its marks: 0 when every pane was removed."""


class MemoryBackend(Backend):
    made: type[MemoryShards] = MemoryShards

    def shards(self, count: int, settings: PaneSettings) -> ShardStore:
        return self.made(count, settings)

    def state(self) -> StateStore:
        return MemoryState()

    def copy_shard(self, shards: ShardStore, shard: int) -> Any:
        assert isinstance(shards, MemoryShards)
        return copy.deepcopy(shards._shards[shard])

    def put_shard(self, shards: ShardStore, shard: int, copied: Any) -> None:
        assert isinstance(shards, MemoryShards)
        fresh = self.made(1, shards.settings)._shards[0]
        shards._shards[shard] = fresh if copied is None else copy.deepcopy(copied)

    def copy_state(self, state: StateStore) -> Any:
        return copy.deepcopy(state.__dict__)

    def put_state(self, state: StateStore, copied: Any) -> None:
        state.__dict__.update(copy.deepcopy(copied))

    def size(self, shards: ShardStore, shard: int) -> int:
        assert isinstance(shards, MemoryShards)
        s = shards._shards[shard]
        join = s.join
        assert isinstance(join, PlainJoin | ColumnJoin)
        counts = [+found for by_pane in (s.counts, join.counts()) for found in by_pane.values()]
        parts: list[Sized] = [join._predictions, join._versions, join._rows, *counts, *s.entries.values()]
        return sum(len(part) for part in parts)


class ColumnBackend(MemoryBackend):
    made = ColumnShards


class RedisBackend(Backend):
    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self._models = 0

    def _model(self) -> ModelKey:
        self._models += 1
        return ModelKey("m", str(self._models))

    def shards(self, count: int, settings: PaneSettings) -> ShardStore:
        return RedisShards(self.client, self._model(), count, settings)

    def state(self) -> StateStore:
        return RedisState(self.client, self._model())

    def keys(self, prefix: str | bytes) -> list[bytes]:
        text = prefix.decode() if isinstance(prefix, bytes) else prefix
        return sorted(self.client.scan_iter(match=f"{text}*", count=1000))

    def copy_shard(self, shards: ShardStore, shard: int) -> Any:
        return self._copy(self._shard_tag(shards, shard))

    def put_shard(self, shards: ShardStore, shard: int, copied: Any) -> None:
        self._put(self._shard_tag(shards, shard), copied or {})

    def copy_state(self, state: StateStore) -> Any:
        assert isinstance(state, RedisState)
        return self._copy(state._tag)

    def put_state(self, state: StateStore, copied: Any) -> None:
        assert isinstance(state, RedisState)
        self._put(state._tag, copied)

    def size(self, shards: ShardStore, shard: int) -> int:
        tag = self._shard_tag(shards, shard)
        return len([key for key in self.keys(tag) if key != tag + b"m"])

    def _shard_tag(self, shards: ShardStore, shard: int) -> bytes:
        assert isinstance(shards, RedisShards)
        return shards._keys[shard].tag

    def _copy(self, tag: str | bytes) -> dict[bytes, bytes]:
        names = self.keys(tag)
        pipeline = self.client.pipeline(transaction=False)
        for name in names:
            pipeline.dump(name)
        return dict(zip(names, pipeline.execute(), strict=True))

    def _put(self, tag: str | bytes, copied: dict[bytes, bytes]) -> None:
        pipeline = self.client.pipeline(transaction=True)
        for name in self.keys(tag):
            pipeline.delete(name)
        for name, dumped in copied.items():
            pipeline.restore(name, 0, dumped)
        pipeline.execute()


BACKENDS = ["memory", *(pytest.param(kind, marks=pytest.mark.services) for kind in ("redis", "cluster"))]
"""Of states; of shards there is one more."""


@pytest.fixture(params=["columns", *BACKENDS])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each implementation, empty."""
    if request.param in ("memory", "columns"):
        yield MemoryBackend() if request.param == "memory" else ColumnBackend()
        return
    yield RedisBackend(request.getfixturevalue(f"{request.param}_client"))


@pytest.fixture
def redis_backend(redis_client: RedisClient) -> RedisBackend:
    return RedisBackend(redis_client)
