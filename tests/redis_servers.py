"""Redis-compatible servers as operators run them, as local processes: a primary with a replica under Sentinels, and a
Cluster. For tests that kill, pause, demote and fail over.

Each server is held by a shell that kills it when the pipe from this process closes, so none outlives the tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from stream_calib.transport.embedded_server import find_server

_HOLDER = """
"$@" >/dev/null 2>&1 &
server=$!
echo $server
exec >&-
read -r _
kill -9 $server 2>/dev/null
wait $server
"""
_DEADLINE_S = 30.0
_SERVICE = "mymaster"


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = _DEADLINE_S) -> None:
    """Asks again until the condition holds; servers that do not answer yet count as "not yet"."""
    give_up, last = time.monotonic() + deadline_s, "it did not hold"
    while time.monotonic() < give_up:
        try:
            if condition():
                return
        except RedisError as error:
            last = str(error)
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {deadline_s:.0f} s ({last})")


class RedisProcess:
    """One server on a port of its own; `start` after `kill` brings it back on the same data."""

    def __init__(self, directory: Path, options: Sequence[str] = (), *, port: int | None = None) -> None:
        self.port = port if port is not None else free_ports(1)[0]
        self.pid = 0
        self._directory = directory
        self._options = tuple(options)
        self._holder: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        """A bare client without retries."""
        return redis.Redis(port=self.port, socket_timeout=5.0, retry=Retry(NoBackoff(), 0))

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        command = ["sh", "-c", _HOLDER, "holder", *self._command()]
        self._holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert self._holder.stdout is not None
        self.pid = int(self._holder.stdout.readline())
        with self.client() as client:
            wait_until(client.ping, f"server on port {self.port}")

    def kill(self) -> None:
        """As a crash would."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        assert holder.stdin is not None
        assert holder.stdout is not None
        os.kill(self.pid, signal.SIGKILL)  # the holder has not reaped it, so the id cannot be another process's
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _command(self) -> list[str]:
        return [
            *(str(find_server()), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)),
            *("--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction", "--logfile", "server.log"),
            *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *self._options),
        ]


class _SentinelProcess(RedisProcess):
    def __init__(self, directory: Path, primary: RedisProcess) -> None:
        super().__init__(directory)
        self._primary = primary

    def _command(self) -> list[str]:
        written = self._directory / "sentinel.conf"
        written.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._directory}\nlogfile sentinel.log\n"
            f"sentinel monitor {_SERVICE} 127.0.0.1 {self._primary.port} 2\n"
            f"sentinel down-after-milliseconds {_SERVICE} 500\n"
            f"sentinel failover-timeout {_SERVICE} 3000\n"
        )
        return [str(find_server()), str(written), "--sentinel"]


class WatchedPair:
    """A primary and a replica, watched by three Sentinels. Context manager."""

    service = _SERVICE

    def __init__(self, options: Sequence[str] = ()) -> None:
        """`options`: of both servers."""
        self._directory = Path(tempfile.mkdtemp(prefix="sc-sentinel-"))
        first = RedisProcess(self._directory / "0", options)
        second = RedisProcess(self._directory / "1", (*options, "--replicaof", "127.0.0.1", str(first.port)))
        self.servers = [first, second]
        self.sentinels = [_SentinelProcess(self._directory / f"sentinel{n}", first) for n in range(3)]

    @property
    def addresses(self) -> list[str]:
        """host:port of each Sentinel."""
        return [sentinel.address for sentinel in self.sentinels]

    def __enter__(self) -> WatchedPair:
        for process in (*self.servers, *self.sentinels):
            process.start()
        with self.servers[1].client() as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica follows")
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                wait_until(lambda c=client: self._knows_all(c), "the Sentinels know each other")  # type: ignore[misc]  # mypy cannot infer it
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.sentinels, *self.servers):
            process.kill()
        shutil.rmtree(self._directory)

    def primary(self) -> RedisProcess:
        """The server that all Sentinels call the primary, once they agree."""
        found: set[int] = set()

        def agreed() -> bool:
            found.clear()
            for sentinel in self.sentinels:
                with sentinel.client() as client:
                    found.add(int(client.sentinel_get_master_addr_by_name(_SERVICE)[1]))
            return len(found) == 1

        wait_until(agreed, "the Sentinels agree")
        return next(server for server in self.servers if server.port in found)

    def fail_over(self) -> None:
        """The Sentinels make the replica the primary, in good order; returns when they have."""
        before = self.primary()
        with self.sentinels[0].client() as client:
            client.execute_command("SENTINEL", "FAILOVER", _SERVICE)
        wait_until(lambda: self.primary() is not before, "failed over")

    def wait_for_another_primary(self, than: RedisProcess) -> None:
        wait_until(lambda: self.primary() is not than, "failed over")

    def _knows_all(self, client: redis.Redis) -> bool:
        state: Any = client.sentinel_master(_SERVICE)
        return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == 2)


