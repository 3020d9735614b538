"""How much memory the state needs, by the formula of sizing.py and by what the stored state shows, and whether the
servers have it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from redis.exceptions import NoPermissionError

from stream_calib.config import Config
from stream_calib.config_values import duration_text
from stream_calib.errors import StateUnavailableError
from stream_calib.redis_checks import size_text
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import answering
from stream_calib.windows.cells import ScoredCells
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.shard_store import ShardStore
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS, StateStore
from workers.findings import Finding
from workers.sizing import BUCKETS_A_SHARD, LARGEST_PACKED_HASH, Load, Parts, needed

_FORK_FACTOR = 1.5
"""Writes while the server forks for a dump or a rewrite copy pages; so much of the state is reckoned with."""
_SAMPLED_PANES = 24
_CALLS_A_SECOND = 20
"""Of a monitor, to each shard, where it keeps up."""
_BINS = 100
"""Of the score grid that are in use, where nothing has matured yet."""


class Observed(NamedTuple):
    """What the newest panes of a model key show."""

    bytes_a_pane: float
    """Of its blobs."""
    signatures: int
    signature_bytes: float
    bins: float
    checkpoint_bytes: int
    snapshot_bytes: float
    """Of the served one with the newest report."""


class Estimate(NamedTuple):
    """Bytes of the state of all model keys."""

    events_per_s: float
    pending_scores: int
    join_bytes: int
    """Join entries and rows; in proportion to the pending scores."""
    cells_bytes_a_day: int | None
    """None before a pane has matured."""
    kept_bytes: int
    """All else: cells for as long as they are kept, checkpoints, dictionaries, lists."""
    entries_a_hash: float
    """Mean of the join's hashes, which are packed up to LARGEST_PACKED_HASH entries."""

    @property
    def total_bytes(self) -> int:
        return self.join_bytes + self.kept_bytes


def estimate(config: Config, events_per_s: float, stores: Sequence[StateStore]) -> Estimate:
    """`events_per_s`: of the scores topic. `stores`: the state of each model key, for what their newest panes show.

    Raises StateUnavailableError, and StateError for damaged cells.
    """
    models = len(config.score_models()) + (config.fused() is not None)
    observed = [found for store in stores if (found := _observed(store)) is not None]
    parts = [_parts(config, events_per_s, observed[i] if i < len(observed) else None) for i in range(models)]
    # Beyond the configured ones there may be models that the records name; their traffic is in the rate already.
    parts += [_parts(config, 0.0, found) for found in observed[models:]]
    join = sum(p.join + p.rows + p.held_labels for p in parts)
    pending = round(_pending(config, events_per_s)) * models
    a_day = [found.bytes_a_pane * 86_400_000 / config.windows.pane_ms for found in observed]
    kept = sum(p.total for p in parts) - join
    in_hash = _pending(config, events_per_s) / (BUCKETS_A_SHARD * config.windows.shards)
    return Estimate(events_per_s, pending, round(join), round(sum(a_day)) if a_day else None, round(kept), in_hash)


def _waiting_ms(config: Config) -> int:
    """How long a score waits until its pane is removed."""
    windows = config.windows
    kept_ms = windows.horizon_ms + windows.score_lateness_ms + windows.label_lateness_ms
    return kept_ms + (windows.keep_panes + 2) * windows.pane_ms


def _pending(config: Config, events_per_s: float) -> float:
    return events_per_s * config.scores.sample_rate * _waiting_ms(config) / 1_000


