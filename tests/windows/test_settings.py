"""What a deployment chooses: how a missing label is read, and which topics the state belongs to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stream_calib.config import Config
from stream_calib.errors import TopicRecreatedError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.event_times import iso8601_ms
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import OffsetRange, Record, TopicPartition
from stream_calib.windows.input_batch import judge_records
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.read_inputs import ReadLabels
from stream_calib.windows.registration import claim_topics
from stream_calib.windows.shard_store import Mark
from tests.oracle.offline import Score
from tests.windows.join import SETTINGS, Join, L, S, at, block, label
from tests.windows.records import Block, batch


@pytest.mark.parametrize(("negative", "sums"), [(False, (2, 1, 2)), (True, (3, 1, 1))])
def test_a_missing_label_is_negative_only_where_that_is_chosen_and_a_withdrawn_one_never(
    negative: bool, sums: tuple[int, int, int]
) -> None:
    join = Join(MemoryShards(2, replace(SETTINGS, negative_at_horizon=negative)))
    join.write(S, block(("positive", 1), ("negative", 1), ("never", 1), ("withdrawn", 1)))
    join.write(L, label("positive", 2, 1), label("negative", 2, 0), label("withdrawn", 2, None))
    join.move_clocks(60)
    assert join.sums(0) == sums


@pytest.mark.parametrize(
    ("written", "granularity", "skewed"),
    [
        ("2024-05-01", "1d", False),
        ("2024-05-02", "1d", True),
        ("2024-05-01T10:05:00", "1ms", False),
        ("2024-05-01T10:05:01", "1ms", True),
    ],
)
def test_a_label_is_skewed_by_the_start_of_its_granule(written: str, granularity: str, skewed: bool) -> None:
    """A label that is dated today counts as the end of today, which is ahead of every clock until then."""
    config = Config.model_validate(
        {
            "model": {"name": "m"},
            "labels": {"time": {"path": "day", "unit": "iso8601"}, "time_granularity": granularity},
            "windows": {"horizon": "7d", "max_clock_skew": "5m"},
        }
    )
    taken_ms = iso8601_ms("2024-05-01T10:00:00Z") or 0
    value = json.dumps({"event_id": "e", "label": 1, "day": written}).encode()
    record = Record(TopicPartition("labels", 0), 0, None, value, (), taken_ms)
    read = ReadLabels([record], OffsetRange(0, 1), LabelDecoder(config), PaneSettings.of(config))
    assert read.rejects == []
    judged = judge_records("l:labels:0", read.of(ModelKey("m", "1")), None, 1, PaneSettings.of(config))
    assert (len(judged.labels), judged.drop_kind.tolist()) == ((0, [True]) if skewed else (1, []))


def test_the_granule_of_labels_gives_scores_no_room() -> None:
    settings = replace(SETTINGS, max_clock_skew_ms=1_000, label_time_granularity_ms=60_000)
    ahead = Block((Score("a", at(5), 0.5, ("x",), append_ms=at(3)),))
    assert batch("s:b:0", [ahead], Mark(0, None), 1, settings).drop_kind.tolist() == [True]


def test_state_is_bound_to_the_topics_that_it_counts() -> None:
    state = MemoryState()
    claim_topics(state, {"labels": "id-1", "blocks": "id-2"})
    claim_topics(state, {"blocks": "id-2", "labels": "id-1"})
    with pytest.raises(TopicRecreatedError, match="blocks=id-3"):
        claim_topics(state, {"labels": "id-1", "blocks": "id-3"})
