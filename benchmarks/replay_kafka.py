"""The exact replay of topics on Kafka, beside a bare loop of the same client that reads the same records."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.join_runs import configuration
from benchmarks.join_traffic import LABEL_LAG_PANES, Traffic
from benchmarks.replay_kafka_run import Loop
from stream_calib.config import Config
from stream_calib.transport.port import Log
from tests.kafka_broker import KafkaBroker
from workers.deployment import open_log
from workers.topic_setup import create_topics

_NOWHERE = "redis://127.0.0.1:1"
"""A replay of topics needs no state."""
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
    """The same by CPU seconds, of all processes of the replay."""


def beside_bare_loop(events: int, rounds: int, advance: Callable[[int], None]) -> Beside:
    """Writes about so many events, then reads them in turn by either. `advance` hears of events."""
    with KafkaBroker(heap_megabytes=1024) as broker:
        raw = configuration("kafka", broker.bootstrap, _NOWHERE, 1)
        config = Config.model_validate(raw)
        writer = config.model_copy(update={"log": config.log.model_copy(update={"kind": "librdkafka"})})
        with open_log(writer) as log:
            create_topics(log, config)
            written = _fill(log, config, events, advance)
        found: list[tuple[Rate, Rate]] = []
        for _ in range(rounds):
            bare = _round("bare", raw, written)
            advance(written)
            found.append((bare, _round("replay", raw, written)))
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


def _round(loop: Loop, config: dict[str, Any], events: int) -> Rate:
    command = [sys.executable, "-m", "benchmarks.replay_kafka_run", loop, str(events)]
    done = subprocess.run(command, input=json.dumps(config), stdout=subprocess.PIPE, text=True, check=True)
    return Rate(events=events, **json.loads(done.stdout))
