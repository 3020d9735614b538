"""Readers of what is stored: packed cells, chunks of rows, pane records, snapshots, the decision log, alerts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stream_calib.alerts.model import Alert, make_alert
from stream_calib.errors import DamagedSnapshotError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.compiled import compile_snapshot, time_attributes
from stream_calib.snapshot.decision_log import DecisionLog, Settled, decode_entry
from stream_calib.snapshot.model import StructureSnapshot, decode_snapshot, psi_reference, resolve, version_of
from stream_calib.snapshot.operator_entries import Manual
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import PaneRecord, decode_record
from stream_calib.windows.row_codec import decode_rows, encode_rows
from stream_calib.windows.served_sums import Served, ServedClass
from stream_calib.windows.shard_store import Entry
from tests.fuzz.target import Target, told
from tests.unit.snapshot import documents
from tests.windows.join import block
from tests.windows.records import score_rows

_CELLS_HEAD, _ROWS_HEAD = 12, 16


def cells(value: bytes) -> None:
    """As they are, and with what follows the head compressed, so that what lies behind that is reached."""
    for blob in (value, value[:_CELLS_HEAD] + zlib.compress(value[_CELLS_HEAD:])):
        for kind in (ScoredCells, MaturedCells):
            try:
                found = kind.unpack(blob)
            except StateError as error:
                told(error)
                continue
            assert kind.unpack(found.pack()).pack() == found.pack()


def rows(value: bytes) -> None:
    for chunk in (value, b"\x01" + value[1:_ROWS_HEAD] + zlib.compress(value[_ROWS_HEAD:])):
        try:
            found = decode_rows([chunk])
        except StateError as error:
            told(error)
            continue
        columns = (found.event_time_ms, found.score, found.signature, found.unit_bucket, found.snapshot_index)
        assert {len(column) for column in columns} == {len(found.fingerprint)}
        assert not len(found) or int(found.snapshot_index.max()) < len(found.snapshots)


def pane_record(value: bytes) -> None:
    try:
        found = decode_record(value)
    except StateError as error:
        told(error)
        return
    assert decode_record(found.encode()) == found


def snapshot(value: bytes) -> None:
    """Under the version that these bytes have, so that it is their content that is judged."""
    for sequence in (1, 12, 13):
        version = version_of(sequence, value)
        try:
            found = decode_snapshot(version, value)
            assert found.encode() == value
            resolved = resolve(version, found, found)
            assert isinstance(found, StructureSnapshot)
            served = compile_snapshot(resolved)
            signature = tuple("x" for _ in found.map_attributes)
            p = served.apply(np.array([0.0, 0.3, 1.0]), np.zeros(3, dtype=np.intp), [signature])
            assert ((p >= 0) & (p <= 1)).all()
            psi_reference(found)
            time_attributes(found)
        except DamagedSnapshotError as error:
            told(error)


def decision(value: bytes) -> None:
    try:
        entry = decode_entry(value)
        assert decode_entry(entry.encode()) == entry
        DecisionLog().extend([value])
    except StateError as error:
        told(error)


def alert(value: bytes) -> None:
    try:
        found = Alert.decode(value)
    except StateError as error:
        told(error)
        return
    json.loads(found.encode())


_SCORED = ScoredCells.count(np.array([1, 1, 7], np.uint64), np.array([3, 3, 401], np.uint16))
_MATURED = MaturedCells.count(
    np.array([0, 19], np.uint8), np.array([1, 7], np.uint64), np.array([3, 401], np.uint16), np.array([1, -1], np.int8)
)
_ROWS = score_rows([block(("a", 1), ("b", 2), ("c", 3), snapshot="v1"), block(("d", 4))])
_RECORD = PaneRecord(
    17,
    {"accepted": 3, "winners": 2},
    {"": Served(1, ServedClass(1, 1.0, 0.5, 0.7), ServedClass())},
    {"l:t:0": {"0": 3}},
    {"s:b:0": Entry(17, 3, 5)},
    1,
    1,
    0,
    "ab",
)
_STORED = Path(documents.__file__).parent
_KEY = ModelKey("m", "1")
_SETTLED = Settled(pane=10, request_id="r", outcome="published", version="000001-89abcdef0123", report_sha256="ab")


def _opened(blob: bytes, head: int, inflate: Callable[[bytes], bytes]) -> bytes:
    return blob[:head] + inflate(blob[head:])


TARGETS = [
    Target(
        "cells",
        cells,
        [c.pack() for c in (_SCORED, _MATURED)]
        + [_opened(c.pack(), _CELLS_HEAD, zlib.decompress) for c in (_SCORED, _MATURED)],
    ),
    Target("rows", rows, [encode_rows(_ROWS), encode_rows(_ROWS.take(np.zeros(60, dtype=np.intp)))]),
    Target("pane_record", pane_record, [_RECORD.encode()]),
    Target(
        "snapshot",
        snapshot,
        [
            documents.structure().encode(),
            documents.level("000001-89abcdef0123", "r", "000001-89abcdef0123").encode(),
            (_STORED / "stored_structure.json").read_bytes(),
        ],
        cost=2,
    ),
    Target(
        "decision",
        decision,
        [
            documents.request("r", 9).encode(),
            _SETTLED.encode(),
            Manual(pane=9, actor="ann", reason="x", time_ms=1).encode(),
        ],
    ),
    Target("alert", alert, [make_alert(_KEY, "g", "psi", "open", pane=3, since_ms=5, diagnosis="d").encode()]),
]
