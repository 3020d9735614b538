"""What a reader may take of memory: a stated multiple of what it is given, whatever that is."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stream_calib.errors import StateError
from stream_calib.events.contracts import RejectReason
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.inflate import inflate
from stream_calib.windows.row_codec import decode_rows
from tests.fuzz.targets import TARGETS

MB = 1_000_000
DEFLATE_RATIO = 1_032
"""No byte of a deflated stream gives more."""


def peak(call: Callable[[], object]) -> int:
    """Bytes that were allocated at once while it ran."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


TIMES = 35
"""A value of a record takes at most so many times its size: one key and one integer are 7 bytes of text and some 100 of
objects, held by the decoder's result, its second look, and the decoder of what it suspects."""

ADVERSARIAL: dict[str, bytes] = {
    "nested arrays": b'{"a":' + b"[" * 450_000 + b"]" * 450_000 + b"}",
    "nested objects": b'{"a":' * 160_000 + b"1" + b"}" * 160_000,
    "unclosed": b"[" * 900_000,
    "a million digits": b'{"a":' + b"9" * 900_000 + b"}",
    "a long fraction": b'{"a":0.' + b"9" * 900_000 + b"}",
    "huge exponents": b'{"a":[' + b",".join([b"1e999999999"] * 70_000) + b"]}",
    "many keys": json.dumps({str(i): 0 for i in range(90_000)}, separators=(",", ":")).encode(),
    "one key many times": b"{" + b",".join([b'"a":0'] * 150_000) + b"}",
    "many small objects": b'{"a":[' + b",".join([b"{}"] * 300_000) + b"]}",
    "many small arrays": b'{"a":[' + b",".join([b"[]"] * 300_000) + b"]}",
    "many empty strings": b'{"a":[' + b",".join([b'""'] * 300_000) + b"]}",
    "a long string": b'{"a":"' + b"x" * 900_000 + b'"}',
    "escapes": b'{"a":"' + b"\\u0041" * 150_000 + b'"}',
    "wide characters": b'{"a":"' + "\U0001f600".encode() * 220_000 + b'"}',
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_a_record_takes_at_most_a_stated_multiple_of_its_size(name: str) -> None:
    value = ADVERSARIAL[name]
    assert len(value) <= MB
    for target in ("scores", "labels", "control"):
        assert peak(lambda target=target: TARGETS[target].run(value)) < TIMES * len(value)  # type: ignore[misc]  # mypy cannot infer it


def test_a_record_that_is_too_large_is_not_decoded() -> None:
    """10^6 keys."""
    value = json.dumps({str(i): 0 for i in range(1_000_000)}, separators=(",", ":")).encode()
    decoder = JsonDecoder(MB, 32)
    found: list[Any] = []
    assert peak(lambda: found.append(decoder.decode(value))) < MB
    (refused,) = found
    assert isinstance(refused, BadJson)
    assert refused.reason is RejectReason.TOO_LARGE


def test_the_same_for_requests() -> None:
    value = b'{"events":[' + b",".join([b"{}"] * 3_000_000) + b"]}"
    assert peak(lambda: TARGETS["request"].run(value)) < 2 * len(value) + MB


def bomb(head: bytes, inflated: int) -> bytes:
    return head + zlib.compress(bytes(inflated), 9)


@pytest.mark.parametrize("rows", [0, 1, 1_000])
def test_packed_cells_inflate_to_what_their_head_tells_of_and_no_further(rows: int) -> None:
    for kind, number, width in ((ScoredCells, 1, 18), (MaturedCells, 2, 35)):
        blob = bomb(struct.pack("<4sBxxxI", b"SCC1", number, rows), 200 * MB)

        def read(kind: Any = kind, blob: bytes = blob) -> None:
            with pytest.raises(StateError, match="inflates to more than"):
                kind.unpack(blob)

        assert peak(read) < 4 * rows * width + MB


def test_a_head_that_tells_of_too_many_rows_costs_no_more_than_deflate_can_give() -> None:
    blob = bomb(struct.pack("<4sBxxxI", b"SCC1", 2, 2**32 - 1), 20 * MB)

    def read() -> None:
        with pytest.raises(StateError, match="they were damaged"):
            MaturedCells.unpack(blob)

    assert peak(read) < 3 * DEFLATE_RATIO * len(blob)


def test_chunks_of_rows_likewise() -> None:
    chunk = bomb(struct.pack("<BIHBq", 1, 10, 3, 1, 0), 200 * MB)

    def read() -> None:
        with pytest.raises(StateError, match="inflates to more than the 560 bytes"):
            decode_rows([chunk])

    assert peak(read) < MB


@pytest.mark.parametrize("spoil", [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"", lambda d: d[:20] + d[21:]])
def test_what_is_cut_off_or_goes_on_is_damaged(spoil: Callable[[bytes], bytes]) -> None:
    body = np.arange(100, dtype=np.int64).tobytes()
    deflated = zlib.compress(body)
    assert inflate(deflated, len(body)) == body
    with pytest.raises(zlib.error):
        inflate(spoil(deflated), len(body))
    with pytest.raises(zlib.error, match="more than the 799 bytes"):
        inflate(deflated, 799)
