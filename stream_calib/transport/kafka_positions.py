"""How members and positions of a Kafka group are judged, whatever the client: of another topic, lost, not ours any
more, or held back."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from stream_calib.errors import AnotherProcessError, FencedError, PositionLostError, TopicRecreatedError
from stream_calib.transport.fetch_buffers import Buffer
from stream_calib.transport.port import TopicPartition

_LOG = logging.getLogger(__name__)

_HELD_BACK_FOR_S = 10.0
_TOPIC_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def id_as_metadata(topic_id: str) -> str:
    """As it is committed. confluent-kafka ends metadata with a zero, and reads on to the next where there is none."""
    return f"{topic_id}\0"


def check_same_topic(group: str, topic: str, id_now: str, id_then: str | None) -> None:
    """Raises TopicRecreatedError when positions of the topic `id_then` are about to be used on the topic `id_now`.

    `id_then` is kept as the metadata of committed offsets (`id_as_metadata`); there is none where somebody has set the
    offsets by hand, or by a tool with metadata of its own.
    """
    found = _TOPIC_ID.match(id_then or "")
    if found is not None and found[0] != id_now:
        raise TopicRecreatedError(
            f"topic {topic} was deleted and created again: the positions of group {group} are of the old one; reset the"
            " group's offsets to go on with the new one"
        )


def positions_lost(
    positions: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> PositionLostError | None:
    """The error that names every position outside of what is left, from `first` to `end`; None when there is none."""
    lost: dict[tuple[str, int], tuple[int, int]] = {}
    texts = []
    for partition, position in sorted(positions.items()):
        begins, ends = first[partition], end[partition]
        if position < begins:
            lost[partition] = (position, begins)
            texts.append(
                f"{partition}: the records {position} to {begins - 1} are gone, what is left begins at {begins}"
                ' (log.on_position_lost = "skip" goes on there)'
            )
        elif position > ends:
            lost[partition] = (position, position)
            texts.append(f"{partition}: the log ends at {ends}, before the position {position}")
    return PositionLostError("; ".join(texts), lost) if lost else None


def refuse_what_was_not_read(
    group: str, buffers: Mapping[TopicPartition, Buffer], positions: Mapping[TopicPartition, int], *, has_outputs: bool
) -> None:
    """Raises FencedError where a position that is to be committed is of a batch of an earlier assignment: the outputs
    of such a batch may be another member's by now. Without outputs a group may go back, as far as it likes.

    `buffers`: of the partitions that are assigned now and whose position is known.
    """
    for partition, offset in positions.items():
        buffer = buffers.get(partition)
        if buffer is None or not (buffer.begun if has_outputs else 0) <= offset <= buffer.position:
            raise FencedError(
                f"{partition} up to {offset} was not read by this member of group {group} since it got the partition;"
                " drop the batch and poll again"
            )


def joined_as_we_did(group: str, identity: str | None) -> AnotherProcessError:
    """`identity`: the static one."""
    return AnotherProcessError(
        f"another process has joined group {group} as {identity}: each process needs a log.instance_id of its own; end"
        " one of the two"
    )


class HeldBack:
    """Says once when an open transaction of some producer keeps readers of committed records from what lies after."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        self._said: set[TopicPartition] = set()

    def note(self, ends: Iterable[tuple[TopicPartition, int, int]], now_s: float) -> None:
        """`ends`: partition, end for readers of committed records, end of the log; of partitions read to the former."""
        for partition, stable, end in ends:
            seen_at, since = self._since.get(partition, (-1, now_s))
            if end <= stable or seen_at != stable:
                self._since[partition] = (stable, now_s)
                self._said.discard(partition)
            elif now_s - since >= _HELD_BACK_FOR_S and partition not in self._said:
                self._said.add(partition)
                _LOG.warning(
                    "%s: an open transaction of another producer has held back the records from offset %d to %d for"
                    " %.0f s; they come when it ends or its timeout aborts it (to see it: kafka-transactions.sh"
                    " describe-producers --topic %s --partition %d)",
                    *(partition, stable, end - 1, now_s - since, *partition),
                )
