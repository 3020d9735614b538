"""calibrate's transform of one batch, and what the monitor reads of the blocks that it writes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stream_calib.calibration.base_map import BaseMap
from stream_calib.calibration.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey, RejectReason
from stream_calib.events.control import clock_record
from stream_calib.snapshot.follower import Served
from stream_calib.transport.port import OffsetRange, Outgoing, Record, TopicPartition
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.shard_store import ScoreRows
from workers.calibrate import Transform
from workers.monitor_inputs import read_blocks

KEY = ModelKey("flights", "1")
TIME_MS = 1_362_132_000_000
SERVED = Served(
    "000007-0123456789ab",
    7,
    ServedMap(
        BaseMap(np.array([-2.0, 2.0]), np.array([0.1, 0.6]), 1e-6, 1e-6),
        [(0,)],
        [{("UA",): 0.5}],
        0.0,
        1e-6,
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


def as_read(outputs: list[Outgoing], topic: str, partition: int) -> list[Record]:
    return [
        Record(TopicPartition(topic, partition), i, o.key, o.value, o.headers, TIME_MS)
        for i, o in enumerate(o for o in outputs if o.topic == topic and o.partition == partition)
    ]


def test_every_score_has_an_output_and_a_row_with_the_served_value_and_version(config: Config) -> None:
    records = [score(0), score(1, partition=3, carrier="B6")]
    outputs, decoded = Transform(config).apply(records, SERVED)
    served = [json.loads(o.value or b"") for o in outputs if o.topic == "calibrated"]
    assert [s["event_id"] for s in served] == ["e0", "e1"]
    assert {s["stream_calib"]["flights"]["snapshot"] for s in served} == {SERVED.version}
    assert served[0]["stream_calib"]["flights"]["calibrated"] > served[1]["stream_calib"]["flights"]["calibrated"]
    assert decoded.rejects == []
    for partition, output in ((0, served[0]), (3, served[1])):
        blocks = as_read(outputs, "blocks", partition)
        read, signatures, rejects = read_blocks(blocks, OffsetRange(0, len(blocks)), KEY)
        assert isinstance(read.rows, ScoreRows)
        assert rejects == []
        assert read.rows.snapshots == (SERVED.version,)
        assert read.rows.served[0] / (2**32 - 1) == pytest.approx(
            output["stream_calib"]["flights"]["calibrated"], abs=2e-10
        )
        assert list(signatures.values()) == [("UA",)] if partition == 0 else [("B6",)]


def test_without_a_snapshot_the_raw_score_is_served_and_marked(config: Config) -> None:
    outputs, _ = Transform(config).apply([score(0)], None)
    (served,) = (json.loads(o.value or b"") for o in outputs if o.topic == "calibrated")
    assert served["stream_calib"]["flights"] == {
        "raw": 0.25,
        "calibrated": 0.25,
        "snapshot": None,
        "status": "identity",
    }


def test_clock_records_keep_their_place_among_the_rows_and_never_reach_the_users(config: Config) -> None:
    records = [score(0), clock(1, TIME_MS + 60_000), score(2), score(3), clock(4, TIME_MS + 120_000, end=True)]
    outputs, _ = Transform(config).apply(records, SERVED)
    assert sum(o.topic == "calibrated" for o in outputs) == 3
    blocks = as_read(outputs, "blocks", 0)
    read, _, _ = read_blocks(blocks, OffsetRange(0, len(blocks)), KEY)
    assert read.row_record.tolist() == [0, 2, 2]
    assert read.clock_record.tolist() == [1, 3]
    assert read.clock_time_ms.tolist() == [TIME_MS + 60_000, ENDED_CLOCK_MS]


def test_rejects_go_to_the_dead_letters_and_the_next_record_is_served(config: Config) -> None:
    bad = Record(TopicPartition("scores", 0), 0, b"k", b"{nope", (), TIME_MS)
    outputs, decoded = Transform(config).apply([bad, score(1)], SERVED)
    assert [r.reason for r in decoded.rejects] == [RejectReason.NOT_JSON]
    (letter,) = (o for o in outputs if o.topic == "dead-letters")
    assert letter.value == b"{nope"
    assert sum(o.topic == "calibrated" for o in outputs) == 1


def test_blocks_of_another_model_give_no_rows_and_damaged_ones_are_rejected(config: Config) -> None:
    outputs, _ = Transform(config).apply([score(0)], SERVED)
    (block,) = as_read(outputs, "blocks", 0)
    other, _, _ = read_blocks([block], OffsetRange(0, 1), ModelKey("other", "1"))
    assert len(other.rows) == 0
    damaged = block._replace(value=(block.value or b"")[:-1])
    read, _, rejects = read_blocks([damaged], OffsetRange(0, 1), KEY)
    assert len(read.rows) == 0
    assert [r.reason for r in rejects] == [RejectReason.BLOCK_DAMAGED]
