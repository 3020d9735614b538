"""Strict JSON of record values."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.events.contracts import RejectReason
from stream_calib.events.json_decoding import BadJson, JsonDecoder

DECODER = JsonDecoder(max_record_bytes=10_000, max_depth=8)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(['"', "\\", '\\"', ":", "{", "[", '":', "\ud800", "é", "\x00", "😀"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=4) | st.sampled_from(['"', "\\", ":", "a.b"]), values, max_size=5)


def same(left: Any, right: Any) -> bool:
    """Equal in value, type and order of keys."""
    return repr(left) == repr(right)


def reason(value: bytes, decoder: JsonDecoder = DECODER) -> RejectReason:
    outcome = decoder.decode(value)
    assert isinstance(outcome, BadJson), outcome
    assert outcome.message.isascii()
    return outcome.reason


@given(st.lists(objects, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_reads_what_the_standard_encoder_writes(
    written: list[dict[str, Any]], ascii_only: bool, indent: int | None
) -> None:
    texts = [
        json.dumps(o, ensure_ascii=ascii_only or "\\ud8" in json.dumps(o), indent=indent).encode() for o in written
    ]

    decoded = DECODER.decode_all(texts)

    assert same(decoded, written)


@st.composite
def object_texts(draw: st.DrawFn) -> tuple[bytes, bool]:
    """JSON text of an object that may repeat keys at any depth, and whether it does."""
    repeated = False

    def text_of(value: Any) -> str:
        nonlocal repeated
        if isinstance(value, dict):
            pairs = list(value.items())
            if pairs and draw(st.integers(0, 3)) == 0:
                pairs.append((draw(st.sampled_from(pairs))[0], draw(scalars)))
                repeated = True
            gap = draw(st.sampled_from(["", " ", "\n\t"]))
            return "{" + ",".join(f"{gap}{json.dumps(k)}{gap}:{gap}{text_of(v)}" for k, v in pairs) + gap + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(text_of, value)) + "]"
        return json.dumps(value)

    return text_of(draw(objects)).encode(), repeated


@given(st.lists(object_texts(), min_size=1, max_size=3))
@settings(max_examples=300)
def test_finds_every_duplicate_key_and_no_other(texts: list[tuple[bytes, bool]]) -> None:
    outcomes = DECODER.decode_all([text for text, _ in texts])

    for (text, repeated), outcome in zip(texts, outcomes, strict=True):
        if repeated:
            assert isinstance(outcome, BadJson)
            assert outcome.reason is RejectReason.DUPLICATE_KEY
        else:
            assert same(outcome, json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"a" :1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":[{"b":1,"b":2}]}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":"\\"","a":"\\\\"}',
        b'{"":0,"":0}',
    ],
)
def test_duplicate_keys_are_refused(text: bytes) -> None:
    assert reason(text) is RejectReason.DUPLICATE_KEY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", RejectReason.EMPTY_VALUE),
        (b" \n", RejectReason.EMPTY_VALUE),
        (b"null", RejectReason.NOT_AN_OBJECT),
        (b"[1]", RejectReason.NOT_AN_OBJECT),
        (b'"{}"', RejectReason.NOT_AN_OBJECT),
        (b"17", RejectReason.NOT_AN_OBJECT),
        (b"{", RejectReason.NOT_JSON),
        (b"{}{}", RejectReason.NOT_JSON),
        (b"{'a':1}", RejectReason.NOT_JSON),
        (b'{"a":1,}', RejectReason.NOT_JSON),
        (b'{"a":01}', RejectReason.NOT_JSON),
        (b'{"a":NaN}', RejectReason.NOT_JSON),
        (b'{"a":Infinity}', RejectReason.NOT_JSON),
        (b'{"a":-Infinity}', RejectReason.NOT_JSON),
        (b'{"a":1e999}', RejectReason.NOT_JSON),
        (b'{"a":-1e999}', RejectReason.NOT_JSON),
        (b'{"a":' + b"9" * 5_000 + b"}", RejectReason.NOT_JSON),
        (b'{"a":"\x01"}', RejectReason.NOT_JSON),
        (b"\xef\xbb\xbf{}", RejectReason.NOT_JSON),
        ('{"a":1}'.encode("utf-16"), RejectReason.NOT_UTF8),
        (b'{"a":"\xff"}', RejectReason.NOT_UTF8),
        (b'{"a":"\xed\xa0\x80"}', RejectReason.NOT_UTF8),
        (b'{"a":"' + b"x" * 10_000 + b'"}', RejectReason.TOO_LARGE),
        (b'{"a":' * 9 + b"1" + b"}" * 9, RejectReason.TOO_DEEP),
        (b'{"a":' + b"[" * 8 + b"]" * 8 + b"}", RejectReason.TOO_DEEP),
        (b"[" * 9_999, RejectReason.TOO_DEEP),
        (b'{"a":' * 1_900, RejectReason.TOO_DEEP),
    ],
)
def test_bad_values_are_refused_with_their_reason(text: bytes, expected: RejectReason) -> None:
    assert reason(text) is expected
    assert DECODER.decode_all([b'{"a":1}', text, b'{"b":2}'])[::2] == [{"a": 1}, {"b": 2}]


def test_depth_at_the_limit_is_read_whatever_the_strings_hold() -> None:
    text = b'{"a":' * 7 + b'{"b":"[[[[{{{{\\"[[[["}' + b"}" * 7

    assert not isinstance(DECODER.decode(text), BadJson)


def test_a_megabyte_of_brackets_or_escapes_neither_crashes_nor_stalls() -> None:
    decoder = JsonDecoder(max_record_bytes=10**7, max_depth=200)

    assert reason(b"[" * 10**6, decoder) is RejectReason.TOO_DEEP
    assert reason(b'{"a":"' + b'\\"' * 500_000, decoder) is RejectReason.NOT_JSON
    assert reason(b'{"a":"' + b"\\" * 999_999, decoder) is RejectReason.NOT_JSON


def test_integers_are_exact() -> None:
    assert DECODER.decode(b'{"a":18446744073709551617,"b":-0}') == {"a": 2**64 + 1, "b": 0}


def test_unpaired_surrogates_are_passed_on() -> None:
    assert DECODER.decode(b'{"a":"\\ud800"}') == {"a": "\ud800"}


@given(st.lists(st.binary(max_size=30) | st.text(alphabet='{}[]":,\\ 1ea.-', max_size=20).map(str.encode), max_size=4))
@settings(max_examples=300)
def test_any_bytes_give_an_object_or_a_reason(texts: list[bytes]) -> None:
    outcomes = DECODER.decode_all(texts)

    assert len(outcomes) == len(texts)
    for text, outcome in zip(texts, outcomes, strict=True):
        try:
            expected = json.loads(text.decode())
        except ValueError:
            assert isinstance(outcome, BadJson)
        else:
            # NaN and the like are all that the standard decoder would take beyond this one, and duplicates.
            if not isinstance(outcome, BadJson):
                assert same(outcome, expected)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back_to_the_same_bits(value: float) -> None:
    outcome = DECODER.decode(b'{"a":%b}' % repr(value).encode())

    assert isinstance(outcome, dict)
    assert outcome["a"] == value
    assert math.copysign(1, outcome["a"]) == math.copysign(1, value)


def test_a_python_with_a_lower_limit_for_integers_refuses_them_without_a_crash() -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        outcomes = DECODER.decode_all([b'{"a":' + b"9" * digits + b"}" for digits in (640, 700)])
    finally:
        sys.set_int_max_str_digits(limit)

    assert not isinstance(outcomes[0], BadJson)
    assert not isinstance(outcomes[1], BadJson) or outcomes[1].reason is RejectReason.NOT_JSON
