"""Score records to columns."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.events.contracts import (
    MAX_EVENT_TIME_MS,
    MIN_EVENT_TIME_MS,
    Decoded,
    RejectReason,
    ScoreBatch,
)
from stream_calib.events.control import clock_record
from stream_calib.events.identity import fingerprints, unit_buckets
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.transport.port import Record
from tests.unit.events.events_for_tests import T0, config, record, score


def decode(records: list[Record], **sections: Any) -> Decoded:
    return ScoreDecoder(config(**sections)).decode(records)


def batch_of(records: list[Record], **sections: Any) -> ScoreBatch:
    decoded = decode(records, **sections)
    assert decoded.rejects == []
    assert decoded.scores is not None
    return decoded.scores


def reasons(values: list[Any], **sections: Any) -> list[RejectReason | None]:
    """Reason of each value's reject, None where it was accepted."""
    decoded = decode([record(value) for value in values], **sections)
    found = {reject.record_index: reject.reason for reject in decoded.rejects}
    assert decoded.scores is not None
    assert sorted([*found, *decoded.scores.record_index.tolist()]) == list(range(len(values)))
    return [found.get(i) for i in range(len(values))]


def test_good_records_become_columns_in_their_order() -> None:
    fields = {"a": "a", "b": "geo.b"}
    records = [
        record(score(event_id="x", score=0.5, a="1", geo={"b": "u"})),
        record(score(event_id=7, score=1, ts=T0 + 5, a="2", geo={"b": "u"})),
        record(score(event_id="y", score=0, a="1", geo={"b": "u"})),
    ]

    batch = batch_of(records, scores={"attributes": fields})

    assert batch.event_id == ["x", "7", "y"]
    assert batch.record_index.tolist() == [0, 1, 2]
    assert batch.event_time_ms.tolist() == [T0, T0 + 5, T0]
    assert batch.score.tolist() == [0.5, 1.0, 0.0]
    assert batch.signatures == [("1", "u"), ("2", "u")]
    assert batch.signature_index.tolist() == [0, 1, 0]
    assert batch.fingerprint.tolist() == fingerprints(["x", "7", "y"]).tolist()
    assert batch.unit_bucket.tolist() == unit_buckets(batch.fingerprint).tolist()
    columns = (batch.fingerprint, batch.event_time_ms, batch.score, batch.unit_bucket)
    assert [column.dtype.name for column in columns] == ["uint64", "int64", "float64", "uint8"]


def test_an_empty_poll_gives_an_empty_batch() -> None:
    batch = batch_of([], scores={"attributes": {"a": "a"}})

    assert len(batch.score) == len(batch.event_id) == len(batch.signature_index) == len(batch.unit_bucket) == 0


def test_every_record_is_in_exactly_one_place() -> None:
    value, headers = clock_record(T0)
    records = [
        record(score()),
        record(None, key=b"e1"),
        record(value, headers=headers),
        record(b"{"),
        record(score(score=2)),
        record(score(), headers=(("trace", b"1"),)),
        record(b"{}", headers=headers),
    ]

    decoded = decode(records)

    assert decoded.scores is not None
    assert decoded.scores.record_index.tolist() == [0, 5]
    assert decoded.tombstones == [1]
    assert [(clock.record_index, clock.clock_ms, clock.end) for clock in decoded.clocks] == [(2, T0, False)]
    assert [(reject.record_index, reject.reason) for reject in decoded.rejects] == [
        (3, RejectReason.NOT_JSON),
        (4, RejectReason.SCORE_OUT_OF_RANGE),
        (6, RejectReason.CONTROL_INVALID),
    ]
    assert decoded.labels is None


# --- ids ------------------------------------------------------------------------------------------------------


def test_a_json_integer_is_the_id_of_its_digits_and_nothing_is_normalised() -> None:
    ids = [7, "7", "007", " 7", "A-B", "a-b", "caf\u00e9", "cafe\u0301", "a\x00b", "\U0001f600", 2**70, -0]

    batch = batch_of([record(score(event_id=i)) for i in ids])

    assert batch.event_id == [*("7", "7"), *ids[2:-2], str(2**70), "0"]
    assert len(set(batch.fingerprint.tolist())) == len(ids) - 1


