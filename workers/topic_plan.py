"""Which topics a deployment has, and the partitions and settings that fit them. Pure.

Scores, labels and `calibrated` are shared with others; blocks, dead letters and alerts are the deployment's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_calib.config import Config
from stream_calib.events.blocks import MAX_BLOCK_ROWS

KAFKA_MAX_MESSAGE_BYTES = 1_048_588
"""`max.message.bytes` of a topic for which nobody said otherwise."""

_DAY_MS = 86_400_000
_RECORD_OVERHEAD_BYTES = 16_384
"""For key, headers and batch; and for what an output adds to its score."""
_BLOCK_ROW_BYTES, _BLOCK_SIGNATURE_BYTES, _BLOCK_TEXT_LENGTH_BYTES = 32, 8, 2


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic as it should be."""

    topic: str
    purpose: str
    """Its key under [topics]."""
    partitions: int
    """When it is created."""
    least_partitions: int
    """Fewer do not work."""
    largest_record_bytes: int
    least_retention_ms: int
    """What is kept for less is missed by something; 0: any will do."""
    needed_for: str
    """What the retention is needed for."""
    settings: dict[str, str] = field(default_factory=dict)
    """At creation, by Kafka's names; where empty, the broker's defaults are meant."""


def planned_topics(config: Config, score_partitions: int | None = None) -> tuple[PlannedTopic, ...]:
    """All topics of the deployment. `score_partitions`: what `scores` has, where it exists: calibrate writes to the
    partition of the same number of `blocks` and `calibrated`."""
    topics, log, windows = config.topics, config.log, config.windows
    scores = score_partitions or log.score_partitions
    blocks_retention_ms = blocks_retention(config)
    rebuilt_from_ms = 2 * windows.horizon_ms + (windows.keep_panes + 2) * windows.pane_ms
    output_bytes = config.records.max_record_bytes + _RECORD_OVERHEAD_BYTES
    dead_letter_bytes = config.records.max_dead_letter_bytes + _RECORD_OVERHEAD_BYTES
    block_bytes = largest_block_bytes(config)
    rebuild, downtime = "to rebuild a lost shard", "for a calibrate that is down meanwhile"
    planned = [
        PlannedTopic(topics.scores, "scores", log.score_partitions, 1, 0, _DAY_MS, downtime),
        PlannedTopic(
            topics.labels,
            "labels",
            log.label_partitions,
            1,
            0,
            rebuilt_from_ms + windows.label_lateness_ms,
            rebuild,
        ),
        PlannedTopic(
            topics.blocks,
            "blocks",
            scores,
            scores,
            block_bytes,
            rebuilt_from_ms,
            rebuild,
            _settings(blocks_retention_ms, block_bytes),
        ),
        PlannedTopic(
            topics.calibrated,
            "calibrated",
            scores,
            scores,
            output_bytes,
            0,
            "",
            _settings(log.output_retention_ms, output_bytes),
        ),
        PlannedTopic(
            topics.dead_letters,
            "dead_letters",
            1,
            1,
            dead_letter_bytes,
            0,
            "",
            _settings(log.reject_retention_ms, dead_letter_bytes),
        ),
        PlannedTopic(topics.alerts, "alerts", 1, 1, 0, 0, "", _settings(log.reject_retention_ms)),
    ]
    if topics.live_blocks is not None:
        live = PlannedTopic(
            topics.live_blocks,
            "live_blocks",
            log.score_partitions,
            1,
            block_bytes,
            rebuilt_from_ms,
            rebuild,
            _settings(blocks_retention_ms, block_bytes),
        )
        planned.insert(3, live)
    return tuple(planned)


def blocks_retention(config: Config) -> int:
    """Milliseconds for which `blocks` is kept when it is created."""
    if config.log.blocks_retention_ms is not None:
        return config.log.blocks_retention_ms
    return 2 * config.windows.horizon_ms + 7 * _DAY_MS


def largest_block_bytes(config: Config) -> int:
    """Upper bound of a record on `blocks`: every row with a signature of its own, all values as long as allowed."""
    value = _BLOCK_TEXT_LENGTH_BYTES + config.scores.max_value_bytes
    signature = _BLOCK_SIGNATURE_BYTES + len(config.scores.attributes) * value
    return MAX_BLOCK_ROWS * (_BLOCK_ROW_BYTES + signature) + _RECORD_OVERHEAD_BYTES


def _settings(retention_ms: int, largest_record_bytes: int = 0) -> dict[str, str]:
    """Compaction is ruled out whatever the broker's default: it would take outputs whose key comes again."""
    settings = {"cleanup.policy": "delete", "retention.ms": str(retention_ms)}
    if largest_record_bytes > KAFKA_MAX_MESSAGE_BYTES:
        settings["max.message.bytes"] = str(largest_record_bytes)
    return settings
