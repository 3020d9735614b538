"""How much memory of a Redis-compatible server a deployment takes: the one formula, in bytes as `used_memory` counts.

docs/sizing.md explains it and shows what benchmarks/sizing.py measures against it. The constants are those of Redis 7:
what an entry, a key and a list node take is rounded up to the sizes that the allocator has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

BUCKETS_A_SHARD = 1 << 15
"""Hashes that a shard's join entries are spread over (windows/join_entry.py)."""
_KEY_PARTS = (24, 16)
"""Of the server's dictionary: entry and object; the name comes to that."""
_SHORT_NAME = 31
_ENTRY_BYTES = 21
"""A prediction and its label in a hash: field of 7, value of 10 bytes, and their lengths."""
_HELD_BYTES = 25
"""A label that waits: field of 7, value of 14 bytes, and their lengths."""
_HELD_NAME_BYTES = 11
"""Its place in the list of its pane."""
_ROW_BYTES, _DEFLATED_ROW_BYTES, _FEWEST_DEFLATED = 28.0, 22.5, 16
"""A row in a chunk, without its signature; chunks of a few rows are not shorter when they are deflated."""
_CHUNK_BYTES = 16 + 17
"""Head and snapshot version."""
_NODE_BYTES = 32
_NODE_FILL = 8_192
"""A list is cut into nodes of so many bytes, or of one longer entry."""
_MATURED_CELL_BYTES, _SCORED_CELL_BYTES = 1.6, 1.1
"""Packed, of small counts, without the signature."""
_SIGNATURE_RUN_BYTES, _SIGNATURE_BYTES = 3.0, 8.0
"""A signature where it is named again, and where it is named first."""
_RECORD_BYTES, _RECORD_PARTITION_BYTES = 420, 90
_CHECKPOINT_CELL_BYTES, _CHECKPOINT_BIT_BYTES, _LARGEST_CHECKPOINT_CELL = 2.0, 3.2, 28.0
"""Of a cell with next to no rows, more for each doubling of its rows, and at most."""
_FIT_SHARE = 0.6
"""Of the unit buckets."""
_UNIT_BUCKETS = 20
LARGEST_PACKED_HASH = 512
"""Entries beyond which the server keeps a hash as a table, by default."""
_TABLE_ENTRY_PARTS = (24, 9, 12)
"""Of a join entry there: entry, field, value."""
_TABLE_FIELD_BYTES = 24 + 8 + 32 + 16
_DECISION_BYTES, _MOVE_BYTES = 480, 330
_ALERT_BYTES = 600
_ALERTS = 1_500
_SERVER_BYTES = 400_000
"""Scripts, and what connections hold."""
_SHARD_BYTES, _SHARD_PARTITION_BYTES = 700, 700
"""Marks, counters and clock entries."""


class Load(NamedTuple):
    """What is in the server, of one model key."""

    pending: float
    """Scores that are joined: those of the horizon, both latenesses, and the panes that are kept in the join."""
    rows: float
    """Pending scores with their duplicates."""
    unscored_labels: float
    """Labels of that time without a score."""
    early_labels: float
    """Labels of that time that came before their score."""
    panes_in_join: int
    shards: int
    rows_a_call: float
    """Rows that one call brings to one shard and pane."""
    partitions: int
    """Of all inputs together."""
    kept_panes: int
    """Matured panes that are kept."""
    winners_a_pane: float
    signatures: float
    """Combinations of attribute values that are in use."""
    signature_bytes: float
    """Of one, as JSON."""
    bins: float
    """Bins of the score grid that are in use, out of 402: 2 to the power of the entropy."""
    derived_values: int = 1
    """Combinations of the attributes that are derived from time."""
    closed_panes: int = 0
    """That have not matured, and have scored cells only."""
    dictionary_epochs: int = 1
    """Parts of 30 days that the dictionary has."""
    publications: int = 0
    snapshot_bytes: float = 0.0
    """With its report."""
    name_bytes: float = 30
    """Of the name of a key."""
    allocator: str = "jemalloc"
    """Of the server; every other one is taken as that of the C library."""


class Parts(NamedTuple):
    """Bytes."""

    join: float
    held_labels: float
    rows: float
    cells: float
    records: float
    checkpoint: float
    dictionary: float
    lists: float
    fixed: float

    @property
    def total(self) -> float:
        return sum(self)


def allocated(size: float, allocator: str = "jemalloc") -> float:
    """What is taken for so many bytes. jemalloc has four sizes between each power of two and the next; the C library
    rounds up to 16, less 8."""
    if allocator != "jemalloc":
        return max(24.0, math.ceil((size + 8) / 16) * 16.0 - 8)
    if size <= 8:
        return 8.0
    if size <= 128:
        return math.ceil(size / 16) * 16.0
    step = 2.0 ** (math.floor(math.log2(math.ceil(size) - 1)) - 2)
    return math.ceil(size / step) * step


