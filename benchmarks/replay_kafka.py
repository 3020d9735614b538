"""The exact replay of topics on Kafka, beside a bare loop of the same client that reads the same records."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from benchmarks.join_runs import configuration
from benchmarks.join_traffic import LABEL_LAG_PANES, MODEL, PARTITIONS, Traffic
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.topics.feed import TopicFeed
from stream_calib.config import Config
from stream_calib.transport.port import Log
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.panes import PaneSettings
from tests.kafka_broker import KafkaBroker
from workers.deployment import open_log
from workers.topic_setup import create_topics

_NOWHERE = "redis://127.0.0.1:1"
"""A replay of topics needs no state."""
_MOST_RECORDS = 20_000
_FETCH_BYTES = 32_000_000
_HOURS = 4 * LABEL_LAG_PANES


class Rate(NamedTuple):
    """Of one round; records are blocks of scores, and labels."""

    records: int
    events: int
    wall_s: float
    cpu_s: float


class Beside(NamedTuple):
    """Medians over the rounds."""

    bare: Rate
    replay: Rate
    share: float
    """Speed of the replay / of the bare loop of its round, by wall time."""
    cpu_share: float
    """The same by CPU seconds of this process."""


def beside_bare_loop(events: int, rounds: int, advance: Callable[[int], None]) -> Beside:
    """Writes about so many events, then reads them in turn by either. `advance` hears of events."""
    with KafkaBroker(heap_megabytes=1024) as broker:
        config = Config.model_validate(configuration("kafka", broker.bootstrap, _NOWHERE, 1))
        writer = config.model_copy(update={"log": config.log.model_copy(update={"kind": "librdkafka"})})
        with open_log(writer) as log:
            create_topics(log, config)
            written = _fill(log, config, events, advance)
        found: list[tuple[Rate, Rate]] = []
        for _ in range(rounds):
            bare = _bare(broker.bootstrap, config, written)
            advance(written)
            found.append((bare, _replay(config, written)))
            advance(written)
    bare, replay = (sorted(rates, key=lambda rate: rate.wall_s)[rounds // 2] for rates in zip(*found, strict=True))
    return Beside(
        bare,
        replay,
        statistics.median(b.wall_s / r.wall_s for b, r in found),
        statistics.median(b.cpu_s / r.cpu_s for b, r in found),
    )


def _fill(log: Log, config: Config, events: int, advance: Callable[[int], None]) -> int:
    written = 0
    traffic = Traffic(max(events // (2 * _HOURS - LABEL_LAG_PANES), 40), config.topics)
    for hour in range(_HOURS):
        for part in traffic.hour(hour, labels=hour >= LABEL_LAG_PANES):
            log.produce(part.records)
            written += part.events
            advance(part.events)
    return written


def _bare(bootstrap: str, config: Config, events: int) -> Rate:
    """Polls every record, and does nothing with it."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=_MOST_RECORDS,
        fetch_max_bytes=_FETCH_BYTES,
        group_id=None,
    )
    with closing(consumer):
        topics = config.topics.blocks, config.topics.labels
        places = [KafkaPartition(topic, p) for topic in topics for p in range(PARTITIONS)]
        consumer.assign(places)
        ends, records = consumer.end_offsets(places), 0
        wall, cpu = time.perf_counter(), time.process_time()
        while any(consumer.position(place) < end for place, end in ends.items()):
            records += sum(map(len, consumer.poll(timeout_ms=100, max_records=_MOST_RECORDS).values()))
        return Rate(records, events, time.perf_counter() - wall, time.process_time() - cpu)


def _replay(config: Config, events: int) -> Rate:
    """Reads, decodes, joins, closes and matures. Raises RuntimeError where not everything was counted."""
    with open_log(config) as log:
        wall, cpu = time.perf_counter(), time.process_time()
        shards = ColumnShards(config.windows.shards, PaneSettings.of(config))
        with TopicFeed(log, config, MODEL) as feed:
            history = ExactReplay(feed, config, MODEL, shards).run()
            records = feed.progress()[0]
        counts = history.counts
        if counts["accepted"] + counts["labels"] != events:
            raise RuntimeError(f"{events} events were written, the replay has counted {counts}")
        return Rate(records, events, time.perf_counter() - wall, time.process_time() - cpu)
