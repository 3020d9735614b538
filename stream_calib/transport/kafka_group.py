"""The positions that a Kafka group has committed, and where it begins without one; asked through kafka-python."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kafka import OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition
from kafka.errors import FencedInstanceIdError, KafkaError, KafkaTimeoutError

from stream_calib import fault_points
from stream_calib.errors import AnotherProcessError, FencedError, TransportError
from stream_calib.transport.kafka_errors import MEMBERSHIP_LOST, transport_error
from stream_calib.transport.kafka_positions import check_same_topic, id_as_metadata
from stream_calib.transport.kafka_topics import TopicCatalogue
from stream_calib.transport.port import StartAt, TopicPartition

_LOG = logging.getLogger(__name__)

_ANSWER_WITHIN_MS = 10_000
_LOOK_WITHIN_MS = 2_000


class GroupPositions:
    """Of one group. Committed offsets carry the identity of their topic, so that another topic of its name is noticed.

    `client` is a KafkaConsumer of a member; `membership` what its `group_metadata` said when the batch was read.
    """

    def __init__(self, group: str, topics: TopicCatalogue, start: StartAt) -> None:
        self._group = group
        self._topics = topics
        self._start = start
        self._ids: dict[str, str] = {}

    def note_topics(self, names: Iterable[str]) -> None:
        """The topics as they are now are those of the positions, until the process ends."""
        if not self._ids:
            self._ids = {topic: found.id for topic, found in self._topics.identities(names).items()}

    def check_topics(self, names: Iterable[str]) -> None:
        """Raises TopicRecreatedError when a topic is another one now, UnknownTopicError when it is gone."""
        for topic, found in self._topics.identities(names).items():
            check_same_topic(self._group, topic, found.id, self._ids[topic])

    def offsets(self, positions: Mapping[TopicPartition, int]) -> dict[KafkaPartition, Any]:
        """As they are committed."""
        return {
            KafkaPartition(*partition): OffsetAndMetadata(offset, id_as_metadata(self._ids[partition.topic]), -1)
            for partition, offset in positions.items()
        }

    def committed(self, client: Any, partition: TopicPartition, timeout_ms: int = _ANSWER_WITHIN_MS) -> int | None:
        """None where there is none. Raises NotKnownYetError while a transaction with it is open, TopicRecreatedError
        when it is of an earlier topic of that name."""
        doing = f"asking for the position of group {self._group} on {partition}"
        try:
            found = client.committed(KafkaPartition(*partition), metadata=True, timeout_ms=timeout_ms)
        except KafkaTimeoutError as error:
            raise NotKnownYetError(
                f"{doing}: no answer within {timeout_ms / 1_000:g} s; the brokers are away, or a transaction with it is"
                " still open"
            ) from error
        except KafkaError as error:
            raise transport_error(error, doing) from error
        if found is None or found.offset < 0:
            return None
        if partition.topic in self._ids:
            check_same_topic(self._group, partition.topic, self._ids[partition.topic], found.metadata)
        return int(found.offset)

    def beginning(self, client: Any, partition: TopicPartition, membership: Any) -> int | None:
        """Where a member that gets the partition goes on; None: another member has to say first."""
        if (position := self.committed(client, partition, _LOOK_WITHIN_MS)) is not None:
            return position
        if self._start.earliest:
            first = self._topics.first_offsets([partition])[partition]
            _LOG.info("group %s has no position on %s and begins at its start, %d", self._group, partition, first)
            return first
        # The owner of partition 0 begins the group: the ends of all partitions become committed positions at once, so
        # that a partition without one is known to have been added later, and is read from its start.
        leading = partition._replace(partition=0)
        if self.committed(client, leading, _LOOK_WITHIN_MS) is not None:
            return self._topics.first_offsets([partition])[partition]
        if partition != leading:
            return None
        every = [partition._replace(partition=p) for p in range(self._topics.identity(partition.topic).partitions)]
        ends = self._topics.end_offsets(every)
        self.commit(client, self.offsets(ends), membership)
        _LOG.info("group %s begins at the ends of topic %s", self._group, partition.topic)
        return ends[partition]

    def commit(self, client: Any, offsets: Mapping[KafkaPartition, Any], membership: Any) -> None:
        """Positions without outputs, which need no transaction. Raises FencedError when the group has shared anew."""
        if not offsets:
            return
        self.refuse_when_shared_anew(client, membership)
        try:
            fault_points.before("kafka.positions")
            client.commit(dict(offsets), timeout_ms=_ANSWER_WITHIN_MS)
            fault_points.after("kafka.positions")
        except FencedInstanceIdError as error:
            raise AnotherProcessError(str(error)) from error
        except MEMBERSHIP_LOST as error:
            raise FencedError(
                f"group {self._group} has given the batch's partitions away ({error}); drop it and poll again"
            ) from error
        except KafkaError as error:
            raise transport_error(error, f"committing positions of group {self._group}") from error

    def refuse_when_shared_anew(self, client: Any, membership: Any) -> None:
        """Raises FencedError when this member is not in the generation of `membership` any more."""
        now = client.group_metadata()
        if membership is None or now.generation_id < 0 or not is_same_membership(membership, now):
            raise FencedError(
                f"group {self._group} has shared its partitions anew since the batch was read; drop it and poll again"
            )


class NotKnownYetError(TransportError):
    """The group's committed position cannot be told yet."""


def is_same_membership(one: Any, other: Any) -> bool:
    return (one.generation_id, one.member_id) == (other.generation_id, other.member_id)
