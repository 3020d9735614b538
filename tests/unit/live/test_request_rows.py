"""Events of requests are read by the rules of the score topic, and refused one by one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stream_calib.config_models import ScoreScale
from stream_calib.errors import RequestError
from stream_calib.events.columns import ABSENT
from stream_calib.events.contracts import ModelKey
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.live.request_rows import NOW, RequestReader, RequestRows
from stream_calib.transport.port import Record, TopicPartition
from tests.unit.live.requests_for_tests import NOW_MS, config_of

ON_THE_TOPIC = {
    "scores": {
        "score": "score",
        "attributes": {"region": "region", "device": "device"},
        "time": {"path": "event_time_ms"},
        "unit": "customer",
    }
}
EVENTS: list[dict[str, Any]] = [
    {"event_id": "a", "score": 0.25, "region": "eu", "device": "phone", "customer": "c"},
    {"event_id": 7, "score": 1, "region": None, "device": "", "customer": None},
    {"event_id": "b", "score": -0.0, "region": 3, "device": True, "customer": 5},
    {"event_id": "c", "score": 1.0000005, "region": {"x": 1}, "device": "d" * 200, "customer": [1]},
    {"event_id": "d", "score": -1e-7},
    {"event_id": "e", "score": 1.1},
    {"event_id": "f", "score": 73.0},
    {"event_id": "g", "score": "0.5"},
    {"event_id": "h", "score": True},
    {"event_id": "i", "score": None},
    {"event_id": "j"},
    {"event_id": "k", "score": 10**400},
    {"event_id": 7.0, "score": 0.5},
    {"event_id": "", "score": 0.5},
    {"event_id": None, "score": 2},
    {"event_id": "x" * 513, "score": 0.5},
    {"event_id": "\ud800", "score": 0.5},
    {"score": 0.5},
    {"event_id": "l", "score": 0.5, "event_time_ms": 1_700_000_000},
    {"event_id": "m", "score": 0.5, "event_time_ms": "2024-01-01"},
    {"event_id": "n", "score": "x", "event_time_ms": 1},
    {"event_id": "o", "score": 0.75, "event_time_ms": NOW_MS + 0.9},
]


def read(events: list[dict[str, Any]], scale: ScoreScale = "probability", **sections: Any) -> RequestRows:
    return RequestReader(config_of(**(ON_THE_TOPIC | sections))).read(
        scale,
        [e.get("score", ABSENT) for e in events],
        events,
        [e.get("event_id", ABSENT) for e in events],
        [e.get("event_time_ms") for e in events],
        [e.get("customer") for e in events],
    )


@pytest.mark.parametrize("scale", ["probability", "logit", "percent"])
def test_verdicts_and_columns_are_those_of_the_score_topic(scale: ScoreScale) -> None:
    sections: dict[str, Any] = {"scores": {**ON_THE_TOPIC["scores"], "scale": scale}}
    timed = [{"event_time_ms": NOW_MS, **event} for event in EVENTS]
    records = [
        Record(TopicPartition("scores", 0), i, None, json.dumps(event).encode(), (), NOW_MS)
        for i, event in enumerate(timed)
    ]
    decoded = ScoreDecoder(config_of(**sections)).decode(records)
    expected = decoded.scores
    assert expected is not None
    found = read(timed, scale, **sections)
    assert found.refused == {r.record_index: (r.reason, r.message) for r in decoded.rejects}
    good = found.good
    assert good.tolist() == expected.record_index.tolist()
    assert found.score[good].tobytes() == expected.score.tobytes()
    assert found.event_id is not None
    assert [found.event_id[i] for i in good] == expected.event_id
    assert found.fingerprint is not None
    assert found.fingerprint[good].tolist() == expected.fingerprint.tolist()
    assert found.unit_bucket is not None
    assert found.unit_bucket[good].tolist() == expected.unit_bucket.tolist()
    assert found.event_time_ms[good].tolist() == expected.event_time_ms.tolist()
    assert [found.signatures[i] for i in found.signature_index[good]] == [
        expected.signatures[i] for i in expected.signature_index
    ]


def test_a_missing_time_is_now() -> None:
    found = read([{"event_id": "a", "score": 0.5}, {"event_id": "b", "score": 0.5, "event_time_ms": NOW_MS}])
    assert found.event_time_ms.tolist() == [NOW, NOW_MS]


def test_numbers_of_a_program_that_json_does_not_have_are_refused() -> None:
    found = RequestReader(config_of()).read(
        "probability", np.array([0.5, np.nan, np.inf, -np.inf, -0.0]), None, None, None, None
    )
    assert {i: reason.value for i, (reason, _) in found.refused.items()} == {
        1: "score_invalid",
        2: "score_out_of_range",
        3: "score_out_of_range",
    }
    assert found.good.tolist() == [0, 4]
    assert not np.signbit(found.score[4])


def test_attributes_by_event_and_by_column_are_the_same() -> None:
    reader = RequestReader(config_of())
    by_event = reader.read(
        "probability", [0.1, 0.2, 0.3], [{"region": "a", "x": 1}, {}, {"device": 2}], None, None, None
    )
    columns: dict[str, Any] = {"region": ["a", None, ""], "device": np.array([None, None, 2], dtype=object), "x": [1]}
    by_column = reader.read("probability", [0.1, 0.2, 0.3], columns, None, None, None)
    wanted = [("a", "__missing__"), ("__missing__", "__missing__"), ("__missing__", "2")]
    for found in (by_event, by_column):
        assert [found.signatures[i] for i in found.signature_index] == wanted
    none = reader.read("probability", [0.1], None, None, None, None)
    assert none.signatures == reader.read("probability", [0.1], {"x": [1]}, None, None, None).signatures
    assert none.signatures == [("__missing__", "__missing__")]


def test_a_request_of_nothing() -> None:
    found = RequestReader(config_of()).read("probability", [], [], [], [], None)
    assert len(found.good) == len(found.score) == 0
    assert found.refused == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attributes": [{}]}, "attributes: 1 values for 2 scores"),
        ({"attributes": {"region": ["a"]}}, "region: 1 values for 2 scores"),
        ({"event_ids": ["a"]}, "event_ids: 1 values"),
        ({"event_times_ms": [None, None, None]}, "event_times_ms: 3 values"),
        ({"event_ids": ["a", "b"], "units": ["a"]}, "units: 1 values"),
    ],
)
def test_columns_of_other_lengths_are_refused(given: dict[str, Any], message: str) -> None:
    columns: dict[str, Any] = {"attributes": None, "event_ids": None, "event_times_ms": None, "units": None, **given}
    with pytest.raises(RequestError, match=message):
        RequestReader(config_of(**ON_THE_TOPIC)).read("probability", [0.1, 0.2], **columns)


def test_units_only_where_they_are_configured() -> None:
    with pytest.raises(RequestError, match=r"scores\.unit is not configured"):
        RequestReader(config_of()).read("probability", [0.1], None, ["a"], None, ["u"])


SEVERAL = {
    "model": {},
    "models": [{"name": "a", "score": "a", "scale": "logit"}, {"name": "b", "score": "b", "version_path": "v"}],
}
NAMED_BY_RECORDS = {"model": {"name_path": "n", "version": "2"}}


@pytest.mark.parametrize(
    ("sections", "asked", "key"),
    [
        ({}, (None, None), ("m", "1")),
        ({}, ("m", None), ("m", "1")),
        ({}, ("m", "1"), ("m", "1")),
        (SEVERAL, ("a", None), ("a", "1")),
        (SEVERAL, ("b", "9"), ("b", "9")),
        (NAMED_BY_RECORDS, ("x", None), ("x", "2")),
    ],
)
def test_the_model_that_is_asked_for(
    sections: dict[str, Any], asked: tuple[str | None, str | None], key: tuple[str, str]
) -> None:
    found, scale = RequestReader(config_of(**sections)).model(*asked)
    assert found == ModelKey(*key)
    assert scale == ("logit" if key[0] == "a" else "probability")


@pytest.mark.parametrize(
    ("sections", "asked", "message"),
    [
        ({}, ("n", None), r"no model n/\(any\) is configured; there are: m/1"),
        ({}, (None, "2"), r"no model \(any\)/2 is configured"),
        (SEVERAL, (None, None), r"name the model; there are: a/1, b/\(any\)"),
        (SEVERAL | {"fusion": {"name": "f"}}, ("f", None), "f is fused of several models' scores .*; ask for a, b, or"),
        (SEVERAL, ("b", None), "give the model's version"),
        (NAMED_BY_RECORDS, (None, None), "give the model's name"),
        (NAMED_BY_RECORDS, ("a b", None), "use 1-64 characters"),
        (NAMED_BY_RECORDS, ("x", "3"), "no model x/3"),
    ],
)
def test_a_model_that_cannot_be_meant_is_refused(
    sections: dict[str, Any], asked: tuple[str | None, str | None], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        RequestReader(config_of(**sections)).model(*asked)
