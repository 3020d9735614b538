"""A sample of the event ids is counted, and every score is served; the keep rate is counted by and never served by."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.groups import family_rule
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import FamilyShift, MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config import Config
from stream_calib.events.blocks import BlockRows, unpack
from stream_calib.events.identity import fingerprints, sampled
from stream_calib.live.request_rows import RequestReader
from stream_calib.live.waiting_rows import ServedRows
from stream_calib.snapshot.follower import Served
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from tests.unit.live.requests_for_tests import KEY, config_of
from workers.calibrate_transform import Transform

TIME_MS = 1_362_132_000_000
CURVE = BaseMap(np.array([-2.0, 2.0]), np.array([0.1, 0.6]), 1e-6, 1e-6)
HOURS = TimeAttributes(("hour_of_day",), "UTC", 3_600_000)
SERVED = Served(
    "000007-0123456789ab",
    7,
    ServedMap(
        MapParts(
            CURVE,
            (
                FamilyShift(family_rule(("region",), ["region", "hour_of_day"]), {("eu",): 0.5}),
                FamilyShift(family_rule(("hour_of_day",), ["region", "hour_of_day"]), {("10",): -1.0}),
            ),
        )
    ),
    derived=HOURS,
    attributes=1,
)


def outputs_of(events: list[dict[str, Any]], **scores: Any) -> list[Outgoing]:
    config = Config.model_validate(
        {
            "model": {"name": "m"},
            "scores": {"time": {"path": "ts"}, "attributes": {"region": "region"}} | scores,
            "windows": {"horizon": "24h"},
        }
    )
    records = [
        Record(TopicPartition("scores", 0), i, None, json.dumps({"ts": TIME_MS + i} | event).encode(), (), TIME_MS)
        for i, event in enumerate(events)
    ]
    transform = Transform(config)
    decoded, batch = transform.decode(records)
    return transform.encode(records, decoded, transform.calibrate(batch, lambda key: Serving(SERVED, "calibrated")))


def rows_of(outputs: list[Outgoing]) -> list[BlockRows]:
    return [unpack(o.value or b"") for o in outputs if o.topic == "blocks"]


def served_of(outputs: list[Outgoing]) -> list[float]:
    return [json.loads(o.value or b"")["stream_calib"]["m"]["calibrated"] for o in outputs if o.topic == "calibrated"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_every_score_is_served_and_only_those_of_the_sample_are_rows(numbers: list[int], rate: float) -> None:
    ids = [f"e{number}" for number in numbers]
    events = [{"event_id": event_id, "score": 0.25, "region": "eu"} for event_id in ids]
    all_counted, some = outputs_of(events), outputs_of(events, sample_rate=rate)
    assert [o.value for o in some if o.topic == "calibrated"] == [
        o.value for o in all_counted if o.topic == "calibrated"
    ]
    expected = [f for f, chosen in zip(fingerprints(ids), sampled(fingerprints(ids), rate), strict=True) if chosen]
    assert [f for block in rows_of(some) for f in block.fingerprint.tolist()] == expected


def test_requests_leave_the_same_sample() -> None:
    ids = [f"e{i}" for i in range(200)]
    read = RequestReader(config_of()).read("probability", [0.25] * 200, None, ids, None, None)
    chosen = sampled(fingerprints(ids), 0.3)
    rows = ServedRows.of(KEY, "v", read, np.linspace(0, 1, 200), 0.3)
    assert 30 < len(rows) < 90
    assert rows.fingerprint.tolist() == fingerprints(ids)[chosen].tolist()
    assert rows.probability.tolist() == np.linspace(0, 1, 200)[chosen].tolist()


def test_the_keep_rate_is_in_the_rows_and_changes_nothing_that_is_served() -> None:
    events = [
        {"event_id": f"e{i}", "score": 0.25, "region": region, "rate": rate}
        for i, (region, rate) in enumerate([("eu", 1), ("eu", 0.5), ("us", 0.01), ("us", None)])
    ]
    outputs = outputs_of(events, keep_rate="rate")
    eu, thinned_eu, thinned_us, us = served_of(outputs)
    assert eu == thinned_eu > thinned_us == us
    assert [eu, thinned_eu, thinned_us, us] == served_of(outputs_of(events))
    (block,) = rows_of(outputs)
    assert [block.signatures[i] for i in block.signature_index] == [
        ("eu", "1.0"),
        ("eu", "0.5"),
        ("us", "0.01"),
        ("us", "1.0"),
    ]


def test_fused_scores_are_of_the_sample_of_their_members() -> None:
    config = Config.model_validate(
        {
            "models": [{"name": "tree", "score": "tree"}, {"name": "rules", "score": "rules"}],
            "fusion": {"name": "fused", "members": {"tree": 0.5, "rules": 0.5}},
            "scores": {"time": {"path": "ts"}, "sample_rate": 0.4},
            "windows": {"horizon": "24h"},
        }
    )
    ids = [f"e{i}" for i in range(100)]
    records = [
        Record(
            TopicPartition("scores", 0),
            i,
            None,
            json.dumps({"event_id": event_id, "ts": TIME_MS, "tree": 0.3, "rules": 0.6}).encode(),
            (),
            TIME_MS,
        )
        for i, event_id in enumerate(ids)
    ]
    transform = Transform(config)
    decoded, batch = transform.decode(records)
    plain = Served("000001-0123456789ab", 1, ServedMap(MapParts(CURVE)))
    calibrated = transform.calibrate(batch, lambda key: Serving(plain, "calibrated"))
    assert len(calibrated.scores.score) == 300
    rows = rows_of(transform.encode(records, decoded, calibrated))
    expected = fingerprints(ids)[sampled(fingerprints(ids), 0.4)].tolist()
    assert {block.model_key.model: block.fingerprint.tolist() for block in rows} == dict.fromkeys(
        ("tree", "rules", "fused"), expected
    )


def test_a_rate_of_nothing_is_no_setting() -> None:
    for rate in (0, -0.1, 1.1):
        with pytest.raises(ValueError, match="sample_rate"):
            outputs_of([], sample_rate=rate)
