"""A replay that was to begin at a time began at the first message of one partition, gave nothing of another, and took
earlier records with it where a seek led into the middle of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.topics.feed import TopicFeed
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.topic_range import Bound
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.panes import PaneSettings
from tests.oracle.offline import Score
from tests.windows.monitors import block

pytestmark = pytest.mark.services
KEY, NOON_MS = ModelKey("m", "1"), 1_714_564_800_000
CONFIG = Config.model_validate(
    {
        "model": {"name": KEY.model, "version": KEY.version},
        "scores": {"attributes": {"group": "g"}},
        "windows": {"horizon": "1h", "shards": 1, "max_clock_skew": "off"},
    }
)


class Written:
    """Scores and labels on three partitions each, which the log stamps with its own time."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.log, self._numbers = log, count()
        for topic in ("blocks", "labels"):
            log.create_topic(topic, 3)

    def put(self, partition: int, n: int) -> int:
        """So many scores, an hour apart, and a label each a minute later; when the log took the last record."""
        for _ in range(n):
            number = next(self._numbers)
            time_ms = NOON_MS + 3_600_000 * number
            score = block(KEY, [Score(f"id-{number}", time_ms, 0.3, ("x",))])
            label = b'{"event_id": "id-%d", "label": 1, "ts": "%d"}' % (number, time_ms + 60_000)
            for topic, value in (("blocks", score), ("labels", label)):
                self.log.produce([Outgoing(topic, None, value, (), partition)])
        (record,) = self.log.read(place := TopicPartition("labels", partition), self.log.end_offset(place) - 1, 1)
        return record.append_time_ms

    def next_moment(self, partition: int) -> int:
        """Writes to the partition until the log's time is a later one; that time."""
        before = self.put(partition, 1)
        while (now := self.put(partition, 1)) == before:
            pass
        return now


@pytest.fixture
def written(redis_url: str) -> Iterator[Written]:
    with EmbeddedLog(redis_url) as log:
        yield Written(log)


def test_only_records_of_the_time_or_later_are_counted(written: Written) -> None:
    """One partition spans the time, one is wholly older and one wholly newer."""
    written.put(1, 4)
    written.put(0, 3)
    # The last record of the first partition is the first one of a new moment.
    since_ms = written.next_moment(0)
    written.put(0, 5)
    written.put(2, 2)
    since = {topic: [Bound("then", time_ms=since_ms)] for topic in ("blocks", "labels")}
    with TopicFeed(written.log, CONFIG, KEY, since=since) as feed:
        parts = {input_key.split(":")[2] for input_key in feed.starts}
        replay = ExactReplay(feed, CONFIG, KEY, ColumnShards(1, PaneSettings.of(CONFIG)))
        history = replay.run()
        first = {p: written.log.offset_at(TopicPartition("blocks", p), since_ms) for p in range(3)}
    assert parts == {"0", "2"}
    assert [first[0] > 3, first[1], first[2]] == [True, 4, 0]
    # The score of the moment itself may have been taken a moment before its label.
    newer = written.log.end_offset(TopicPartition("blocks", 0)) - first[0] + 2
    assert (history.counts["accepted"], history.start) == (newer, "cold")
    assert newer in (7, 8)
