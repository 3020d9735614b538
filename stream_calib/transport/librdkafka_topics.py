"""What the brokers say of topics: identity, number of partitions, ends; asked through one admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.transport.kafka_log import TopicIdentity
from stream_calib.transport.librdkafka_errors import (
    NO_LEADER_YET,
    UNKNOWN_TOPIC,
    is_brokers_away,
    is_not_let_in,
    transport_error,
)
from stream_calib.transport.librdkafka_settings import ClientSettings, refused
from stream_calib.transport.port import TopicPartition

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
_ANSWER_WITHIN_S = REQUEST_TIMEOUT_S + 5.0
_SLICE_S = 0.1
_LEADERS_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.02
_AWAY_FOR_S = 1.0
"""That none answers may be told before why: the next attempt to connect says it."""


class TopicCatalogue:
    """Answers from the brokers, raised as TransportError when there are none. Not thread-safe."""

    def __init__(self, settings: ClientSettings, remembered_ms: int) -> None:
        """`remembered_ms`: so long does `partition_count` answer from memory."""
        self.admin = client(AdminClient, {**settings.admin(), "error_cb": self._note_error})
        # Not the client that fetches: on its connection answers wait behind fetches that wait for records.
        self._reader_settings = settings.reader()
        self._reader: Consumer | None = None
        self._remembered_s = remembered_ms / 1_000
        self._counts: dict[str, tuple[float, int]] = {}
        self._trouble: KafkaError | None = None
        self._trouble_at_s = 0.0

    def create(self, topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str]) -> None:
        """Does nothing where it exists. `replication_factor`: -1 for the brokers' default."""
        wanted = NewTopic(topic, partitions, replication_factor, config=dict(settings))
        asked = self.admin.create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S)[topic]
        try:
            self.wait_for(asked, f"creating topic {topic}")
        except TransportError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def identity(self, topic: str) -> TopicIdentity:
        """Identity and partitions now. Raises UnknownTopicError where there is no such topic."""
        return self.answer(self.ask_identities([topic])[topic], topic)

    def ask_identities(self, topics: Iterable[str]) -> dict[str, Future[Any]]:
        """What `answer` waits for."""
        asked: dict[str, Future[Any]] = self.admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S
        )
        return asked

    def answer(self, asked: Future[Any], topic: str) -> TopicIdentity:
        description = self.wait_for(asked, f"asking for topic {topic}", topic)
        high, low = description.topic_id.get_most_significant_bits(), description.topic_id.get_least_significant_bits()
        found = TopicIdentity(str(UUID(int=(high % 2**64) << 64 | low % 2**64)), len(description.partitions))
        self._counts[topic] = (time.monotonic(), found.partitions)
        return found

    def partition_count(self, topic: str) -> int:
        """Number of partitions, at most `remembered_ms` old."""
        known = self._counts.get(topic)
        if known is not None and time.monotonic() - known[0] < self._remembered_s:
            return known[1]
        return self.identity(topic).partitions

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, OFFSET_BEGINNING))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As readers of committed records see them: before the first transaction that is still open."""
        return self._offsets(dict.fromkeys(partitions, OFFSET_END))

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of the first records of those broker times (epoch milliseconds) or later; -1 where there is none."""
        return self._offsets(times_ms)

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """By epoch milliseconds, OFFSET_BEGINNING or OFFSET_END.

        All partitions in one go. (The admin client's own call for it has been seen never to answer.)
        """
        asked = [Position(*partition, time_ms) for partition, time_ms in wanted.items()]
        doing = f"asking for offsets of {', '.join(map(str, wanted))}"
        give_up = time.monotonic() + _LEADERS_WITHIN_S
        is_new = False
        while True:
            if self._reader is None:
                self._reader = client(Consumer, {**self._reader_settings, "error_cb": self._note_error})
                is_new = True
            try:
                answers = self._reader.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                failed = error.args[0]
            else:
                failed = next((answer.error for answer in answers if answer.error is not None), None)
                if failed is None:
                    return {TopicPartition(a.topic, a.partition): a.offset for a in answers}
            if failed.code() in UNKNOWN_TOPIC and not is_new:
                self.close()  # a new client knows of partitions that have been added
            elif failed.code() in NO_LEADER_YET and time.monotonic() < give_up:
                time.sleep(_LOOK_AGAIN_S)
            else:
                raise transport_error(failed, doing)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def wait_for(self, asked: Future[Any], doing: str, topic: str | None = None) -> Any:
        """The answer. Raises TransportError that begins with `doing`; UnknownTopicError where `topic` is not there."""
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        self._trouble = None
        while not wait([asked], _SLICE_S).done:
            self.admin.poll(0)  # what is wrong with the brokers is told in a callback
            now_s, trouble = time.monotonic(), self._trouble
            if trouble is not None and (is_not_let_in(trouble) or now_s - self._trouble_at_s >= _AWAY_FOR_S):
                raise transport_error(trouble, doing)
            if now_s > deadline:
                raise TransportError(f"{doing}: no answer within {_ANSWER_WITHIN_S:.0f} s")
        try:
            return asked.result()
        except KafkaException as error:
            if topic is not None and error.args[0].code() in UNKNOWN_TOPIC:
                raise UnknownTopicError(f"topic {topic} does not exist, or not that partition of it") from error
            raise transport_error(error.args[0], doing) from error

    def _note_error(self, error: KafkaError) -> None:
        # That none answers follows from not being let in, and says less.
        if is_not_let_in(error) or (is_brokers_away(error) and self._trouble is None):
            self._trouble, self._trouble_at_s = error, time.monotonic()


def client(kind: Callable[[dict[str, Any]], T], settings: Mapping[str, Any]) -> T:
    """A client of librdkafka's. Raises ConfigurationError for settings that it does not take."""
    try:
        return kind(dict(settings))
    except (KafkaException, ValueError, TypeError) as error:
        raise refused(error) from error
