"""What a group's positions on Kafka mean, whatever client asks for them.

With each committed position goes a text: the identity of the topic that it belongs to, so that nobody goes on with it
in another topic of that name, and how many partitions the topic had when the group first came to it, so that a
partition added later is told from one that nobody has committed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from stream_calib.errors import PositionLostError, TopicRecreatedError
from stream_calib.transport.port import StartAt, TopicPartition

Offsets = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]]


def group_name(prefix: str, group: str) -> str:
    """The consumer group's name on the brokers; `prefix` is log.group_prefix."""
    return f"{prefix}.{group}"


def transactional_id(prefix: str, group: str, member: str) -> str:
    """`member`: log.instance_id where there is one, else unique in the group."""
    return f"{prefix}.{group}.{member}"


class Committed(NamedTuple):
    """A committed position and the text beside it."""

    offset: int
    metadata: str


class TopicState(NamedTuple):
    """A topic as a group's member knows it."""

    id: str
    partitions: int
    """When the group first came to it."""

    @property
    def metadata(self) -> str:
        """The text for positions on this topic."""
        return f"{self.id}/{self.partitions}"


def seen_by_group(topic: str, group: str, now: TopicState, committed: Iterable[Committed]) -> TopicState:
    """The topic as the group knows it, from the positions that it has committed there; `now` for a new group.

    Positions without our text (set by an operator's tool) are taken as they are. Raises TopicRecreatedError where they
    belong to another topic of that name.
    """
    first = now.partitions
    for position in committed:
        identity, _, count = position.metadata.partition("/")
        if not count.isdecimal():
            continue
        if identity != now.id:
            raise recreated(topic, group)
        first = min(first, int(count))
    return TopicState(now.id, first)


def recreated(topic: str, group: str) -> TopicRecreatedError:
    return TopicRecreatedError(
        f"topic {topic} was deleted and created again: the positions of group {group} are of the old one"
    )


def starting_positions(
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    topics: Mapping[str, TopicState],
    start: StartAt,
    first_offsets: Offsets,
    end_offsets: Offsets,
) -> dict[TopicPartition, int]:
    """Where a member begins: at the committed position, else as `start` says; an added partition at its beginning."""
    wanted = list(partitions)
    found = {p: committed[p].offset for p in wanted if p in committed}
    fresh = [p for p in wanted if p not in committed]
    from_end = [p for p in fresh if not start.earliest and p.partition < topics[p.topic].partitions]
    from_start = [p for p in fresh if p not in from_end]
    if from_end:
        found.update(end_offsets(from_end))
    if from_start:
        found.update(first_offsets(from_start))
    return found


def lost_positions(
    positions: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> PositionLostError | None:
    """The error for those of `positions` that the log does not hold, None where it holds them all.

    `first`, `end`: offsets of the first record that is left, and of the next one.
    """
    lost: dict[tuple[str, int], tuple[int, int]] = {}
    texts = []
    for partition, position in sorted(positions.items()):
        left = first[partition]
        if position < left:
            lost[partition] = (position, left)
            texts.append(f"{partition}: the records {position} to {left - 1} are gone; seek to {left} to go on")
        elif position > end[partition]:
            lost[partition] = (position, position)
            texts.append(f"{partition}: the log ends at {end[partition]}, before the position {position}")
    return PositionLostError("; ".join(texts), lost) if lost else None
