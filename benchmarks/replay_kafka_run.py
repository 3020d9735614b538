"""One round of `replay_kafka.py`, in a process of its own, as the command has one: reads the configuration on its
input and prints what the round took.

    python -m benchmarks.replay_kafka_run bare|replay EVENTS
"""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import closing
from typing import Literal

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.topics.feed import TopicFeed
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.garbage_collection import collect_seldom
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.panes import PaneSettings
from workers.deployment import open_log

Loop = Literal["bare", "replay"]
_MOST_RECORDS = 20_000
_FETCH_BYTES = 32_000_000


def main(loop: Loop, events: int) -> None:
    config = Config.model_validate(json.load(sys.stdin))
    collect_seldom()
    wall, cpu = time.perf_counter(), cpu_s()
    records = bare(config) if loop == "bare" else replay(config, events)
    print(json.dumps({"records": records, "wall_s": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}))


def bare(config: Config) -> int:
    """Polls every record, and does nothing with it; their number."""
    consumer = KafkaConsumer(
        bootstrap_servers=config.log.bootstrap_servers,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=_MOST_RECORDS,
        fetch_max_bytes=_FETCH_BYTES,
        group_id=None,
    )
    with closing(consumer):
        topics = config.topics.blocks, config.topics.labels
        places = [KafkaPartition(topic, p) for topic in topics for p in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(places)
        ends, records = consumer.end_offsets(places), 0
        while any(consumer.position(place) < end for place, end in ends.items()):
            records += sum(map(len, consumer.poll(timeout_ms=100, max_records=_MOST_RECORDS).values()))
        return records


def replay(config: Config, events: int) -> int:
    """Reads, decodes, joins, closes and matures, from the first process that is started to the end of the last; the
    number of records. Raises RuntimeError where not everything was counted."""
    (key,) = configured_keys(config)
    shards = ColumnShards(config.windows.shards, PaneSettings.of(config))
    with open_log(config) as log, TopicFeed(log, config, key) as feed:
        history = ExactReplay(feed, config, key, shards).run()
        records = feed.progress()[0]
    counts = history.counts
    if counts["accepted"] + counts["labels"] != events:
        raise RuntimeError(f"{events} events were written, the replay has counted {counts}")
    return records


def cpu_s() -> float:
    """Of this process and those that it has started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main("bare" if sys.argv[1] == "bare" else "replay", int(sys.argv[2]))
