"""calibrate's transform of one batch: outputs, blocks, dead letters."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stream_calib.calibration.groups import family_rule
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import FamilyShift, MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config import Config
from stream_calib.config_models import ModelSection
from stream_calib.events.blocks import BlockRows, served_probability, unpack
from stream_calib.events.contracts import ClockRecord, Decoded, ModelKey, Reject, RejectReason
from stream_calib.events.control import clock_record, is_control, read_clock
from stream_calib.snapshot.follower import Served
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from workers.calibrate_transform import Transform

KEY = ModelKey("flights", "1")
TIME_MS = 1_362_132_000_000
SERVED = Served(
    "000007-0123456789ab",
    7,
    ServedMap(
        MapParts(
            BaseMap(np.array([-2.0, 2.0]), np.array([0.1, 0.6]), 1e-6, 1e-6),
            (FamilyShift(family_rule(("carrier",), ["carrier"]), {("UA",): 0.5}),),
        )
    ),
)


@pytest.fixture
def config() -> Config:
    return Config.model_validate(
        {
            "model": {"name": "flights"},
            "scores": {"time": {"path": "ts"}, "attributes": {"carrier": "carrier"}},
            "windows": {"horizon": "24h"},
        }
    )


def score(offset: int, partition: int = 0, **changes: Any) -> Record:
    event = {"event_id": f"e{offset}", "ts": TIME_MS + offset, "score": 0.25, "carrier": "UA"} | changes
    return Record(TopicPartition("scores", partition), offset, b"k", json.dumps(event).encode(), (), TIME_MS)


def clock(offset: int, clock_ms: int, *, end: bool = False) -> Record:
    value, headers = clock_record(clock_ms, end=end)
    return Record(TopicPartition("scores", 0), offset, None, value, headers, TIME_MS)


def apply(config: Config, records: list[Record], served: Served | None) -> tuple[list[Outgoing], Decoded]:
    transform = Transform(config)
    decoded, batch = transform.decode(records)
    serving = Serving(served, "calibrated" if served else "identity")
    return transform.encode(records, decoded, transform.calibrate(batch, lambda key: serving)), decoded


def blocks(outputs: list[Outgoing], partition: int) -> list[BlockRows | ClockRecord]:
    """What was written to this partition of `blocks`, in order."""
    found: list[BlockRows | ClockRecord] = []
    for i, o in enumerate(o for o in outputs if o.topic == "blocks" and o.partition == partition):
        record = Record(TopicPartition("blocks", partition), i, o.key, o.value, o.headers, TIME_MS)
        clock = read_clock(record, i) if is_control(record) else unpack(o.value or b"")
        assert not isinstance(clock, Reject)
        found.append(clock)
    return found


def values(outputs: list[Outgoing]) -> list[dict[str, Any]]:
    return [json.loads(o.value or b"") for o in outputs if o.topic == "calibrated"]


def test_every_score_has_an_output_and_a_row_with_the_served_value_and_version(config: Config) -> None:
    records = [score(0), score(1, partition=3, carrier="B6")]
    outputs, decoded = apply(config, records, SERVED)
    served = values(outputs)
    assert [s["event_id"] for s in served] == ["e0", "e1"]
    assert {s["stream_calib"]["flights"]["snapshot"] for s in served} == {SERVED.version}
    assert served[0]["stream_calib"]["flights"]["calibrated"] > served[1]["stream_calib"]["flights"]["calibrated"]
    assert decoded.rejects == []
    for partition, output, carrier in ((0, served[0], "UA"), (3, served[1], "B6")):
        (block,) = blocks(outputs, partition)
        assert isinstance(block, BlockRows)
        assert block.model_key == KEY
        assert block.snapshots == [SERVED.version]
        assert served_probability(block.served)[0] == pytest.approx(
            output["stream_calib"]["flights"]["calibrated"], abs=2e-10
        )
        assert block.signatures == [(carrier,)]


def test_attributes_derived_from_the_event_time_are_those_of_the_events_pane(config: Config) -> None:
    """TIME_MS is 05:00 in New York. The rows for the monitor keep the configured attributes alone."""
    derived = TimeAttributes(("hour_of_day",), "America/New_York", 3_600_000)
    family = FamilyShift(family_rule(("hour_of_day",), ["carrier", "hour_of_day"]), {("05",): 0.5})
    served = Served("000008-0123456789ab", 8, ServedMap(MapParts(SERVED.map.parts.base, (family,))), 0, derived)
    records = [score(0), score(1, ts=TIME_MS + 3_599_999), score(2, ts=TIME_MS + 3_600_000), score(3, carrier="B6")]
    outputs, _ = apply(config, records, served)
    at_five, later, at_six, other = (v["stream_calib"]["flights"]["calibrated"] for v in values(outputs))
    assert at_five == later == other
    assert at_five > at_six
    (block,) = blocks(outputs, 0)
    assert isinstance(block, BlockRows)
    assert block.signatures == [("UA",), ("B6",)]


def test_without_a_snapshot_the_raw_score_is_served_and_marked(config: Config) -> None:
    outputs, _ = apply(config, [score(0)], None)
    (served,) = values(outputs)
    assert served["stream_calib"]["flights"] == {
        "raw": 0.25,
        "calibrated": 0.25,
        "snapshot": None,
        "status": "identity",
    }


def test_clock_records_keep_their_place_among_the_rows_and_never_reach_the_users(config: Config) -> None:
    records = [score(0), clock(1, TIME_MS + 60_000), score(2), score(3), clock(4, TIME_MS + 120_000, end=True)]
    outputs, _ = apply(config, records, SERVED)
    assert len(values(outputs)) == 3
    first, idle, second, end = blocks(outputs, 0)
    assert isinstance(first, BlockRows)
    assert isinstance(second, BlockRows)
    assert (len(first.score), len(second.score)) == (1, 2)
    assert idle == ClockRecord(1, TIME_MS + 60_000, end=False)
    assert end == ClockRecord(3, TIME_MS + 120_000, end=True)


def test_rejects_go_to_the_dead_letters_and_the_next_record_is_served(config: Config) -> None:
    bad = Record(TopicPartition("scores", 0), 0, b"k", b"{nope", (), TIME_MS)
    outputs, decoded = apply(config, [bad, score(1)], SERVED)
    assert [r.reason for r in decoded.rejects] == [RejectReason.NOT_JSON]
    (letter,) = (o for o in outputs if o.topic == "dead-letters")
    assert letter.value == b"{nope"
    assert len(values(outputs)) == 1


def test_a_clock_record_is_written_once_for_all_model_keys(config: Config) -> None:
    """Rows of each key are in blocks of their own; the partition's clock stands after all that came before it."""
    settings = config.model_copy(update={"model": ModelSection(name_path="m", version_path="v")})
    names = [("x", "1"), ("y", "1"), ("x", "2"), ("x", "1")]
    records = [score(i, m=name, v=version) for i, (name, version) in enumerate(names)]
    outputs, _ = apply(settings, [*records, clock(4, TIME_MS + 60_000), score(5, m="y", v="1")], None)
    *before, idle, after = blocks(outputs, 0)
    assert [(b.model_key, len(b.score)) for b in before if isinstance(b, BlockRows)] == [
        (ModelKey("x", "1"), 2),
        (ModelKey("y", "1"), 1),
        (ModelKey("x", "2"), 1),
    ]
    assert idle == ClockRecord(3, TIME_MS + 60_000, end=False)
    assert isinstance(after, BlockRows)
    assert after.model_key == ModelKey("y", "1")


def test_each_model_key_is_calibrated_by_its_own_map(config: Config) -> None:
    settings = config.model_copy(update={"model": ModelSection(name="flights", version_path="v")})
    transform = Transform(settings)
    records = [score(i, v=str(i % 2)) for i in range(6)]
    decoded, batch = transform.decode(records)

    def serving(key: ModelKey) -> Serving:
        return Serving(SERVED, "calibrated") if key.version == "1" else Serving(None, "identity")

    served = values(transform.encode(records, decoded, transform.calibrate(batch, serving)))

    calibrated = apply(config, [score(0)], SERVED)[0]
    (alone,) = values(calibrated)
    for i, value in enumerate(served):
        assert value["event_id"] == f"e{i}"
        expected = alone["stream_calib"]["flights"]["calibrated"] if i % 2 else 0.25
        assert value["stream_calib"]["flights"] == {
            "version": str(i % 2),
            "raw": 0.25,
            "calibrated": expected,
            "snapshot": SERVED.version if i % 2 else None,
            "status": "calibrated" if i % 2 else "identity",
        }
