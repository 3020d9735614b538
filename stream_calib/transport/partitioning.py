"""Which partition a record goes to, and how many records a poll takes from each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from zlib import crc32

from stream_calib.errors import TransportError
from stream_calib.transport.port import Outgoing, TopicPartition


class Partitioner:
    """By CRC-32 of the key, so the same in every process and version; records without a key take turns."""

    def __init__(self) -> None:
        self._turns = count()

    def choose(self, record: Outgoing, partitions: int) -> int:
        """0 .. partitions - 1. Raises TransportError where the record asks for a partition that is not there."""
        if record.partition is not None:
            if not 0 <= record.partition < partitions:
                raise TransportError(
                    f"partition {record.partition} of topic {record.topic}: it has the partitions 0 to {partitions - 1}"
                )
            return record.partition
        return (crc32(record.key) if record.key is not None else next(self._turns)) % partitions


def fair_counts(
    partitions: Sequence[TopicPartition], backlog: Mapping[TopicPartition, int], max_records: int, turn: int
) -> dict[TopicPartition, int]:
    """How many records to ask of each partition: an equal share, and what others leave of theirs.

    `backlog` is what is known to be waiting (a partition that is not in it may have anything); `turn` moves who is
    first. The counts may add to more than `max_records`, see `fair_cut`. Partitions that get nothing are left out.
    """
    if not partitions:
        return {}
    first = turn % len(partitions)
    asked = [*partitions[first:], *partitions[:first]][:max_records]
    share = max_records // len(asked)
    spare = max_records - sum(min(share, backlog.get(p, share)) for p in asked)
    counts = {}
    for partition in asked:
        more = min(spare, max(0, backlog.get(partition, 0) - share))
        spare -= more
        counts[partition] = share + more
    return counts


def fair_cut(lengths: Mapping[TopicPartition, int], max_records: int) -> dict[TopicPartition, int]:
    """How many of the records found to keep, `max_records` at most: those over the equal share give way first."""
    kept = dict(lengths)
    excess = sum(kept.values()) - max_records
    share = max_records // max(1, len(kept))
    for partition, length in kept.items():
        if excess <= 0:
            break
        cut = min(excess, max(0, length - share))
        kept[partition] = length - cut
        excess -= cut
    return kept
