"""Packed blocks."""

from __future__ import annotations

import struct
import zlib
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import BlockFormatError
from stream_calib.events.blocks import (
    BLOCK_ROWS,
    MAX_BLOCK_ROWS,
    BlockRows,
    blocks_of,
    pack,
    served_fixed_point,
    served_probability,
    unpack,
)
from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, ModelKey, ScoreBatch
from stream_calib.events.identity import UNIT_BUCKETS, signature_hash
from stream_calib.events.score_decoder import ScoreDecoder
from tests.unit.events.events_for_tests import T0, config, record, score

KEY = ModelKey("flights", "2")
HEAD = struct.Struct("<4sII4HI")


@st.composite
def block_rows(draw: st.DrawFn) -> BlockRows:
    n = draw(st.integers(1, 12))
    attributes = draw(st.integers(0, 3))
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    signatures = draw(st.lists(st.tuples(*[texts] * attributes), min_size=1, max_size=4))
    snapshots = draw(st.lists(texts, min_size=1, max_size=3))

    def column(strategy: st.SearchStrategy[Any], dtype: str) -> Any:
        return np.array(draw(st.lists(strategy, min_size=n, max_size=n)), dtype=dtype)

    return BlockRows(
        model_key=KEY,
        signatures=signatures,
        signature_hash=np.array([signature_hash(s) for s in signatures], dtype="<u8"),
        snapshots=snapshots,
        fingerprint=column(st.integers(0, 2**64 - 1), "<u8"),
        event_time_ms=column(st.integers(MIN_EVENT_TIME_MS, MAX_EVENT_TIME_MS - 1), "<i8"),
        score=column(st.floats(0, 1), "<f8"),
        signature_index=column(st.integers(0, len(signatures) - 1), "<u2"),
        unit_bucket=column(st.integers(0, UNIT_BUCKETS - 1), "u1"),
        snapshot_index=column(st.integers(0, len(snapshots) - 1), "u1"),
        served=column(st.integers(0, 2**32 - 1), "<u4"),
    )


def assert_equal(left: BlockRows, right: BlockRows) -> None:
    for field in fields(BlockRows):
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes(), field.name
        else:
            assert ours == theirs, field.name


def sealed(block: bytes) -> bytes:
    """The block with a checksum that fits its content, so that only the other checks stand in the way."""
    return block[:8] + struct.pack("<I", zlib.crc32(block[12:])) + block[12:]


EXAMPLE = BlockRows(
    model_key=KEY,
    signatures=[("UA", "é"), ("AA", "")],
    signature_hash=np.array([1, 2], dtype="<u8"),
    snapshots=["", "7-ab"],
    fingerprint=np.array([5, 6, 2**64 - 1], dtype="<u8"),
    event_time_ms=np.array([T0, T0 + 1, T0], dtype="<i8"),
    score=np.array([0.0, 0.5, 1.0], dtype="<f8"),
    signature_index=np.array([0, 1, 0], dtype="<u2"),
    unit_bucket=np.array([0, 7, 19], dtype="u1"),
    snapshot_index=np.array([0, 1, 1], dtype="u1"),
    served=np.array([0, 1, 2**32 - 1], dtype="<u4"),
)


@given(block_rows())
def test_unpacks_what_was_packed(rows: BlockRows) -> None:
    assert_equal(unpack(pack(rows)), rows)


def test_the_format_does_not_change_unnoticed() -> None:
    texts = b"flights2" + b"7-ab" + "UAéAA".encode()
    body = (
        struct.pack("<3Q3q3d2Q3I", 5, 6, 2**64 - 1, T0, T0 + 1, T0, 0.0, 0.5, 1.0, 1, 2, 0, 1, 2**32 - 1)
        + struct.pack("<8H", 7, 1, 0, 4, 2, 2, 2, 0)
        + struct.pack("<3H3B3B", 0, 1, 0, 0, 7, 19, 0, 1, 1)
        + texts
    )
    rest = struct.pack("<4HI", 3, 2, 2, 2, len(texts)) + body

    assert pack(EXAMPLE) == b"SCBK" + struct.pack("<II", 1, zlib.crc32(rest)) + rest


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(junk: bytes) -> None:
    for block in (junk, b"SCBK\x01\x00\x00\x00" + junk):
        with pytest.raises(BlockFormatError):
            unpack(block)


@given(block_rows(), st.data())
@settings(max_examples=200)
def test_any_change_is_found(rows: BlockRows, data: st.DataObject) -> None:
    block = pack(rows)
    position = data.draw(st.integers(0, len(block) - 1))
    changed = bytearray(block)
    changed[position] ^= data.draw(st.integers(1, 255))

    with pytest.raises(BlockFormatError):
        unpack(bytes(changed))
    with pytest.raises(BlockFormatError):
        unpack(block[:position])
    with pytest.raises(BlockFormatError):
        unpack(block + b"\x00")


@given(block_rows(), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=300)
def test_forged_blocks_with_a_fitting_checksum_are_read_or_refused(
    rows: BlockRows, changes: list[tuple[int, int]]
) -> None:
    forged = bytearray(pack(rows))
    for position, value in changes:
        forged[position % len(forged)] = value

    try:
        read = unpack(sealed(bytes(forged)))
    except BlockFormatError:
        return
    assert 1 <= len(read.fingerprint) <= MAX_BLOCK_ROWS
    assert int(read.signature_index.max()) < len(read.signatures)
    assert int(read.snapshot_index.max()) < len(read.snapshots)
    assert int(read.unit_bucket.max()) < UNIT_BUCKETS
    assert np.all((read.score >= 0) & (read.score <= 1))