class RedisClusterServers:
    """A Redis Cluster of three primaries, each with so many replicas. Context manager."""

    def __init__(self, replicas: int = 0) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sc-cluster-"))
        self._replicas = replicas
        count = 3 * (1 + replicas)
        ports = free_ports(2 * count)
        self._bus = dict(zip(ports[:count], ports[count:], strict=True))
        self.nodes = [
            RedisProcess(
                self._directory / str(n),
                (
                    *("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", str(bus)),
                    *("--cluster-replica-validity-factor", "0"),
                ),
                port=port,
            )
            for n, (port, bus) in enumerate(self._bus.items())
        ]

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def __enter__(self) -> RedisClusterServers:
        for node in self.nodes:
            node.start()
        clients = [node.client() for node in self.nodes]
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
        bounds = (0, 5461, 10923, 16384)
        for n, client in enumerate(clients[:3]):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for node in self.nodes[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, self._bus[node.port])
        for client in clients:
            wait_until(lambda c=client: self._knows(c, len(clients)), "the nodes know each other")  # type: ignore[misc]  # mypy cannot infer it
        for n, client in enumerate(clients[3:]):
            client.execute_command("CLUSTER", "REPLICATE", ids[n % 3])
        self.wait_until_whole()
        for client in clients:
            client.close()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self._directory)

    def wait_until_whole(self) -> None:
        """Until every running node says that the cluster is, and every replica follows."""
        for node in self.nodes:
            if node._holder is None:
                continue
            with node.client() as client:
                wait_until(lambda c=client: self._is_whole(c), f"the cluster is whole for {node.address}")  # type: ignore[misc]  # mypy cannot infer it

    def primary_of(self, key: str | bytes) -> RedisProcess:
        """The running node that has the key's slot."""
        for node in self.nodes:
            if node._holder is not None:
                with node.client() as client:
                    slot: int = client.execute_command("CLUSTER", "KEYSLOT", key)
                    for first, last, primary, *_ in client.execute_command("CLUSTER", "SLOTS"):
                        if first <= slot <= last:
                            return next(n for n in self.nodes if n.port == primary[1])
        raise AssertionError("no node runs")

    def replica_of(self, primary: RedisProcess) -> RedisProcess:
        for node in self.nodes:
            if node._holder is not None and node is not primary:
                with node.client() as client:
                    info: Any = client.info("replication")
                if info["role"] == "slave" and info["master_port"] == primary.port:
                    return node
        raise AssertionError("it has no replica")

    def fail_over(self, primary: RedisProcess, how: str = "") -> RedisProcess:
        """The primary's replica takes its slots over; `how`: "" in good order, "TAKEOVER" at once. The new primary."""
        replica = self.replica_of(primary)
        with replica.client() as client:
            client.execute_command("CLUSTER", "FAILOVER", *how.split())
            wait_until(lambda: client.info("replication")["role"] == "master", "failed over")
        return replica

    def begin_to_move(self, slot: int, to: RedisProcess) -> None:
        """As resharding does; `move_keys` goes on."""
        with self._owner(slot).client() as giving, to.client() as taking:
            taking.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(giving))
            giving.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(taking))

    def move_keys(self, slot: int, to: RedisProcess, count: int | None = None) -> None:
        """Moves some keys, or all and then the slot itself."""
        source = self._owner(slot)
        with source.client() as giving, to.client() as taking:
            keys = giving.execute_command("CLUSTER", "GETKEYSINSLOT", slot, count or 1_000_000)
            if keys:
                giving.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, "KEYS", *keys)
            if count is None:
                new = _id(taking)
                for node in (to, source, *self.nodes):
                    with node.client() as told:
                        info: Any = told.info("replication")
                        if info["role"] == "master":
                            told.execute_command("CLUSTER", "SETSLOT", slot, "NODE", new)

    def _owner(self, slot: int) -> RedisProcess:
        with self.nodes[0].client() as client:
            for first, last, primary, *_ in client.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(n for n in self.nodes if n.port == primary[1])
        raise AssertionError(f"nobody has slot {slot}")

    def _knows(self, client: redis.Redis, count: int) -> bool:
        return f"cluster_known_nodes:{count}" in client.execute_command("CLUSTER", "INFO").decode()

    def _is_whole(self, client: redis.Redis) -> bool:
        info: Any = client.info("replication")
        if info["role"] == "slave" and info["master_link_status"] != "up":
            return False
        if "cluster_state:ok" not in client.execute_command("CLUSTER", "INFO").decode():
            return False
        slots: Any = client.execute_command("CLUSTER", "SLOTS")
        running = sum(node._holder is not None for node in self.nodes)
        return len({node[1] for _, _, *nodes in slots for node in nodes}) == running


def _id(client: redis.Redis) -> str:
    found: bytes = client.execute_command("CLUSTER", "MYID")
    return found.decode()


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens on, low enough for a cluster's own."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
