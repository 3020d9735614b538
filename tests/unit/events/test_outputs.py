"""Outputs for the users, and dead letters."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.events.contracts import Reject, RejectReason, ScoreBatch
from stream_calib.events.dead_letters import dead_letters
from stream_calib.events.output_members import ServedAs
from stream_calib.events.outputs import OutputEncoder
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.transport.port import Outgoing, Record
from tests.unit.events.events_for_tests import T0, config, record, score, strict_json

VERSION = "000007-0123456789ab"
probabilities = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 5e-324, 1e-6, 1 - 1e-6, 0.1 + 0.2])


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def as_served(snapshot: str) -> ServedAs:
    return ServedAs(snapshot, "calibrated" if snapshot else "identity")


def encode(records: list[Record], calibrated: list[float], snapshot: str = VERSION, **serving: str) -> list[Outgoing]:
    settings = config(serving=serving)
    decoded = ScoreDecoder(settings).decode(records)
    assert decoded.rejects == []
    assert decoded.scores is not None
    return OutputEncoder(settings).encode(records, decoded.scores, np.array(calibrated), [as_served(snapshot)])


def value_of(outgoing: Outgoing) -> Any:
    assert outgoing.value is not None
    return strict_json(outgoing.value)


def test_a_compact_output_says_what_was_made_of_which_event() -> None:
    (outgoing,) = encode([record(score(event_id=7), offset=41, key=b"k")], [0.125])

    assert value_of(outgoing) == {
        "event_id": "7",
        "stream_calib": {"m": {"raw": 0.25, "calibrated": 0.125, "snapshot": VERSION, "status": "calibrated"}},
    }
    assert (outgoing.topic, outgoing.key, outgoing.partition) == ("calibrated", b"k", 2)
    assert outgoing.headers == (
        ("stream-calib-source-topic", b"scores"),
        ("stream-calib-source-partition", b"2"),
        ("stream-calib-source-offset", b"41"),
    )


def test_without_a_snapshot_the_status_is_identity() -> None:
    (outgoing,) = encode([record(score())], [0.25], snapshot="")

    assert value_of(outgoing)["stream_calib"]["m"] == {
        "raw": 0.25,
        "calibrated": 0.25,
        "snapshot": None,
        "status": "identity",
    }


@given(st.lists(st.tuples(probabilities, probabilities), min_size=1, max_size=20))
def test_numbers_read_back_to_the_same_bits(pairs: list[tuple[float, float]]) -> None:
    records = [record(score(score=raw)) for raw, _ in pairs]

    outputs = encode(records, [p for _, p in pairs])

    for (raw, p), outgoing in zip(pairs, outputs, strict=True):
        ours = value_of(outgoing)["stream_calib"]["m"]
        assert bits(float(ours["raw"])) == bits(raw + 0.0)
        assert bits(float(ours["calibrated"])) == bits(p)


@given(
    st.lists(st.text(min_size=1, max_size=9).filter(lambda t: t.isprintable() or t.isascii()), min_size=1, max_size=5)
)
def test_any_id_is_written_as_strict_json(ids: list[str]) -> None:
    outputs = encode([record(score(event_id=i)) for i in ids], [0.5] * len(ids))

    assert [value_of(outgoing)["event_id"] for outgoing in outputs] == ids


def test_enriched_output_leaves_every_byte_of_the_original() -> None:
    original = (
        b' { "event_id" : "e\\u0031", "ts":1714557600000,"score": 2.50e-1, "big":12345678901234567890123, "x":1.10 } \n'
    )

    (outgoing,) = encode([record(original)], [0.125], output="enrich")

    assert outgoing.value is not None
    assert outgoing.value.startswith(original.rstrip()[:-1].rstrip())
    enriched = value_of(outgoing)
    assert enriched.pop("stream_calib")["m"]["calibrated"] == 0.125
    assert enriched == json.loads(original)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.text(max_size=4), junk, max_size=4), st.sampled_from([None, 2]))
def test_enriched_output_is_the_original_and_our_field(fields: dict[str, Any], indent: int | None) -> None:
    original = {**fields, **score()}

    (outgoing,) = encode([record(json.dumps(original, indent=indent).encode())], [0.5], output="enrich")

    enriched = value_of(outgoing)
    assert enriched.pop("stream_calib")["m"]["status"] == "calibrated"
    assert repr(enriched) == repr(original)


def test_outputs_follow_the_batch_and_skip_what_was_refused() -> None:
    settings = config()
    records = [record(b"{", 0), record(score(event_id="a"), 1), record(None, 2), record(score(event_id="b"), 3)]
    batch = ScoreDecoder(settings).decode(records).scores
    assert batch is not None

    outputs = OutputEncoder(settings).encode(records, batch, np.array([0.1, 0.2]), [as_served(VERSION)])

    assert [value_of(o)["event_id"] for o in outputs] == ["a", "b"]
    assert [dict(o.headers)["stream-calib-source-offset"] for o in outputs] == [b"1", b"3"]


def test_an_empty_batch_has_no_output() -> None:
    assert encode([], []) == []


@pytest.mark.parametrize("served", [[float("nan")], [1.5], [-0.1], [float("inf")], [], [0.5, 0.5]])
def test_unsound_values_are_never_written(served: list[float]) -> None:
    settings = config()
    batch = ScoreDecoder(settings).decode([record(score())]).scores
    assert isinstance(batch, ScoreBatch)

    with pytest.raises(ValueError, match=VERSION):
        OutputEncoder(settings).encode([record(score())], batch, np.array(served), [as_served(VERSION)])


# --- passthrough ----------------------------------------------------------------------------------------------


def passed_through(value: bytes, reason: RejectReason = RejectReason.SCORE_INVALID) -> list[Outgoing]:
    return OutputEncoder(config()).passthrough([record(value, key=b"k")], [Reject(0, reason, "why")])


@pytest.mark.parametrize("original", [b'{"event_id":"e","score":"x"}', b"{}", b" { } ", b'{"a":[1]}'])
def test_a_rejected_object_goes_out_marked(original: bytes) -> None:
    (outgoing,) = passed_through(original)

    content = value_of(outgoing)
    assert content.pop("stream_calib") == {
        "m": {"raw": None, "calibrated": None, "snapshot": None, "status": "passthrough"}
    }
    assert content == json.loads(original)
    assert outgoing.key == b"k"
    assert dict(outgoing.headers)["stream-calib-status"] == b"passthrough"


@pytest.mark.parametrize(
    "original", [b"{", b"[1]", b"\xff", b"", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"stream_calib":1,"score":0.5}']
)
def test_what_cannot_be_marked_inside_goes_out_unchanged_with_the_header(original: bytes) -> None:
    (outgoing,) = passed_through(original)

    assert outgoing.value == original
    assert dict(outgoing.headers)["stream-calib-status"] == b"passthrough"
    assert dict(outgoing.headers)["stream-calib-source-offset"] == b"0"


def test_bad_control_records_do_not_reach_the_users() -> None:
    assert passed_through(b"{}", RejectReason.CONTROL_INVALID) == []


# --- dead letters ---------------------------------------------------------------------------------------------


def test_a_dead_letter_has_the_original_and_says_where_and_why() -> None:
    bad = record(b"\xff{", 17, key=b"key", headers=(("trace", b"\x00"), ("stream-calib-reason", b"theirs")))
    good = record(score())

    (letter,) = dead_letters("dead", [good, bad], [Reject(1, RejectReason.NOT_UTF8, "byte 0: é\ud800")], 10_000)

    assert letter == Outgoing(
        "dead",
        b"scores-2-17",
        b"\xff{",
        (
            ("trace", b"\x00"),
            ("stream-calib-reason", b"theirs"),
            ("stream-calib-source-topic", b"scores"),
            ("stream-calib-source-partition", b"2"),
            ("stream-calib-source-offset", b"17"),
            ("stream-calib-source-key", b"key"),
            ("stream-calib-reason", b"not_utf8"),
            ("stream-calib-message", b"byte 0: \\xe9\\ud800"),
        ),
    )


def test_a_dead_letter_of_a_record_without_key_and_value() -> None:
    (letter,) = dead_letters("dead", [record(None, 3)], [Reject(0, RejectReason.ID_MISSING, "no key")], 10_000)

    assert letter.value is None
    assert "stream-calib-source-key" not in dict(letter.headers)


def size_of(letter: Outgoing) -> int:
    headers = sum(len(name) + len(content) for name, content in letter.headers)
    return len(letter.key or b"") + len(letter.value or b"") + headers


@pytest.mark.parametrize(
    ("key", "value", "header"), [(10, 10_000_000, 5), (900_000, 10, 5), (10, 10, 900_000), (400_000, 400_000, 400_000)]
)
def test_a_dead_letter_is_never_larger_than_its_bound_and_says_that_it_was_cut(
    key: int, value: int, header: int
) -> None:
    large = record(b"v" * value, key=b"k" * key, headers=(("small", b"s"), ("h", b"h" * header)))
    (letter,) = dead_letters("dead", [large], [Reject(0, RejectReason.TOO_LARGE, "too large")], 100_000)

    headers = dict(letter.headers)
    assert size_of(letter) <= 100_000
    assert headers["stream-calib-truncated-from"] == b"%d" % value
    assert headers["stream-calib-reason"] == b"too_large"
    assert headers["small"] == b"s"
    assert (large.value or b"").startswith(letter.value or b"")
    assert (large.key or b"").startswith(headers["stream-calib-source-key"])
    if value > 100_000:
        assert len(letter.value or b"") > 40_000


def test_a_dead_letter_within_its_bound_is_whole() -> None:
    fits = record(b"v" * 97_000, key=b"k" * 900)
    (letter,) = dead_letters("dead", [fits], [Reject(0, RejectReason.NOT_JSON, "no")], 100_000)

    assert letter.value == fits.value
    assert "stream-calib-truncated-from" not in dict(letter.headers)
    assert size_of(letter) <= 100_000


@given(st.dictionaries(st.sampled_from(["event_id", "ts", "score"]), junk | st.just("\ud800"), max_size=3))
def test_every_reject_can_become_a_dead_letter(value: dict[str, Any]) -> None:
    records = [record(json.dumps(value).encode())]

    for letter in dead_letters("dead", records, ScoreDecoder(config()).decode(records).rejects, 10_000):
        assert letter.value == records[0].value
        assert RejectReason(dict(letter.headers)["stream-calib-reason"].decode())
        assert len(dict(letter.headers)["stream-calib-message"]) < 400


def test_times_in_outputs_are_the_users() -> None:
    (outgoing,) = encode([record(score(ts=T0))], [0.5], output="enrich")

    assert value_of(outgoing)["ts"] == T0
