"""How much memory the state needs: rate x horizon for the join, and what cells take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError

from stream_calib.config import Config
from stream_calib.config_values import duration_text
from stream_calib.errors import StateUnavailableError
from stream_calib.redis_checks import size_text
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import answering
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import StateStore
from workers.findings import Finding

PENDING_SCORE_BYTES = 47
"""Measured on Redis 7.0: row and join entry of one score that waits for its pane to be removed."""

_FORK_FACTOR = 1.5
"""Writes while the server forks for a dump or a rewrite copy pages; so much of the state is reckoned with."""
_DAY_MS = 86_400_000
_SAMPLED_PANES = 24


class Estimate(NamedTuple):
    """Bytes of the state of all model keys."""

    events_per_s: float
    pending_scores: int
    join_bytes: int
    cells_bytes_a_day: int | None
    """Of what is kept for ever; None before a pane has matured."""


def estimate(config: Config, events_per_s: float, stores: Sequence[StateStore]) -> Estimate:
    """`stores`: the state of each model key, for what their newest panes take. Raises StateUnavailableError."""
    windows = config.windows
    kept_ms = windows.horizon_ms + windows.score_lateness_ms + windows.label_lateness_ms
    kept_ms += (windows.keep_panes + 2) * windows.pane_ms
    scores = len(config.score_models()) + (config.fused() is not None)
    pending = round(events_per_s * scores * kept_ms / 1_000)
    measured = [found for store in stores if (found := _bytes_a_pane(store)) is not None]
    a_day = round(sum(measured) * _DAY_MS / windows.pane_ms) if measured else None
    return Estimate(events_per_s, pending, pending * PENDING_SCORE_BYTES, a_day)


def memory_finding(found: Estimate, limit_bytes: int | None, where_from: str, config: Config) -> Finding:
    """`limit_bytes`: memory of the servers together, None where not known. `where_from`: of the rate."""
    horizon = duration_text(config.windows.horizon_ms)
    what = (
        f"{found.events_per_s:,.1f} events/s ({where_from}) x horizon {horizon}: about {found.pending_scores:,} pending"
        f" scores, {size_text(found.join_bytes)}"
    )
    if found.cells_bytes_a_day is not None:
        what += f"; cells, which are kept, {size_text(found.cells_bytes_a_day)} a day"
    if limit_bytes is None:
        return Finding("ok", "memory needed", what)
    what += f"; the server has {size_text(limit_bytes)}"
    if found.join_bytes > limit_bytes:
        todo = "more memory, or a shorter windows.horizon; when it is full the monitors stop, and nothing is lost"
        return Finding("fail", "memory needed", what, todo)
    if found.join_bytes * _FORK_FACTOR > limit_bytes:
        todo = "it fits, but a dump or rewrite needs room beside it: more memory, or a shorter windows.horizon"
        return Finding("warn", "memory needed", what, todo)
    return Finding("ok", "memory needed", what)


def server_memory(client: RedisClient) -> int | None:
    """maxmemory, or the machine's where none is set, of all primaries; None where a server does not tell.

    Raises StateUnavailableError.
    """
    servers: list[Any] = [node for _, node in client.primaries()] if isinstance(client, ClusterClient) else [client]
    total = 0
    with answering(StateUnavailableError, "asking for the server's memory"):
        for server in servers:
            try:
                info: Mapping[str, Any] = server.info("memory")
            except NoPermissionError:
                return None
            found = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
            if not found:
                return None
            total += found
    return total


def _bytes_a_pane(store: StateStore) -> float | None:
    """Mean size of what is kept of a pane, over the newest that matured."""
    fields = store.read(("first_pane", "matured"))
    if not fields["first_pane"] or not fields["matured"]:
        return None
    last = int(fields["matured"])
    panes = range(max(int(fields["first_pane"]), last - _SAMPLED_PANES + 1), last + 1)
    if not panes:
        return None  # before the first one has matured the cursor stands in front of it
    blobs = store.blobs([name for pane in panes for name in PaneNames.of(pane)])
    return sum(len(blob or b"") for blob in blobs) / len(panes)
