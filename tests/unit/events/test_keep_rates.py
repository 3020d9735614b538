"""The rate at which such events were kept: read, refused by a reason of its own, and the last value of a signature."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import RequestError
from stream_calib.events.contracts import RejectReason, ScoreBatch
from stream_calib.events.keep_rates import LEAST_KEEP_RATE, POOLED, rate_of, rate_text
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.live.request_rows import RequestReader
from tests.unit.events.events_for_tests import config, record, score

SETTINGS = config(scores={"attributes": {"region": "region"}, "keep_rate": "sampling.rate"})
BAD = [0, -0.0, -0.5, 1.0000001, 2, 9e-7, "0.5", "", True, False, [0.5], {"a": 1}, 10**400]


def decoded(*events: dict[str, Any]) -> ScoreBatch:
    batch = ScoreDecoder(SETTINGS).decode([record(event, i) for i, event in enumerate(events)]).scores
    assert batch is not None
    return batch


def signatures(batch: ScoreBatch) -> list[tuple[str, ...]]:
    return [batch.signatures[i] for i in batch.signature_index.tolist()]


def test_a_missing_rate_and_null_are_one() -> None:
    batch = decoded(
        score(region="eu"),
        score(region="eu", sampling=None),
        score(region="eu", sampling={}),
        score(region="eu", sampling={"rate": None}),
        score(region="eu", sampling={"rate": 1}),
        score(region="us", sampling={"rate": 0.01}),
        score(sampling={"rate": LEAST_KEEP_RATE}),
    )
    assert signatures(batch) == [("eu", "1.0")] * 5 + [("us", "0.01"), ("__missing__", "1e-06")]
    assert len(batch.signatures) == 3


@pytest.mark.parametrize("value", BAD)
def test_what_is_no_rate_is_a_reject_of_its_own(value: Any) -> None:
    found = ScoreDecoder(SETTINGS).decode([record(score(sampling={"rate": value})), record(score(), 1)])
    (reject,) = found.rejects
    assert (reject.record_index, reject.reason) == (0, RejectReason.KEEP_RATE_INVALID)
    assert reject.message.startswith("sampling.rate is ")
    assert reject.message.endswith("; a keep rate is a JSON number from 1e-06 to 1")
    assert found.scores is not None
    assert found.scores.record_index.tolist() == [1]


def test_nan_and_infinity_are_no_json() -> None:
    for text in (b"NaN", b"Infinity"):
        value = json.dumps(score(sampling={"rate": 7})).encode().replace(b"7", text, 1)
        (reject,) = ScoreDecoder(SETTINGS).decode([record(value)]).rejects
        assert reject.reason is RejectReason.NOT_JSON


def test_every_other_fault_of_a_record_is_named_before_its_rate() -> None:
    bad = {"sampling": {"rate": 0}}
    for fault, reason in (
        ({"event_id": None}, RejectReason.ID_INVALID),
        ({"score": 7}, RejectReason.SCORE_OUT_OF_RANGE),
        ({"ts": "x"}, RejectReason.TIME_INVALID),
    ):
        (reject,) = ScoreDecoder(SETTINGS).decode([record(score(**bad) | fault)]).rejects
        assert reject.reason is reason


def test_without_the_setting_the_field_means_nothing() -> None:
    found = ScoreDecoder(config()).decode([record(score(sampling={"rate": 0}))])
    assert found.rejects == []
    assert found.scores is not None
    assert found.scores.signatures == [()]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.floats(LEAST_KEEP_RATE, 1.0)), min_size=1, max_size=20))
def test_rates_come_back_exactly_beside_their_own_attributes(rows: list[tuple[str, float]]) -> None:
    batch = decoded(*(score(region=region, sampling={"rate": rate}) for region, rate in rows))
    found = [(values[0], rate_of(values[1])) for values in signatures(batch)]
    assert found == [(region or "__missing__", rate) for region, rate in rows]
    assert len(set(batch.signatures)) == len(batch.signatures)


def test_a_pooled_rate_reads_as_its_number() -> None:
    assert rate_of(POOLED + rate_text(0.25)) == 0.25


def read(keep_rates: list[Any] | None, settings_of: Any = SETTINGS) -> Any:
    return RequestReader(settings_of).read(
        "probability", [0.5] * 4, [{"region": "eu"}] * 4, None, None, None, keep_rates
    )


def test_requests_are_read_by_the_same_rules() -> None:
    rows = read([0.5, None, 0, "x"])
    assert {i: reason for i, (reason, _) in rows.refused.items()} == dict.fromkeys(
        (2, 3), RejectReason.KEEP_RATE_INVALID
    )
    assert [rows.signatures[i] for i in rows.signature_index[rows.good]] == [("eu", "0.5"), ("eu", "1.0")]
    assert [read(None).signatures[i] for i in read(None).signature_index] == [("eu", "1.0")] * 4
    assert np.array_equal(read([1, 1, 1, 1]).signature_index, read(None).signature_index)


def test_requests_with_rates_where_none_are_configured_are_refused() -> None:
    with pytest.raises(RequestError, match=r"scores\.keep_rate is not configured: all events were kept"):
        read([1, 1, 1, 1], config(scores={"attributes": {"region": "region"}}))