def test_ids_that_are_none_are_refused() -> None:
    bad: list[Any] = [7.0, True, None, "", [], {}, "x" * 513, "é" * 257, 10**512]

    assert reasons([score(event_id=i) for i in bad]) == [RejectReason.ID_INVALID] * len(bad)
    assert reasons([{"ts": T0, "score": 0.5}]) == [RejectReason.ID_MISSING]
    assert reasons([score(event_id="x" * 512), score(event_id="é" * 256), score(event_id=10**511)]) == [None] * 3


def test_an_unpaired_surrogate_costs_only_its_own_record() -> None:
    text = json.dumps(score(event_id="?")).replace("?", "\\ud800").encode()

    decoded = decode([record(score()), record(text), record(score())])

    assert [(r.record_index, r.reason) for r in decoded.rejects] == [(1, RejectReason.ID_INVALID)]
    assert decoded.rejects[0].message.isascii()


def test_long_ids_are_never_cut_into_one() -> None:
    batch = batch_of([record(score(event_id="x" * 511 + end)) for end in "ab"])

    assert batch.fingerprint[0] != batch.fingerprint[1]


# --- scores ---------------------------------------------------------------------------------------------------


def test_scores_outside_the_declared_scale_are_refused_and_the_batch_does_not_matter() -> None:
    values = [0.3, 2.4, 0.7, 73.0]
    together = decode([record(score(score=v)) for v in values]).scores
    apart = [decode([record(score(score=v))]).scores for v in values]

    assert reasons([score(score=v) for v in values]) == [
        None,
        RejectReason.SCORE_OUT_OF_RANGE,
        None,
        RejectReason.SCORE_OUT_OF_RANGE,
    ]
    assert together is not None
    assert together.score.tolist() == [0.3, 0.7]
    assert [v for batch in apart if batch is not None for v in batch.score.tolist()] == [0.3, 0.7]


@given(st.lists(st.floats(-800, 800), min_size=1, max_size=40))
def test_logits_are_read_alike_in_any_batch(logits: list[float]) -> None:
    together = batch_of([record(score(score=v)) for v in logits], scores={"scale": "logit"})
    apart = [batch_of([record(score(score=v))], scores={"scale": "logit"}).score[0] for v in logits]

    assert together.score.tolist() == apart
    assert together.score.tolist() == pytest.approx([math.exp(min(v, 0)) / (1 + math.exp(-abs(v))) for v in logits])
    assert np.all((together.score >= 0) & (together.score <= 1))


def test_percent_is_divided_always() -> None:
    batch = batch_of([record(score(score=v)) for v in (73.0, 0.3, 100, 0)], scores={"scale": "percent"})

    assert batch.score.tolist() == [0.73, 0.3 / 100, 1.0, 0.0]


def test_a_hair_outside_is_set_to_the_bound_and_counted() -> None:
    decoder = ScoreDecoder(config())
    decoded = decoder.decode(
        [record(score(score=v)) for v in (-1e-6, 1.000001, -1e-300, -0.0, 1.0, 1.0000011, -1.1e-6)]
    )

    assert decoded.scores is not None
    assert decoded.scores.score.tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert not np.signbit(decoded.scores.score).any()
    assert [reject.record_index for reject in decoded.rejects] == [5, 6]
    assert decoder.oddities.clamped_scores == 3


@pytest.mark.parametrize("text", ["true", "false", "null", '"0.5"', '"NaN"', "[]", "{}", '""'])
def test_only_json_numbers_are_scores(text: str) -> None:
    assert reasons([f'{{"event_id":"e","ts":{T0},"score":{text}}}'.encode()]) == [RejectReason.SCORE_INVALID]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_non_finite_numbers_never_get_in(text: str) -> None:
    assert reasons([f'{{"event_id":"e","ts":{T0},"score":{text}}}'.encode(), score()]) == [RejectReason.NOT_JSON, None]


