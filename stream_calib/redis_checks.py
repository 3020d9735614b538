"""What a Redis-compatible server is like: version, eviction, persistence, memory, role; from INFO alone, since managed
services deny CONFIG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from redis.exceptions import NoPermissionError, ResponseError

from stream_calib.redis_clients import ClusterClient, RedisClient

Level = Literal["ok", "warn", "fail"]
Subject = Literal["access", "version", "mode", "role", "eviction", "persistence", "memory", "cluster", "replicas"]

LEAST_VERSION = (6, 2)
_MEMORY_WARNING = 0.8
"""Part of the server's memory."""


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """One thing that was looked at. `fail`: state would be lost or cannot be written."""

    level: Level
    subject: Subject
    what: str
    what_to_do: str = ""
    """Empty where nothing is to be done."""
    server: str = ""
    """host:port of the server of a cluster that it is about; empty for the only one, or for the cluster as a whole."""

    def __str__(self) -> str:
        where = f" {self.server}" if self.server else ""
        return f"the Redis-compatible server{where} {self.what}" + (f": {self.what_to_do}" if self.what_to_do else "")


def inspect_server(client: RedisClient) -> list[ServerFinding]:
    """Findings about the server, the Sentinels' current primary, or every primary of the cluster.

    Raises redis's own errors (see redis_connection.answering) where a server does not answer.
    """
    if not isinstance(client, ClusterClient):
        return list(_one_server(client, "", clustered=False))
    findings = list(_cluster(client))
    for name, node in client.primaries():
        findings += _one_server(node, name, clustered=True)
    return findings


def _one_server(client: Any, server: str, *, clustered: bool) -> Iterator[ServerFinding]:
    try:
        info: Mapping[str, Any] = client.info()
    except NoPermissionError:
        yield ServerFinding(
            "warn",
            "access",
            "does not let this user run INFO, so that its version, eviction policy and persistence are not known",
            "allow it (ACL SETUSER ... +info), or see to maxmemory-policy noeviction and appendonly yes yourself",
            server,
        )
        return
    for find in (_version, _mode, _role, _eviction, _persistence, _memory):
        for level, subject, what, what_to_do in find(info, clustered):
            yield ServerFinding(level, subject, what, what_to_do, server)


_Found = Iterator[tuple[Level, Subject, str, str]]


def _version(info: Mapping[str, Any], clustered: bool) -> _Found:
    found = str(info.get("redis_version", "0"))
    parts = tuple(int(part) for part in found.split(".")[:2] if part.isdecimal())
    name = str(info.get("server_name", "redis"))
    own = f" ({name} {info[f'{name}_version']})" if f"{name}_version" in info and name != "redis" else ""
    least = ".".join(map(str, LEAST_VERSION))
    if parts < LEAST_VERSION:
        yield "fail", "version", f"is version {found}{own}", f"{least} or later is needed"
    else:
        yield "ok", "version", f"is version {found}{own}", ""


def _mode(info: Mapping[str, Any], clustered: bool) -> _Found:
    mode = info.get("redis_mode", info.get("server_mode", "standalone"))  # Valkey calls it the latter
    if mode == "cluster" and not clustered:
        yield (
            "fail",
            "mode",
            "is in cluster mode, which this connection is not for",
            "set redis.cluster = true for the state (the embedded log needs a single server)",
        )
    if mode == "sentinel":
        yield "fail", "mode", "is a Sentinel", "name it in redis.sentinels, not in the address"


def _role(info: Mapping[str, Any], clustered: bool) -> _Found:
    if info.get("role", "master") != "master":
        yield (
            "fail",
            "role",
            "is a replica, which refuses writes",
            "give the address of the primary, or let Sentinels name it (redis.sentinels)",
        )


def _eviction(info: Mapping[str, Any], clustered: bool) -> _Found:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield (
            "fail",
            "eviction",
            f"has maxmemory-policy {policy}",
            "it would drop state silently when memory is full; set maxmemory-policy noeviction",
        )
    else:
        yield "ok", "eviction", "has maxmemory-policy noeviction", ""


def _persistence(info: Mapping[str, Any], clustered: bool) -> _Found:
    replicas = int(info.get("connected_slaves", 0))
    beside = f", {replicas} replica{'s' if replicas != 1 else ''}" if replicas else ", and no replica"
    if not info.get("aof_enabled"):
        yield (
            "warn",
            "persistence",
            f"has appendonly off{beside}",
            "a restart loses all state since its last dump; set appendonly yes",
        )
    elif info.get("aof_last_write_status", "ok") != "ok":
        yield (
            "fail",
            "persistence",
            "cannot write its append-only file, and refuses writes",
            "look into its log; most often the disk is full",
        )
    else:
        yield "ok", "persistence", f"has appendonly on{beside}", ""
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield (
            "warn",
            "persistence",
            "could not save its last dump",
            "look into its log; it may refuse writes until it can (stop-writes-on-bgsave-error)",
        )


def _memory(info: Mapping[str, Any], clustered: bool) -> _Found:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    all_of_it = limit or int(info.get("total_system_memory", 0))
    whose = "maxmemory" if limit else "the machine's memory (maxmemory is not set)"
    if not all_of_it:
        return
    what = f"uses {size_text(used)} of {size_text(all_of_it)}, {whose}"
    if used > _MEMORY_WARNING * all_of_it:
        yield (
            "warn",
            "memory",
            what,
            "when it is full the monitors wait (nothing is lost); add memory, or shorten windows.horizon",
        )
    else:
        yield "ok", "memory", what, ""


def _cluster(client: ClusterClient) -> Iterator[ServerFinding]:
    try:
        info: Mapping[str, Any] = client.cluster_info()
    except (NoPermissionError, ResponseError):
        return  # it is about the whole, which the parts' own findings show well enough
    if info.get("cluster_state") != "ok":
        yield ServerFinding(
            "fail",
            "cluster",
            f"says that its cluster is in the state {info.get('cluster_state')}",
            "see `CLUSTER INFO`: slots that nobody has, or too few primaries that answer",
        )
        return
    replicas = client.get_replicas()  # type: ignore[no-untyped-call]  # redis-py
    yield ServerFinding(
        "ok", "cluster", f"is of a cluster of {len(client.primaries())} primaries and {len(replicas)} replicas"
    )


def size_text(count: int) -> str:
    """Bytes as `1.2 GB`, `34 MB`, `5 kB`."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}" if count < 10 * scale else f"{count / scale:,.0f} {unit}"
    return f"{count / 1_000:.0f} kB"
