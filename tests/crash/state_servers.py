"""The servers that hold the state in a run, and what may happen to them."""

from __future__ import annotations

import random
import resource
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from stream_calib.transport.embedded_server import EmbeddedServer, find_server
from tests.crash.faults import ServerKind
from tests.redis_servers import RedisClusterServers, WatchedPair

Undo = Callable[[], None] | None
"""What ends the trouble later; None: nothing is to be ended."""

_NO_LIMIT = resource.RLIM_INFINITY


class StateServers(ABC):
    """Context manager; `url` and `settings` are for the deployment."""

    url: str
    settings: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self._opened = ExitStack()

    def __enter__(self) -> StateServers:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def begin(self, what: str, random_: random.Random, keys: list[str]) -> Undo:
        """Makes the fault happen. `keys`: one key of each part of the state."""


class SingleServer(StateServers):
    """One server, appendonly, fsync once a second, that a full disk does not kill."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.server = EmbeddedServer(folder)
        wrapper = folder / "server"
        # A file that may grow no further answers EFBIG, as a full disk answers ENOSPC, where the signal is ignored.
        wrapper.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {find_server()} \"$@\"\n")
        wrapper.chmod(0o700)
        self.server._binary = wrapper
        self.url = self.server.url

    def _start(self) -> None:
        self._opened.enter_context(self.server)

    def begin(self, what: str, random_: random.Random, keys: list[str]) -> Undo:
        return {
            "redis_kill": self._kill,
            "redis_back": self._back,
            "redis_full": self._fill,
            "disk_full": self._fill_disk,
        }[what]()

    def _kill(self) -> None:
        self.server.kill()
        self.server.start()

    def _back(self) -> Undo:
        """To what its append-only file holds now."""
        kept, live = self._folder / "kept", self._folder / "appendonlydir"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(live, kept)

        def put_back() -> None:
            self.server.kill()
            shutil.rmtree(live)
            shutil.copytree(kept, live)
            self.server.start()

        return put_back

    def _fill(self) -> Undo:
        self._limit_memory(1)
        return lambda: self._limit_memory(0)

    def _limit_memory(self, size: int) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.config_set("maxmemory", size)

    def _fill_disk(self) -> Undo:
        pid = self.server.pid
        (file,) = (self._folder / "appendonlydir").glob("*.incr.aof")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (file.stat().st_size + 5_000, _NO_LIMIT))

        def empty() -> None:
            if self.server.pid == pid:  # else another one runs by now, without a limit
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (_NO_LIMIT, _NO_LIMIT))

        return empty


class ReplicaServers(StateServers):
    """A primary with a replica under Sentinels."""

    url = "redis://named-by-sentinels"

    def _start(self) -> None:
        self._pair = self._opened.enter_context(WatchedPair())
        self.settings = {"sentinels": self._pair.addresses}

    def begin(self, what: str, random_: random.Random, keys: list[str]) -> Undo:
        if what == "fail_over":
            self._pair.fail_over()
            return None
        assert what == "primary_kill", what
        primary = self._pair.primary()
        primary.kill()
        self._pair.wait_for_another_primary(primary)
        return primary.start  # the Sentinels make it a replica of the other one


class ClusterServers(StateServers):
    """Three primaries, each with a replica."""

    settings: Mapping[str, Any] = {"cluster": True}

    def _start(self) -> None:
        self._cluster = self._opened.enter_context(RedisClusterServers(replicas=1))
        self.url = self._cluster.url

    def begin(self, what: str, random_: random.Random, keys: list[str]) -> Undo:
        cluster, key = self._cluster, random_.choice(keys)
        primary = cluster.primary_of(key)
        if what == "fail_over":
            cluster.fail_over(primary, random_.choice(["", "TAKEOVER"]))
            cluster.wait_until_whole()
            return None
        if what == "primary_kill":
            primary.kill()
            cluster.wait_until_whole()
            return primary.start
        assert what == "move_slots", what
        others = [node for node in map(cluster.primary_of, _TAGS_OF_ALL) if node is not primary]
        target, slot = random_.choice(others), key_slot(key.encode())
        cluster.begin_to_move(slot, target)
        cluster.move_keys(slot, target, 15)
        return lambda: cluster.move_keys(slot, target)


_TAGS_OF_ALL = ("a", "b", "c", "d", "e", "f", "g", "h")
"""Keys over all primaries: their slots are far apart."""


def state_servers(kind: ServerKind, folder: Path) -> StateServers:
    if kind == "single":
        folder.mkdir(parents=True)
        return SingleServer(folder)
    return ReplicaServers() if kind == "replica" else ClusterServers()