@pytest.mark.parametrize("scale", ["probability", "percent", "logit"])
def test_integers_beyond_float64_are_out_of_range(scale: str) -> None:
    assert reasons([score(score=10**400), score(score=-(10**400)), score()], scores={"scale": scale}) == [
        RejectReason.SCORE_OUT_OF_RANGE,
        RejectReason.SCORE_OUT_OF_RANGE,
        None,
    ]


def test_a_missing_score_is_refused() -> None:
    assert reasons([{"event_id": "e", "ts": T0}]) == [RejectReason.SCORE_MISSING]


def test_of_several_faults_the_first_is_told() -> None:
    assert reasons([{"event_id": 1.5, "ts": "x", "score": "y"}, {"event_id": 1, "ts": "x", "score": "y"}]) == [
        RejectReason.ID_INVALID,
        RejectReason.SCORE_INVALID,
    ]


# --- paths and times ------------------------------------------------------------------------------------------


def test_paths_reach_into_objects_and_a_literal_key_wins() -> None:
    mapping = {"score": "p.default", "id": "meta.id"}
    nested = {"meta": {"id": "n"}, "ts": T0, "p": {"default": 0.25}}
    literal = {"meta.id": "l", "ts": T0, "p": {"default": 0.25}, "p.default": 0.75}

    batch = batch_of([record(nested), record(literal)], scores=mapping)

    assert batch.event_id == ["n", "l"]
    assert batch.score.tolist() == [0.25, 0.75]
    assert reasons([{"meta": {"id": "n"}, "ts": T0, "p": [1]}], scores=mapping) == [RejectReason.SCORE_MISSING]


def test_without_a_time_path_the_append_time_counts() -> None:
    batch = batch_of([record({"event_id": 1, "score": 0.5}, append_time_ms=T0 + 9)], scores={"time": {}})
    late = decode([record({"event_id": 1, "score": 0.5}, append_time_ms=5)], scores={"time": {}})

    assert batch.event_time_ms.tolist() == [T0 + 9]
    assert [reject.reason for reject in late.rejects] == [RejectReason.TIME_OUT_OF_RANGE]


@pytest.mark.parametrize(
    ("unit", "good"), [("s", 1_714_557_600), ("ms", 1_714_557_600_000), ("us", 1_714_557_600_000_000)]
)
def test_only_the_declared_unit_of_time_is_read(unit: str, good: int) -> None:
    others = [v for v in (1_714_557_600, 1_714_557_600_000, 1_714_557_600_000_000) if v != good]
    wrong = [*others, 20_000_000_001, 19_999_999_999, -1, 0, 10**400]
    settings = {"time": {"path": "ts", "unit": unit}}

    assert reasons([score(ts=v) for v in wrong], scores=settings) == [RejectReason.TIME_OUT_OF_RANGE] * len(wrong)
    assert batch_of([record(score(ts=good))], scores=settings).event_time_ms.tolist() == [T0]
    invalid = [str(good), True, None, [], "2024-05-01"]
    assert reasons([score(ts=v) for v in invalid], scores=settings) == [RejectReason.TIME_INVALID] * len(invalid)


def test_the_range_of_years_is_half_open() -> None:
    assert reasons(
        [score(ts=t) for t in (MIN_EVENT_TIME_MS - 1, MIN_EVENT_TIME_MS, MAX_EVENT_TIME_MS - 1, MAX_EVENT_TIME_MS)]
    ) == [
        RejectReason.TIME_OUT_OF_RANGE,
        None,
        None,
        RejectReason.TIME_OUT_OF_RANGE,
    ]


# --- attributes and units -------------------------------------------------------------------------------------


def attribute_texts(values: list[Any], **scores: Any) -> tuple[list[str], int]:
    """Text of each value, and how many were dropped."""
    decoder = ScoreDecoder(config(scores={"attributes": {"a": "a"}, **scores}))
    decoded = decoder.decode([record(score(a=v)) for v in values])
    assert decoded.rejects == []
    assert decoded.scores is not None
    texts = [decoded.scores.signatures[i][0] for i in decoded.scores.signature_index]
    return texts, decoder.oddities.dropped_attributes.get("a", 0)


