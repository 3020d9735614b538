"""What the brokers say of topics: identity, number of partitions, ends; asked through one admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, OffsetSpec

from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.transport.librdkafka_errors import UNKNOWN_TOPIC, transport_error
from stream_calib.transport.librdkafka_settings import ClientSettings, refused
from stream_calib.transport.port import TopicPartition

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
_ANSWER_WITHIN_S = REQUEST_TIMEOUT_S + 5.0


class TopicIdentity:
    """A topic as it is now. `id`: minted by the brokers at creation."""

    def __init__(self, description: Any) -> None:
        uuid = description.topic_id
        high, low = uuid.get_most_significant_bits(), uuid.get_least_significant_bits()
        self.id = str(UUID(int=(high % 2**64) << 64 | low % 2**64))
        self.partitions = len(description.partitions)


class TopicCatalogue:
    """Answers from the brokers, raised as TransportError when there are none. Thread-safe."""

    def __init__(self, settings: ClientSettings, isolation: IsolationLevel, remembered_ms: int) -> None:
        """`remembered_ms`: so long does `partition_count` answer from memory."""
        self.admin = client(AdminClient, settings.admin())
        self._isolation = isolation
        self._remembered_s = remembered_ms / 1_000
        self._counts: dict[str, tuple[float, int]] = {}

    def identity(self, topic: str) -> TopicIdentity:
        """Raises UnknownTopicError where there is no such topic."""
        asked = self.ask_identities([topic])
        return self.answer(asked[topic], topic)

    def ask_identities(self, topics: Iterable[str]) -> dict[str, Future[Any]]:
        """Futures of descriptions, for `answer`."""
        asked: dict[str, Future[Any]] = self.admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S
        )
        return asked

    def answer(self, asked: Future[Any], topic: str) -> TopicIdentity:
        found = TopicIdentity(wait_for(asked, f"asking for topic {topic}", topic))
        self._counts[topic] = (time.monotonic(), found.partitions)
        return found

    def partition_count(self, topic: str) -> int:
        """Number of partitions, at most `remembered_ms` old."""
        known = self._counts.get(topic)
        if known is not None and time.monotonic() - known[0] < self._remembered_s:
            return known[1]
        return self.identity(topic).partitions

    def offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        """-1 where nothing answers to the OffsetSpec."""
        asked = self.admin.list_offsets(
            {Position(*partition): spec for partition, spec in wanted.items()},
            isolation_level=self._isolation,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return {
            TopicPartition(p.topic, p.partition): wait_for(
                future, f"asking for offsets of {p.topic}-{p.partition}", p.topic
            ).offset
            for p, future in asked.items()
        }

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.offsets({p: OffsetSpec.earliest() for p in partitions})

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.offsets({p: OffsetSpec.latest() for p in partitions})


def wait_for(asked: Future[Any], doing: str, topic: str | None = None) -> Any:
    """The answer. Raises TransportError that begins with `doing`; UnknownTopicError where `topic` is not there."""
    try:
        return asked.result(_ANSWER_WITHIN_S)
    except KafkaException as error:
        if topic is not None and error.args[0].code() in UNKNOWN_TOPIC:
            raise UnknownTopicError(f"topic {topic} does not exist, or not that partition of it") from error
        raise transport_error(error.args[0], doing) from error
    except TimeoutError as error:
        raise TransportError(f"{doing}: no answer within {_ANSWER_WITHIN_S:.0f} s") from error


def client(kind: Callable[..., T], settings: Mapping[str, Any]) -> T:
    """A client of librdkafka's. Raises ConfigurationError for settings that it does not take."""
    try:
        return kind(dict(settings))
    except (KafkaException, ValueError, TypeError) as error:
        raise refused(error) from error
