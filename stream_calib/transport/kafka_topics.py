"""What the brokers say of topics: identity, number of partitions, offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import IsolationLevel, KafkaAdminClient, KafkaConsumer, OffsetSpec
from kafka import TopicPartition as KafkaPartition
from kafka.errors import (
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.net.compat import KafkaNetClient

from stream_calib.errors import ConfigurationError, TransportError, UnknownTopicError
from stream_calib.transport.kafka_errors import connection_error, transport_error
from stream_calib.transport.kafka_log import TopicIdentity
from stream_calib.transport.kafka_settings import ClientSettings
from stream_calib.transport.port import TopicPartition

T = TypeVar("T")

_ENDS_WITHIN_MS = 3_000


def opened(kind: Callable[..., T], settings: Mapping[str, Any]) -> T:
    """A client of kafka-python's. Raises ConfigurationError for values it does not take, TransportError where no broker
    answers, or none lets us in."""
    networks: list[Any] = []

    def network(**given: Any) -> Any:
        networks.append(KafkaNetClient(**given))
        return networks[-1]

    failures = _Failures()
    failures.logger.addHandler(failures)
    try:
        return kind(**settings, kafka_client=network)
    except (KafkaError, ValueError, TypeError, RuntimeError, AssertionError, OSError) as error:
        for left_open in networks:  # with its thread and sockets, which kafka-python forgets
            with suppress(KafkaError, OSError):
                left_open.close()
        doing = f"connecting to {', '.join(settings['bootstrap_servers'])}"
        if isinstance(error, KafkaTimeoutError):
            logs_in = "SASL" in settings.get("security_protocol", "")
            raise connection_error(failures.last or error, doing, logs_in=logs_in) from error
        if isinstance(error, KafkaError) and not isinstance(error, KafkaConfigurationError):
            raise transport_error(error, doing) from error
        raise ConfigurationError(f"log.client: kafka-python does not take these settings: {error}") from error
    finally:
        failures.logger.removeHandler(failures)


class _Failures(logging.Handler):
    """Why connections failed: kafka-python tells it to its log, and raises only that it could not connect in time."""

    logger = logging.getLogger("kafka.net.manager")

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        for part in record.args if isinstance(record.args, tuple) else ():
            if isinstance(part, Exception) and not isinstance(part, KafkaTimeoutError):
                self.last = part


class TopicCatalogue:
    """Answers from the brokers, raised as TransportError when there are none. Connects when it is first asked."""

    def __init__(self, settings: ClientSettings, remembered_ms: int) -> None:
        """`remembered_ms`: so long does `partition_count` answer from memory."""
        self._settings = settings
        self._remembered_s = remembered_ms / 1_000
        self._counts: dict[str, tuple[float, int]] = {}
        self._admin: Any = None
        self._reader: Any = None

    def ask(self, doing: str, question: Callable[[Any], T]) -> T:
        """The answer to `question`, which is given the admin client."""
        if self._admin is None:
            self._admin = opened(KafkaAdminClient, self._settings.admin())
        try:
            return question(self._admin)
        except KafkaError as error:
            raise transport_error(error, doing) from error

    def create(self, topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str]) -> None:
        """Does nothing where it exists. `replication_factor`: -1 for the brokers' default."""
        wanted = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": dict(settings)}

        def create(admin: Any) -> None:
            with suppress(TopicAlreadyExistsError):
                admin.create_topics({topic: wanted}, wait_for_metadata=True)

        self.ask(f"creating topic {topic}", create)

    def identity(self, topic: str) -> TopicIdentity:
        """Raises UnknownTopicError where there is no such topic."""
        return self.identities([topic])[topic]

    def identities(self, topics: Iterable[str]) -> dict[str, TopicIdentity]:
        """Raises UnknownTopicError where there is no such topic."""
        names = list(topics)
        doing = f"asking for topic {', '.join(names)}"
        found = {}
        for description in self.ask(doing, lambda admin: admin.describe_topics(names)):
            topic, partitions = description["name"], description["partitions"]
            if description["error_code"] == UnknownTopicOrPartitionError.errno or not partitions:
                raise UnknownTopicError(f"topic {topic} does not exist")
            if description["error_code"]:
                raise TransportError(f"{doing}: the brokers answer with error {description['error_code']}")
            found[topic] = TopicIdentity(str(description["topic_id"]), len(partitions))
            self._counts[topic] = (time.monotonic(), len(partitions))
        return found

    def partition_count(self, topic: str) -> int:
        """Number of partitions, at most `remembered_ms` old."""
        known = self._counts.get(topic)
        if known is not None and time.monotonic() - known[0] < self._remembered_s:
            return known[1]
        return self.identity(topic).partitions

    def has(self, topic: str, partition: int) -> bool:
        """Whether the topic has it, or had it when somebody last asked: partitions are added, never taken away."""
        known = self._counts.get(topic)
        return (known is not None and partition < known[1]) or partition < self.identity(topic).partitions

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of the first records of those broker times (epoch milliseconds) or later; -1 where there is none."""
        return self._offsets(times_ms)

    def _offsets(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        """By OffsetSpec or epoch milliseconds."""
        specs = {KafkaPartition(*partition): spec for partition, spec in wanted.items()}
        found = self.ask(
            f"asking for offsets of {', '.join(map(str, wanted))}",
            lambda admin: admin.list_partition_offsets(specs, isolation_level=IsolationLevel.READ_COMMITTED),
        )
        return {TopicPartition(*partition): answer.offset for partition, answer in found.items()}

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As readers of committed records see them: before the first transaction that is still open."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))

    def current_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """`end_offsets` at less than half its cost, for every poll; of partitions that are known to exist."""
        asked = [KafkaPartition(*partition) for partition in partitions]
        try:
            found = self._opened_reader().end_offsets(asked, timeout_ms=_ENDS_WITHIN_MS)
        except KafkaError as error:
            raise transport_error(error, f"asking for the ends of {', '.join(map(str, partitions))}") from error
        except KeyError:
            # Of a partition whose leader it does not know yet, while it knows others, kafka-python drops the question.
            return self.end_offsets(partitions)
        return {TopicPartition(*partition): offset for partition, offset in found.items()}

    def protocol_version(self) -> tuple[int, ...]:
        """Of Kafka's releases the last one that the brokers speak as, as far as kafka-python knows them."""
        return tuple(self._opened_reader().config["api_version"])

    def _opened_reader(self) -> Any:
        if self._reader is None:
            self._reader = opened(KafkaConsumer, self._settings.reader())
        return self._reader

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close(autocommit=False)