def test_numbers_and_booleans_become_their_json_text() -> None:
    texts, dropped = attribute_texts([1, True, 1.0, "1", False, 0, 2.5, "x", "true"])

    assert texts == ["1", "true", "1.0", "1", "false", "0", "2.5", "x", "true"]
    assert dropped == 0


def test_nothing_to_say_is_one_value() -> None:
    assert attribute_texts([None, "", "x"]) == (["__missing__", "__missing__", "x"], 0)
    assert attribute_texts(["", "x"]) == (["__missing__", "x"], 0)
    assert batch_of([record(score())], scores={"attributes": {"a": "a"}}).signatures == [("__missing__",)]


def test_a_bad_attribute_is_dropped_and_counted_and_costs_no_output() -> None:
    values = [{"b": 1}, [1], "x" * 9, "é" * 5, "x" * 8, 10**9, 10**4_000, "é" * 4]

    texts, dropped = attribute_texts(values, max_value_bytes=8)

    missing = "__missing__"
    assert texts == [missing, missing, missing, missing, "x" * 8, missing, missing, "é" * 4]
    assert dropped == 6
    assert attribute_texts(["x" * 9, "y", "x" * 9], max_value_bytes=8) == ([missing, "y", missing], 2)


def test_an_attribute_without_bytes_is_dropped() -> None:
    decoder = ScoreDecoder(config(scores={"attributes": {"a": "a"}}))
    text = json.dumps(score(a="?")).replace("?", "\\ud800").encode()

    decoded = decoder.decode([record(text)])

    assert decoded.scores is not None
    assert decoded.scores.signatures == [("__missing__",)]
    assert decoder.oddities.dropped_attributes == {"a": 1}


def test_scores_of_one_unit_share_a_bucket() -> None:
    records = [record(score(event_id=i, customer={"id": c})) for i, c in enumerate([5, "5", "6", 5])]

    batch = batch_of(records, scores={"unit": "customer.id"})

    assert batch.unit_bucket.tolist() == unit_buckets(fingerprints(["5", "5", "6", "5"])).tolist()


def test_without_a_usable_unit_the_event_id_stands_in() -> None:
    decoder = ScoreDecoder(config(scores={"unit": "customer"}))

    customers: list[Any] = [None, "", [], 2.5, "c"]

    decoded = decoder.decode([record(score(event_id=i, customer=c)) for i, c in enumerate(customers)])

    assert decoded.scores is not None
    assert decoded.scores.unit_bucket.tolist() == unit_buckets(fingerprints(["0", "1", "2", "3", "c"])).tolist()
    assert decoder.oddities.units_replaced == 4


def test_enriched_output_refuses_records_that_have_the_field_already() -> None:
    values = [score(stream_calib=1), score(), score(inner={"stream_calib": 1})]

    assert reasons(values, serving={"output": "enrich"}) == [RejectReason.OUTPUT_FIELD_TAKEN, None, None]
    assert reasons(values) == [None, None, None]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.lists(st.fixed_dictionaries({}, optional={"event_id": junk, "score": junk, "ts": junk, "a": junk}), max_size=6)
)
def test_no_record_raises_and_none_is_lost(values: list[dict[str, Any]]) -> None:
    settings = {"attributes": {"a": "a"}}
    records = [record(json.dumps(value).encode()) for value in values]

    decoded = decode(records, scores=settings)

    assert decoded.scores is not None
    places = [*decoded.scores.record_index.tolist(), *(reject.record_index for reject in decoded.rejects)]
    assert sorted(places) == list(range(len(records)))
    assert np.all((decoded.scores.score >= 0) & (decoded.scores.score <= 1))
    for i, kept in zip(decoded.scores.record_index, decoded.scores.score, strict=True):
        alone = decode([records[i]], scores=settings).scores
        assert alone is not None
        assert alone.score.tolist() == [kept]
