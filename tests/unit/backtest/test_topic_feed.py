"""Ranges of topics as a feed: where they begin and end, what is gone of them, and that nothing is touched."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.topics.feed import RETAINED_AWAY, WITHOUT_RECORD, TopicFeed, feed_bounds
from stream_calib.config import Config
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.control import clock_record
from stream_calib.events.topic_range import Bound
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.shard_store import Mark
from tests.oracle.offline import Score
from tests.windows.monitors import block

KEY, OTHER = ModelKey("m", "1"), ModelKey("m", "2")
MAY_2024_MS = 1_714_521_600_000
CONFIG = Config.model_validate(
    {
        "model": {"name_path": "m", "version_path": "v"},
        "scores": {"attributes": {"group": "g"}},
        "labels": {"time": {"path": "t", "unit": "ms"}},
        "windows": {"pane": "1m", "horizon": "2m", "label_lateness": "1m", "shards": 1, "max_clock_skew": "off"},
        "drift": {"psi_window": "1m"},
        "refit": {"gate_window": "1m"},
    }
)


class Topics:
    """Topics in memory; the time at which records are taken is set by hand."""

    def __init__(self, partitions: int = 1) -> None:
        self.now_ms = MAY_2024_MS
        self.log = MemoryLog(now_ms=lambda: self.now_ms)
        for topic in ("blocks", "labels"):
            self.log.create_topic(topic, partitions)

    def scores(self, partition: int, *times_ms: int, key: ModelKey = KEY) -> None:
        """A block each, taken by the log at the time of its score."""
        for time_ms in times_ms:
            self.now_ms = time_ms
            score = Score(f"{partition}-{time_ms}", time_ms, 0.3, ("x",))
            self.log.produce([Outgoing("blocks", None, block(key, [score]), (), partition)])

    def labels(self, partition: int, *times_ms: int, of: int | None = None) -> None:
        for time_ms in times_ms:
            self.now_ms = time_ms
            value = {"event_id": f"{partition}-{of or time_ms - 1}", "label": 1, "t": time_ms}
            self.log.produce([Outgoing("labels", None, json.dumps(value).encode(), (), partition)])

    def clocks(self, time_ms: int, *topics: str) -> None:
        value, headers = clock_record(time_ms, end=False)
        for topic in topics or ("blocks", "labels"):
            for partition in range(self.log.partitions(topic)):
                self.log.produce([Outgoing(topic, None, value, headers, partition)])

    def feed(
        self,
        *,
        since: Sequence[str] = (),
        until: Sequence[str] = (),
        key: ModelKey = KEY,
        begin: Mapping[str, Mark] | None = None,
        allow_gaps: bool = False,
    ) -> TopicFeed:
        bounds = feed_bounds(since, CONFIG), feed_bounds(until, CONFIG)
        return TopicFeed(self.log, CONFIG, key, begin=begin, since=bounds[0], until=bounds[1], allow_gaps=allow_gaps)

    def input_key(self, topic: str, partition: int = 0) -> str:
        return f"{topic[0].replace('b', 's')}:{self.log.topic_id(topic)}:{partition}"


def rows(feed: TopicFeed) -> dict[str, list[int]]:
    """Topic and partition -> event times that the feed gave, in order."""
    found: dict[str, list[int]] = {}
    for batch in feed.batches():
        side, _, partition = batch.input_key.split(":")
        found.setdefault(f"{side}{partition}", []).extend(batch.records.rows.event_time_ms.tolist())
    return found


def test_from_the_beginning_of_a_whole_log_it_is_exact() -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS, MAY_2024_MS + 5)
    topics.labels(0, MAY_2024_MS + 6)
    with topics.feed() as feed:
        assert rows(feed) == {"s0": [MAY_2024_MS, MAY_2024_MS + 5], "l0": [MAY_2024_MS + 6]}
        assert (feed.start, feed.progress(), dict(feed.rejects)) == ("exact", (3, 3), {})
        assert feed.starts == {topics.input_key(topic): Mark(0, None) for topic in ("blocks", "labels")}
        assert feed.at_end == feed.starts.keys()
        assert feed.source == "topics blocks (1 partition, 2 offsets) and labels (1 partition, 1 offset)"


def test_it_begins_where_the_model_key_began() -> None:
    """With the inputs and the clocks that its state has on record, and no others."""
    topics = Topics(2)
    topics.scores(0, MAY_2024_MS, MAY_2024_MS + 5)
    topics.scores(1, MAY_2024_MS + 7)
    topics.labels(0, MAY_2024_MS + 6, MAY_2024_MS + 8)
    begin = {topics.input_key("blocks"): Mark(1, MAY_2024_MS, MAY_2024_MS), topics.input_key("labels"): Mark(0, None)}
    with topics.feed(begin=begin) as feed:
        assert feed.starts == begin
        assert rows(feed) == {"s0": [MAY_2024_MS + 5], "l0": [MAY_2024_MS + 6, MAY_2024_MS + 8]}
        assert feed.start == "exact"


def test_an_input_that_the_log_has_not_any_more_is_refused() -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS)
    with pytest.raises(HistoryError, match="no input s:of-before:0, which the model key has read"):
        topics.feed(begin={"s:of-before:0": Mark(0, None)})


def test_blocks_of_other_model_keys_only_move_the_clock() -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS)
    topics.scores(0, MAY_2024_MS + 90_000, key=OTHER)
    topics.labels(0, MAY_2024_MS + 1)
    topics.clocks(MAY_2024_MS + 90_000, "labels")
    with topics.feed() as feed:
        (of_scores,) = [batch for batch in feed.batches() if batch.input_key.startswith("s:")]
    assert of_scores.records.rows.event_time_ms.tolist() == [MAY_2024_MS]
    assert of_scores.records.clock_time_ms.tolist() == [MAY_2024_MS + 90_000]


# --- ranges


def test_the_start_of_a_range_by_time() -> None:
    """One partition spans the time, one is wholly older and one wholly newer; in the first one a producer's clock went
    back. The older one gives nothing, and does not start at 0."""
    topics = Topics(3)
    topics.scores(0, MAY_2024_MS - 2, MAY_2024_MS, MAY_2024_MS - 5, MAY_2024_MS + 1)
    topics.scores(1, MAY_2024_MS - 9, MAY_2024_MS - 8)
    topics.scores(2, MAY_2024_MS + 7)
    topics.labels(0, MAY_2024_MS - 1, MAY_2024_MS + 9)
    with topics.feed(since=["2024-05-01T00:00Z"]) as feed:
        assert {i.split(":")[0] + i[-1] for i in feed.starts} == {"s0", "s2", "l0"}
        assert feed.source.startswith("topics blocks (2 partitions, 4 offsets) and labels (1 ")
        assert rows(feed) == {"s0": [MAY_2024_MS, MAY_2024_MS + 1], "s2": [MAY_2024_MS + 7], "l0": [MAY_2024_MS + 9]}
        assert feed.start == "cold"
        assert feed.progress() == (5, 5)


def test_the_end_of_a_range_is_not_read() -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS - 1, MAY_2024_MS, MAY_2024_MS + 1)
    topics.labels(0, MAY_2024_MS - 1, MAY_2024_MS + 1)
    with topics.feed(until=["2024-05-01T00:00Z"]) as feed:
        assert rows(feed) == {"s0": [MAY_2024_MS - 1], "l0": [MAY_2024_MS - 1]}
        assert feed.start == "cold"


def test_offsets_name_their_topic() -> None:
    topics = Topics(2)
    for partition in (0, 1):
        topics.scores(partition, MAY_2024_MS, MAY_2024_MS + 1, MAY_2024_MS + 2)
    topics.labels(0, MAY_2024_MS + 3, MAY_2024_MS + 4)
    with topics.feed(since=["blocks:2", "blocks:1:1"], until=["labels:0:1"]) as feed:
        assert rows(feed) == {
            "s0": [MAY_2024_MS + 2],
            "s1": [MAY_2024_MS + 1, MAY_2024_MS + 2],
            "l0": [MAY_2024_MS + 3],
        }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1200", "'1200': an offset is one of a topic; say blocks:1200, labels:1200, or give a time"),
        ("labels:x", "'x' is neither an offset"),
        ("yesterday", "'yesterday' is neither an offset"),
        ("live_blocks:3", "'live_blocks:3' is neither an offset"),
    ],
)
def test_bounds_that_say_nothing_are_refused(text: str, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        feed_bounds([text], CONFIG)


def test_a_time_is_a_bound_of_every_topic() -> None:
    bound = Bound("2024-05-01T00:00Z", time_ms=MAY_2024_MS)
    assert feed_bounds([bound.text], CONFIG) == {"blocks": [bound], "labels": [bound]}


def test_a_range_without_scores_or_without_labels_is_refused() -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS - 1)
    topics.labels(0, MAY_2024_MS - 1, MAY_2024_MS + 1)
    with pytest.raises(HistoryError, match=r"^blocks: no record of the range, so there are no scores to replay$"):
        topics.feed(since=["2024-05-01T00:00Z"])
    with pytest.raises(HistoryError, match="there are no labels to replay"):
        topics.feed(until=["labels:0"])


# --- what is gone


def test_what_retention_took_is_an_error_or_counted() -> None:
    topics = Topics()
    topics.scores(0, *range(MAY_2024_MS, MAY_2024_MS + 10))
    topics.labels(0, MAY_2024_MS + 3)
    topics.log.trim(TopicPartition("blocks", 0), 4)
    with pytest.raises(HistoryError, match=r"blocks-0 begins at 4 by now: 4 offsets from 0 on are gone"):
        topics.feed()
    with pytest.raises(HistoryError, match=r"blocks-0 begins at 4 by now: 2 offsets from 2 on are gone"):
        topics.feed(since=["blocks:2"])
    with topics.feed(allow_gaps=True) as feed:
        assert rows(feed)["s0"] == list(range(MAY_2024_MS + 4, MAY_2024_MS + 10))
        assert (feed.start, dict(feed.rejects)) == ("cold", {RETAINED_AWAY: 4})


def test_holes_of_a_compacted_topic_are_an_error_or_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS)
    topics.labels(0, MAY_2024_MS + 1)
    topics.log.skip(TopicPartition("labels", 0), 3)
    topics.labels(0, MAY_2024_MS + 2)
    with topics.feed() as feed:  # where transactions end, or were aborted
        assert rows(feed)["l0"] == [MAY_2024_MS + 1, MAY_2024_MS + 2]
        assert feed.start == "exact"
    settings = {"labels": {"cleanup.policy": "compact,delete"}}
    monkeypatch.setattr(topics.log, "topic_settings", settings.get)
    with topics.feed() as feed, pytest.raises(HistoryError, match="labels-0 is compacted: 3 of the offsets 0 to 4"):
        list(feed.batches())
    with topics.feed(allow_gaps=True) as feed:
        assert rows(feed)["l0"] == [MAY_2024_MS + 1, MAY_2024_MS + 2]
        assert (feed.start, dict(feed.rejects)) == ("cold", {WITHOUT_RECORD: 3})


def test_what_cannot_be_read_is_counted_by_its_reason() -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS)
    topics.labels(0, MAY_2024_MS + 1)
    topics.log.produce([Outgoing("blocks", None, b"no block"), Outgoing("labels", None, b"{")])
    with topics.feed() as feed:
        assert rows(feed) == {"s0": [MAY_2024_MS], "l0": [MAY_2024_MS + 1]}
        assert dict(feed.rejects) == {"block_damaged": 1, "not_json": 1}


# --- order


def test_a_partition_that_is_far_ahead_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the monitors; so what waits in the join is bounded."""
    monkeypatch.setattr("stream_calib.backtest.topics.partition_reading._FIRST_RECORDS", 5)
    monkeypatch.setattr("stream_calib.backtest.topics.partition_reading._MOST_RECORDS", 5)
    topics, hour_ms = Topics(), 3_600_000
    topics.scores(0, *range(MAY_2024_MS, MAY_2024_MS + 48 * hour_ms, hour_ms // 2))
    topics.labels(0, *range(MAY_2024_MS, MAY_2024_MS + 48 * hour_ms, hour_ms // 4))
    newest, furthest = {"s": MAY_2024_MS, "l": MAY_2024_MS}, 0
    with topics.feed() as feed:
        for batch in feed.batches():
            newest[batch.input_key[0]] = int(batch.records.rows.event_time_ms.max())
            furthest = max(furthest, abs(newest["s"] - newest["l"]))
    skew_ms = CONFIG.windows.max_input_skew_ms
    assert skew_ms - 3 * hour_ms < furthest <= skew_ms + 3 * hour_ms


def test_the_whole_is_replayed() -> None:
    topics = Topics()
    topics.scores(0, MAY_2024_MS, MAY_2024_MS + 1)
    topics.labels(0, MAY_2024_MS + 1_000, of=MAY_2024_MS)
    topics.clocks(MAY_2024_MS + 600_000)
    shards = ColumnShards(1, PaneSettings.of(CONFIG))
    with topics.feed() as feed:
        history = ExactReplay(feed, CONFIG, KEY, shards).run()
    pane = MAY_2024_MS // 60_000
    cells = history.matured(pane)
    assert (cells.labelled.sum(), cells.positives.sum(), cells.unlabelled.sum()) == (1, 1, 1)
    assert history.start == "exact"
    assert {name: history.counts[name] for name in ("accepted", "labels", "matched", "labelled", "unlabelled")} == {
        "accepted": 2,
        "labels": 1,
        "matched": 1,
        "labelled": 1,
        "unlabelled": 1,
    }