@pytest.mark.parametrize("counts", [(2**16 - 1,) * 4, (0, 0, 0, 0), (1, 2**16 - 1, 0, 2**16 - 1), (3, 2, 2, 3)])
def test_counts_that_the_bytes_do_not_bear_out_cost_nothing(counts: tuple[int, ...]) -> None:
    block = pack(EXAMPLE)
    forged = sealed(HEAD.pack(b"SCBK", 1, 0, *counts, 2**32 - 1) + block[HEAD.size :])

    with pytest.raises(BlockFormatError, match="bytes"):
        unpack(forged)


@pytest.mark.parametrize(
    "change",
    [
        {"score": np.array([0.0, np.nan, 1.0])},
        {"score": np.array([0.0, 0.5, 1.0000001])},
        {"score": np.array([-1e-9, 0.5, 1.0])},
        {"score": np.array([0.5])},
        {"event_time_ms": np.array([T0, 0, T0])},
        {"event_time_ms": np.array([T0, T0, MAX_EVENT_TIME_MS])},
        {"signature_index": np.array([0, 1, 2], dtype=np.uint16)},
        {"snapshot_index": np.array([0, 1, 2], dtype=np.uint8)},
        {"unit_bucket": np.array([0, 1, UNIT_BUCKETS], dtype=np.uint8)},
        {"signatures": [("UA", "é"), ("AA",)]},
        {"signatures": [("UA", "é")]},
        {"signatures": [("UA", "é"), ("AA", "x" * 70_000)]},
        {"snapshots": [str(i) for i in range(257)]},
        {"fingerprint": np.empty(0, np.uint64)},
        {"fingerprint": np.zeros(1_001, np.uint64)},
    ],
)
def test_rows_that_no_reader_would_take_are_not_packed(change: dict[str, Any]) -> None:
    with pytest.raises(BlockFormatError):
        pack(replace(EXAMPLE, **change))


def test_an_impossible_model_is_refused() -> None:
    with pytest.raises(BlockFormatError, match="model"):
        pack(replace(EXAMPLE, model_key=ModelKey("a b", "1")))
    with pytest.raises(BlockFormatError, match="model"):
        unpack(sealed(pack(EXAMPLE).replace(b"flights", b"fl ghts")))


@given(st.lists(st.floats(0, 1), min_size=1))
def test_served_probabilities_keep_nine_digits(values: list[float]) -> None:
    probability = np.array(values)

    read = served_probability(served_fixed_point(probability))

    assert np.max(np.abs(read - probability)) <= 1.2e-10


def test_the_ends_of_served_probabilities_are_exact() -> None:
    assert served_fixed_point(np.array([0.0, 1.0])).tolist() == [0, 2**32 - 1]
    assert served_probability(np.array([0, 2**32 - 1], dtype=np.uint32)).tolist() == [0.0, 1.0]


def batch(n: int) -> ScoreBatch:
    records = [record(score(event_id=i, ts=T0 + i, score=i / n, g=f"g{i % 7}", h="x")) for i in range(n)]
    scores = ScoreDecoder(config(scores={"attributes": {"g": "g", "h": "h"}})).decode(records).scores
    assert scores is not None
    return scores


def test_a_batch_becomes_blocks_that_hold_exactly_the_chosen_rows() -> None:
    scores = batch(2_700)
    rows = np.arange(0, 2_700, 2)
    served = np.linspace(0, 1, 2_700)

    blocks = [unpack(block) for block in blocks_of(scores, rows, KEY, "7-ab", served)]

    assert [len(block.fingerprint) for block in blocks] == [BLOCK_ROWS] * 6 + [1_350 - 6 * BLOCK_ROWS]
    for name in ("fingerprint", "event_time_ms", "score", "unit_bucket"):
        assert np.concatenate([getattr(b, name) for b in blocks]).tolist() == getattr(scores, name)[rows].tolist()
    assert np.concatenate([b.served for b in blocks]).tolist() == served_fixed_point(served[rows]).tolist()
    signatures = [b.signatures[i] for b in blocks for i in b.signature_index]
    assert signatures == [scores.signatures[i] for i in scores.signature_index[rows]]
    for block in blocks:
        assert block.model_key == KEY
        assert block.snapshots == ["7-ab"]
        assert block.signature_hash.tolist() == [signature_hash(s) for s in block.signatures]


def test_a_block_names_only_the_signatures_that_it_uses() -> None:
    scores = batch(20)

    (block,) = blocks_of(scores, np.array([3, 10, 17]), KEY, "", np.full(20, 0.5))

    assert unpack(block).signatures == [("g3", "x")]


def test_no_rows_make_no_block() -> None:
    assert blocks_of(batch(5), np.array([], dtype=np.intp), KEY, "", np.full(5, 0.5)) == []


def test_attributes_may_be_absent() -> None:
    scores = ScoreDecoder(config()).decode([record(score())]).scores
    assert scores is not None

    (block,) = blocks_of(scores, np.array([0]), KEY, "", scores.score)

    assert unpack(block).signatures == [()]


def test_columns_are_aligned_views_of_the_bytes() -> None:
    block = unpack(pack(EXAMPLE))

    for name in ("fingerprint", "event_time_ms", "score", "signature_hash", "served", "signature_index"):
        column = getattr(block, name)
        assert column.flags.aligned, name
        assert not column.flags.writeable
