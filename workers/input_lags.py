"""How far behind the roles are: what is on the log and not read, by topic and partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stream_calib.config import Config
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.input_partitions import input_key
from stream_calib.windows.shard_store import Progress
from workers import calibrate


class InputLag(NamedTuple):
    """One role and topic. Offsets count transaction markers too, so at rest a few may stay."""

    role: str
    topic: str
    behind: dict[int, int]
    """Partition -> offsets between its end and the position."""

    @property
    def total(self) -> int:
        return sum(self.behind.values())


def input_lags(log: Log, config: Config, progress: Sequence[Sequence[Progress]]) -> list[InputLag]:
    """calibrate by the group's positions, monitor by the shards', which are what counts.

    `progress`: that of the shards, by model key. Raises TransportError.
    """
    topics = config.topics
    lags = [
        _lag(log, "calibrate", topics.scores, log.group_positions(calibrate.GROUP, topics.scores) or {}),
        _lag(log, "monitor", topics.blocks, _applied(log, "s", topics.blocks, progress)),
        _lag(log, "monitor", topics.labels, _applied(log, "l", topics.labels, progress)),
    ]
    if topics.live_blocks is not None:
        lags.insert(2, _lag(log, "monitor", topics.live_blocks, _applied(log, "s", topics.live_blocks, progress)))
    return lags


def _lag(log: Log, role: str, topic: str, positions: Mapping[int, int]) -> InputLag:
    behind = {}
    for number in range(log.partitions(topic)):
        partition = TopicPartition(topic, number)
        position = positions.get(number)
        start = log.offset_at(partition, 0) if position is None else position
        behind[number] = max(0, log.end_offset(partition) - start)
    return InputLag(role, topic, behind)


def _applied(log: Log, side: str, topic: str, progress: Sequence[Sequence[Progress]]) -> dict[int, int]:
    """Partition -> the least position over the shards of all model keys that know it."""
    found = {}
    for number in range(log.partitions(topic)):
        key = input_key(log, side, TopicPartition(topic, number))
        marks = [shard.marks[key].next for shards in progress for shard in shards if key in shard.marks]
        if marks:
            found[number] = min(marks)
    return found