def _parts(config: Config, events_per_s: float, found: Observed | None) -> Parts:
    windows, joined_per_s = config.windows, events_per_s * config.scores.sample_rate
    kept_panes, pending = config.kept_panes(), _pending(config, events_per_s)
    kept = kept_panes.archive + kept_panes.between_checkpoints
    load = Load(
        pending=pending,
        rows=pending,
        unscored_labels=0.0,
        early_labels=0.0,
        panes_in_join=-(-_waiting_ms(config) // windows.pane_ms),
        shards=windows.shards,
        rows_a_call=min(max(1.0, joined_per_s / windows.shards / _CALLS_A_SECOND), ShardStore.operations_a_call),
        partitions=0,
        kept_panes=kept,
        winners_a_pane=joined_per_s * windows.pane_ms / 1_000,
        signatures=1 if found is None else found.signatures,
        signature_bytes=20.0 if found is None else found.signature_bytes,
        bins=_BINS if found is None else found.bins,
        dictionary_epochs=2 + kept * windows.pane_ms // SIGNATURE_EPOCH_MS,
        publications=config.retention.publications,
        snapshot_bytes=0.0 if found is None else found.snapshot_bytes,
    )
    parts = needed(load)
    if found is None:
        return parts
    cells = kept * found.bytes_a_pane
    return parts._replace(
        cells=max(cells, 0.0), records=0.0, checkpoint=max(parts.checkpoint, float(found.checkpoint_bytes))
    )


def memory_finding(found: Estimate, limit_bytes: int | None, where_from: str, config: Config) -> Finding:
    """`limit_bytes`: memory of the servers together, None where not known. `where_from`: of the rate."""
    horizon = duration_text(config.windows.horizon_ms)
    what = (
        f"{found.events_per_s:,.1f} events/s ({where_from}) x horizon {horizon}: about {found.pending_scores:,} pending"
        f" scores, {size_text(found.join_bytes)}; what is kept beside them, {size_text(found.kept_bytes)}"
    )
    if found.cells_bytes_a_day is not None:
        what += f", with {size_text(found.cells_bytes_a_day)} of cells a day"
    if limit_bytes is None and found.entries_a_hash <= LARGEST_PACKED_HASH:
        return Finding("ok", "memory needed", what)
    if limit_bytes is None:
        return Finding("warn", "memory needed", what, _shards(found, config))
    what += f"; the server has {size_text(limit_bytes)}"
    if found.total_bytes > limit_bytes:
        todo = f"{_levers(found, limit_bytes, config)}; when it is full the monitors stop, and nothing is lost"
        return Finding("fail", "memory needed", what, todo)
    if found.total_bytes * _FORK_FACTOR > limit_bytes:
        todo = f"it fits, but a dump or rewrite needs room beside it: {_levers(found, limit_bytes, config)}"
        return Finding("warn", "memory needed", what, todo)
    if found.entries_a_hash > LARGEST_PACKED_HASH:
        return Finding("warn", "memory needed", what, _shards(found, config))
    return Finding("ok", "memory needed", what)


def _shards(found: Estimate, config: Config) -> str:
    # Half full, so that they stay packed at twice the traffic.
    shards = math.ceil(config.windows.shards * found.entries_a_hash / (LARGEST_PACKED_HASH / 2))
    return (
        f"windows.shards = {min(shards, 1024)}: with {config.windows.shards} a hash of the join has"
        f" {found.entries_a_hash:,.0f} entries, and beyond {LARGEST_PACKED_HASH} the server does not pack them"
    )


def _levers(found: Estimate, limit_bytes: int, config: Config) -> str:
    """Each with the number that would do by itself, room for a fork included."""
    memory = size_text(math.ceil(found.total_bytes * _FORK_FACTOR))
    share = (limit_bytes / _FORK_FACTOR - found.kept_bytes) / found.join_bytes if found.join_bytes else 0.0
    if share <= 0:
        days = duration_text(config.kept_panes().archive * config.windows.pane_ms)
        return f"{memory} of memory, fewer attributes, or a shorter retention.archive ({days} now)"
    levers = [f"{memory} of memory"]
    if found.entries_a_hash > LARGEST_PACKED_HASH:
        levers.append(_shards(found, config))
    sample_rate = math.floor(config.scores.sample_rate * share * 1_000) / 1_000
    if sample_rate > 0:
        levers.append(f"scores.sample_rate = {sample_rate}")
    windows, too_long_ms = config.windows, _waiting_ms(config) * (1 - share)
    if windows.horizon_ms > too_long_ms:
        hours = math.floor((windows.horizon_ms - too_long_ms) / 3_600_000)
        if hours > 0:
            levers.append(f'windows.horizon = "{hours}h"')
    fewer = math.ceil(too_long_ms / windows.pane_ms)
    if windows.keep_panes > fewer:
        levers.append(f"windows.keep_panes = {windows.keep_panes - fewer}")
    return "one of: " + ", ".join(levers)


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


def _observed(store: StateStore) -> Observed | None:
    """Over the newest panes that matured; None before the first has."""
    fields = store.read(("first_pane", "matured", "current"))
    if not fields["first_pane"] or not fields["matured"]:
        return None
    last = int(fields["matured"])
    panes = range(max(int(fields["first_pane"]), last - _SAMPLED_PANES + 1), last + 1)
    if not panes:
        return None  # before the first one has matured the cursor stands in front of it
    blobs = store.blobs([name for pane in panes for name in PaneNames.of(pane)])
    scored = store.blobs([PaneNames.of(pane).scored for pane in panes])
    cells = ScoredCells.merge([ScoredCells.unpack(blob) for blob in scored if blob is not None])
    signatures = np.unique(cells.signature)
    some = store.signatures(signatures[:100].tolist())
    encoded = [len(msgspec.json.encode(list(values))) for values in some.values()]
    share = np.bincount(cells.grid_bin, cells.n) / max(1, cells.n.sum())
    used = share[share > 0]
    reports = store.length("reports")
    beside = store.blobs(["evidence", f"snapshot:{fields['current']}"])
    report = store.entries("reports", reports - 1) if reports else []
    return Observed(
        sum(len(blob or b"") for blob in blobs) / len(panes),
        max(1, len(signatures)),
        sum(encoded) / len(encoded) if encoded else 20.0,
        float(2 ** -(used * np.log2(used)).sum()),
        len(beside[0] or b""),
        float(len(beside[1] or b"") + sum(map(len, report))),
    )
