"""Scores of several models and versions: whose they are, what becomes of bad ones, and what the users read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.events.contracts import Decoded, ModelKey, RejectReason, ScoreBatch
from stream_calib.events.output_members import ServedAs
from stream_calib.events.outputs import OutputEncoder
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.transport.port import Record
from tests.unit.events.events_for_tests import config, record, score, strict_json

BY_PATH = {"model": {"name_path": "model.name", "version_path": "model.version"}}
BY_VERSION = {"model": {"name": "m", "version_path": "v"}}
TOGETHER = {
    "models": [
        {"name": "a", "score": "s.a"},
        {"name": "b", "score": "s.b", "scale": "percent", "version_path": "b_version"},
    ]
}
MISSING = object()


def decode(records: list[Record], admit: Any = lambda key: True, **sections: Any) -> tuple[Decoded, ScoreBatch]:
    decoded = ScoreDecoder(config(**sections), admit).decode(records)
    assert decoded.scores is not None
    return decoded, decoded.scores


def keys_of(batch: ScoreBatch) -> list[ModelKey]:
    return [batch.keys[i] for i in batch.key_index.tolist()]


def together(a: Any = MISSING, b: Any = MISSING, version: Any = "7", **fields: Any) -> dict[str, Any]:
    scores = {name: value for name, value in (("a", a), ("b", b)) if value is not MISSING}
    named = {} if version is MISSING else {"b_version": version}
    return {"event_id": "e", "ts": score()["ts"], "s": scores} | named | fields


def outputs(records: list[Record], **sections: Any) -> list[dict[str, Any]]:
    """Our fields of what the users read, the raw scores served."""
    settings = config(**sections)
    batch = ScoreDecoder(settings).decode(records).scores
    assert batch is not None
    served = [ServedAs(f"of-{key}", "calibrated") for key in batch.keys]
    found = OutputEncoder(settings).encode(records, batch, batch.score, served)
    return [strict_json(o.value or b"")["stream_calib"] for o in found]


# --- one model a record ---------------------------------------------------------------------------------------


def test_names_and_versions_come_from_the_record() -> None:
    named = [("x", "1"), ("y", "1"), ("x", "2"), ("x", "1")]
    records = [record(score(model={"name": n, "version": v}), i) for i, (n, v) in enumerate(named)]

    _, batch = decode(records, **BY_PATH)

    assert keys_of(batch) == [ModelKey(n, v) for n, v in named]
    assert batch.keys == [ModelKey("x", "1"), ModelKey("y", "1"), ModelKey("x", "2")]
    assert [rows.tolist() for rows in batch.rows_by_key()] == [[0, 3], [1], [2]]


@pytest.mark.parametrize(
    "value", [1, 1.0, True, None, "", "a b", "-a", "é", "\ud800", "x" * 65, [], ["1"], {}, {"a": 1}]
)
def test_what_is_no_name_or_version_is_refused(value: Any) -> None:
    for field in ("name", "version"):
        records = [record(score(model={"name": "m", "version": "1"} | {field: value})), record(score(model={}))]
        decoded, batch = decode(records, **BY_PATH)
        assert [r.reason for r in decoded.rejects] == [RejectReason.MODEL_INVALID, RejectReason.MODEL_MISSING]
        assert f"model.{field} is " in decoded.rejects[0].message
        assert keys_of(batch) == []


@pytest.mark.parametrize("value", ["1", "v1.2-rc_3", "x" * 64, "2024.05.01"])
def test_what_is_a_version(value: str) -> None:
    _, batch = decode([record(score(v=value))], **BY_VERSION)

    assert keys_of(batch) == [ModelKey("m", value)]


def test_one_bad_name_costs_no_other_record_its_score() -> None:
    records = [record(score(event_id=str(i), v="1" if i % 2 else i), i) for i in range(6)]

    decoded, batch = decode(records, **BY_VERSION)

    assert [r.record_index for r in decoded.rejects] == [0, 2, 4]
    assert batch.event_id == ["1", "3", "5"]


def test_an_id_is_refused_before_a_model_and_a_model_before_a_score() -> None:
    records = [record(score(event_id=None, v=None)), record(score(score=None, v=None))]

    decoded, _ = decode(records, **BY_VERSION)

    assert [r.reason for r in decoded.rejects] == [RejectReason.ID_INVALID, RejectReason.MODEL_INVALID]


def test_a_version_from_the_record_is_in_the_output() -> None:
    (mine,) = outputs([record(score(v="7"))], **BY_VERSION)

    assert mine == {
        "m": {"version": "7", "raw": 0.25, "calibrated": 0.25, "snapshot": "of-m/7", "status": "calibrated"}
    }


# --- bound ----------------------------------------------------------------------------------------------------


def test_keys_that_are_not_admitted_are_refused() -> None:
    asked: list[ModelKey] = []

    def admit(key: ModelKey) -> bool:
        asked.append(key)
        return key.version != "2"

    records = [record(score(event_id=str(i), v=str(i % 3)), i) for i in range(9)]
    decoded, batch = decode(records, admit, **BY_VERSION)

    assert {r.reason for r in decoded.rejects} == {RejectReason.TOO_MANY_MODELS}
    assert [r.record_index for r in decoded.rejects] == [2, 5, 8]
    assert "m/2" in decoded.rejects[0].message
    assert batch.event_id == ["0", "1", "3", "4", "6", "7"]
    assert asked == [ModelKey("m", str(i)) for i in range(3)], "once for each"


def test_nothing_is_asked_for_records_that_are_refused_anyway() -> None:
    def admit(key: ModelKey) -> bool:
        raise AssertionError(key)

    records = [record(score(v="1", event_id=None)), record(score(v="1", ts="x")), record(score(v="1", score="x"))]

    decoded, _ = decode(records, admit, **BY_VERSION)

    assert len(decoded.rejects) == 3


def test_constants_are_never_asked_for() -> None:
    _, batch = decode([record(score())], lambda key: False)

    assert keys_of(batch) == [ModelKey("m", "1")]


# --- several in one record ------------------------------------------------------------------------------------


def test_each_model_of_a_record_has_a_row() -> None:
    records = [record(together(0.25, 50), 0), record(together(0.5, 75, event_id="f"), 1)]

    decoded, batch = decode(records, **TOGETHER)

    a, b = ModelKey("a", "1"), ModelKey("b", "7")
    assert decoded.rejects == []
    assert keys_of(batch) == [a, b, a, b]
    assert batch.record_index.tolist() == [0, 0, 1, 1]
    assert batch.event_id == ["e", "e", "f", "f"]
    assert batch.score.tolist() == [0.25, 0.5, 0.5, 0.75]
    assert batch.fingerprint[0] == batch.fingerprint[1] != batch.fingerprint[2]


def test_an_absent_score_is_left_out_and_a_bad_one_is_marked() -> None:
    found = outputs(
        [
            record(together(0.25), 0),
            record(together(0.25, "high"), 1),
            record(together(0.25, 101), 2),
            record(together(0.25, 50, version=7), 3),
            record(together(0.25, 50, version=MISSING), 4),
            record(together(None, 50), 5),
        ],
        **TOGETHER,
    )

    assert [list(mine) for mine in found] == [["a"], ["a", "b"], ["a", "b"], ["a", "b"], ["a", "b"], ["b", "a"]]
    refused = {"raw": None, "calibrated": None, "snapshot": None, "status": "rejected"}
    assert [mine["b"] for mine in found[1:5]] == [
        {"version": "7", **refused, "reason": "score_invalid"},
        {"version": "7", **refused, "reason": "score_out_of_range"},
        {"version": None, **refused, "reason": "model_invalid"},
        {"version": None, **refused, "reason": "model_missing"},
    ]
    assert found[5]["a"] == {**refused, "reason": "score_invalid"}
    assert found[5]["b"]["status"] == "calibrated"


def test_refused_scores_of_accepted_records_are_told() -> None:
    decoded, batch = decode([record(together(0.25), 0), record(together(0.25, "x"), 1)], **TOGETHER)

    assert decoded.rejects == []
    (refused,) = batch.refused
    assert (refused.record_index, refused.model, refused.version) == (1, "b", "7")
    assert refused.reject.reason is RejectReason.SCORE_INVALID
    assert "s.b is 'x'" in refused.reject.message


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (together(), RejectReason.SCORE_MISSING),
        (together("x"), RejectReason.SCORE_INVALID),
        (together("x", 101), RejectReason.SCORE_INVALID),
        (together(2, "x"), RejectReason.SCORE_OUT_OF_RANGE),
        (together(b=50, version=None), RejectReason.MODEL_INVALID),
        (together(0.5, 50, event_id=None), RejectReason.ID_INVALID),
        (together(0.5, "x", ts="x"), RejectReason.TIME_INVALID),
        (together("x", "x", ts="x"), RejectReason.SCORE_INVALID),
        ({"event_id": "e", "ts": score()["ts"], "s": 0.5}, RejectReason.SCORE_MISSING),
    ],
)
def test_a_record_without_any_good_score_is_rejected_as_a_whole(value: dict[str, Any], reason: RejectReason) -> None:
    decoded, batch = decode([record(value)], **TOGETHER)

    assert [r.reason for r in decoded.rejects] == [reason]
    assert batch.refused == []
    assert outputs([record(value)], **TOGETHER) == []


def test_a_key_beyond_the_bound_is_marked_beside_the_others() -> None:
    decoded, batch = decode([record(together(0.5, 50))], lambda key: False, **TOGETHER)

    assert decoded.rejects == []
    assert keys_of(batch) == [ModelKey("a", "1")]
    assert [r.reject.reason for r in batch.refused] == [RejectReason.TOO_MANY_MODELS]


def test_members_are_added_to_the_users_object() -> None:
    value = json.dumps(together(0.25, 50)).encode()
    settings = config(serving={"output": "enrich"}, **TOGETHER)
    batch = ScoreDecoder(settings).decode([record(value)]).scores
    assert batch is not None

    served = [ServedAs("", "identity"), ServedAs("v", "previous_version")]
    (out,) = OutputEncoder(settings).encode([record(value)], batch, np.array([0.25, 0.125]), served)

    assert (out.value or b"").startswith(value[:-1] + b',"stream_calib":{"a":{"raw":0.25,')
    assert strict_json(out.value or b"")["stream_calib"] == {
        "a": {"raw": 0.25, "calibrated": 0.25, "snapshot": None, "status": "identity"},
        "b": {"version": "7", "raw": 0.5, "calibrated": 0.125, "snapshot": "v", "status": "previous_version"},
    }


# --- passthrough ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "value", "expected"),
    [
        (TOGETHER, together("x", version="7"), {"a": {}, "b": {"version": "7"}}),
        (TOGETHER, together("x", version=7), {"a": {}, "b": {"version": None}}),
        (BY_VERSION, score(v="2", score=None), {"m": {"version": "2"}}),
        (BY_PATH, score(model={"name": "x", "version": "2"}, score=None), {"x": {"version": "2"}}),
        (BY_PATH, score(model={"name": "x y", "version": "2"}), {}),
    ],
)
def test_a_rejected_record_names_the_models_it_can(
    sections: dict[str, Any], value: dict[str, Any], expected: dict[str, Any]
) -> None:
    settings = config(**sections)
    rejects = ScoreDecoder(settings).decode([record(value)]).rejects

    (out,) = OutputEncoder(settings).passthrough([record(value)], rejects)

    nothing = {"raw": None, "calibrated": None, "snapshot": None, "status": "passthrough"}
    assert strict_json(out.value or b"")["stream_calib"] == {name: {**v, **nothing} for name, v in expected.items()}


def test_a_value_that_no_topic_may_take_is_not_passed_through() -> None:
    settings = config(records={"max_record_bytes": 20_000, "max_dead_letter_bytes": 10_000})
    large, small = record(b"x" * 10_001), record(b"x" * 10_000)
    rejects = ScoreDecoder(settings).decode([large, small]).rejects

    (out,) = OutputEncoder(settings).passthrough([large, small], rejects)

    assert out.value == small.value


# --- whatever comes -------------------------------------------------------------------------------------------

anything: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([]) | st.just({})
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"event_id": st.sampled_from(["e", None]), "ts": st.just(score()["ts"])},
            optional={
                "s": st.fixed_dictionaries({}, optional={"a": anything | st.floats(0, 1), "b": anything}),
                "b_version": anything | st.just("1"),
            },
        ),
        max_size=6,
    )
)
def test_every_record_is_rejected_or_has_one_output_with_each_of_its_scores(values: list[dict[str, Any]]) -> None:
    records = [record(json.dumps(value).encode(), i) for i, value in enumerate(values)]
    settings = config(**TOGETHER)
    decoded = ScoreDecoder(settings).decode(records)
    batch = decoded.scores
    assert batch is not None
    served = [ServedAs("", "identity") for _ in batch.keys]
    found = OutputEncoder(settings).encode(records, batch, batch.score, served)
    by_offset = {int(dict(o.headers)["stream-calib-source-offset"]): strict_json(o.value or b"") for o in found}
    rejected = {r.record_index for r in decoded.rejects}

    assert len(found) == len(by_offset)
    assert sorted([*by_offset, *rejected]) == list(range(len(records)))
    for offset, output in by_offset.items():
        assert set(output["stream_calib"]) == set(values[offset]["s"])