def needed(load: Load) -> Parts:
    """Bytes of one model key."""
    unscored, key = load.unscored_labels, _key_bytes(load)
    places = load.signatures * load.bins
    scored = _occupied(load.winners_a_pane, places)
    matured = _occupied(load.winners_a_pane, places * _UNIT_BUCKETS)
    runs = _occupied(load.winners_a_pane, load.signatures * _UNIT_BUCKETS)
    named = _SIGNATURE_BYTES * _occupied(load.winners_a_pane, load.signatures)
    scored_bytes = allocated(16 + scored * _SCORED_CELL_BYTES + named, load.allocator) + key
    matured_bytes = (
        allocated(16 + matured * _MATURED_CELL_BYTES + runs * _SIGNATURE_RUN_BYTES + named, load.allocator) + key
    )
    in_fits = load.winners_a_pane * load.kept_panes * _FIT_SHARE
    summed = _occupied(in_fits, places * load.derived_values)
    summed_bytes = min(
        _CHECKPOINT_CELL_BYTES + _CHECKPOINT_BIT_BYTES * math.log2(1 + in_fits / max(1.0, summed)),
        _LARGEST_CHECKPOINT_CELL,
    )
    record = allocated(_RECORD_BYTES + _RECORD_PARTITION_BYTES * load.partitions, load.allocator)
    return Parts(
        join=_hashes(load, load.pending + unscored, BUCKETS_A_SHARD * load.shards, _ENTRY_BYTES),
        held_labels=unscored * (_HELD_BYTES - _ENTRY_BYTES) + (unscored + load.early_labels) * _HELD_NAME_BYTES,
        rows=_rows(load),
        cells=load.kept_panes * (scored_bytes + matured_bytes) + load.closed_panes * scored_bytes,
        records=load.kept_panes * (record + key),
        checkpoint=summed * summed_bytes + load.signatures * _SIGNATURE_BYTES + key,
        dictionary=load.dictionary_epochs * _dictionary(load),
        lists=load.publications * (load.snapshot_bytes + 4 * _DECISION_BYTES + _MOVE_BYTES) + _alerts(load),
        fixed=_SERVER_BYTES + load.shards * (_SHARD_BYTES + _SHARD_PARTITION_BYTES * load.partitions),
    )


def _occupied(events: float, places: float) -> float:
    """Places that so many events fall into, were they spread evenly."""
    return places * -math.expm1(-events / places) if places > 0 else 0.0


def _key_bytes(load: Load) -> float:
    # The table of keys has between one and two places for each, and it is of two sizes while it grows.
    name = load.name_bytes + (2 if load.name_bytes <= _SHORT_NAME else 4)
    return sum(allocated(size, load.allocator) for size in (*_KEY_PARTS, name)) + 8 * 1.3


def _hashes(load: Load, entries: float, hashes: float, entry_bytes: float) -> float:
    """Entries spread over hashes at random: each is one block of memory that is rounded up by itself."""
    mean = entries / hashes
    if mean <= 0:
        return 0.0
    used = hashes * -math.expm1(-mean)
    if mean > LARGEST_PACKED_HASH:
        return entries * (sum(allocated(size, load.allocator) for size in _TABLE_ENTRY_PARTS) + 8 * 1.3)
    spread = 4 * math.sqrt(mean) + 4
    total = weights = 0.0
    for count in range(max(1, math.floor(mean - spread)), math.ceil(mean + spread) + 1):
        weight = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        total += weight * allocated(7 + count * entry_bytes, load.allocator)
        weights += weight
    return used * (total / weights + _key_bytes(load))


def _rows(load: Load) -> float:
    if load.rows <= 0:
        return 0.0
    in_call = max(1.0, load.rows_a_call)
    row = _ROW_BYTES if in_call < _FEWEST_DEFLATED else _DEFLATED_ROW_BYTES
    chunk = _CHUNK_BYTES + in_call * row + 8 * _occupied(in_call, load.signatures)
    entry = chunk + (3 if chunk < 64 else 4 if chunk < 4_096 else 8)
    in_node = max(1, math.floor(_NODE_FILL / entry))
    node = (allocated(7 + in_node * entry, load.allocator) + allocated(_NODE_BYTES, load.allocator)) / in_node
    return load.rows / in_call * node + load.panes_in_join * load.shards * (_key_bytes(load) + 64)


def _dictionary(load: Load) -> float:
    """256 hashes: field of up to 20 digits, value of JSON."""
    if load.signatures / 256 > LARGEST_PACKED_HASH:
        return load.signatures * (_TABLE_FIELD_BYTES + allocated(load.signature_bytes + 4, load.allocator))
    return _hashes(load, load.signatures, 256, 22 + load.signature_bytes + 2)


def _alerts(load: Load) -> float:
    return _ALERTS * _ALERT_BYTES if load.publications else 0.0
