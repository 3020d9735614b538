"""The partitions of the topics that the monitor reads, and the names by which shards know them."""

from __future__ import annotations

import logging

from stream_calib.config import Config
from stream_calib.transport.port import Log, TopicPartition

_LOG = logging.getLogger(__name__)


def input_sides(config: Config) -> dict[str, str]:
    """Topic that the monitor reads -> "s" (blocks) or "l" (labels)."""
    topics = config.topics
    sides = {topics.blocks: "s", topics.labels: "l"}
    if topics.live_blocks is not None:
        sides[topics.live_blocks] = "s"
    return sides


def input_key(log: Log, side: str, partition: TopicPartition) -> str:
    """The name under which shards keep an input's position: it holds the topic's identity, not its name."""
    return f"{side}:{log.topic_id(partition.topic)}:{partition.partition}"


class InputPartitions:
    """What the log says of them; `look` asks again."""

    def __init__(self, log: Log, config: Config) -> None:
        self._log, self._start = log, config.log.start
        self.sides = input_sides(config)
        self.topics = list(self.sides)
        self.keys: dict[TopicPartition, str] = {}
        """Partition -> input key."""
        self.starts: dict[str, int] = {}
        """Input key -> where what the log held began, when the partition was first seen."""
        self.look()

    def topic_ids(self) -> dict[str, str]:
        """Topic -> its identity now."""
        return {topic: self._log.topic_id(topic) for topic in self.topics}

    def look(self) -> list[TopicPartition]:
        """Partitions that were not there before."""
        new = []
        for topic, side in self.sides.items():
            for number in range(self._log.partitions(topic)):
                partition = TopicPartition(topic, number)
                if partition not in self.keys:
                    key = input_key(self._log, side, partition)
                    # First what may fail: a client that has just heard of a partition may not find it yet.
                    self.starts[key] = self.start(partition)
                    self.keys[partition] = key
                    new.append(partition)
        return new

    def first_start(self, partition: TopicPartition) -> int:
        """Where a deployment's first model key begins (log.start). What is on blocks was written for it."""
        if self._start == "latest" and self.sides[partition.topic] == "l":
            end = self._log.end_offset(partition)
            _LOG.info('%s is read from its end, %d, as there is no position yet (log.start = "latest")', partition, end)
            return end
        return self.starts[self.keys[partition]]

    def start(self, partition: TopicPartition) -> int:
        """Where what the log holds begins now."""
        return self._log.offset_at(partition, 0)
