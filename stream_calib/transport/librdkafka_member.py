"""Membership in a group through librdkafka: its client, what the group gives, positions on the brokers.

librdkafka joins and heartbeats in threads of its own; its rebalance callbacks run inside our polls. What is granted is
only noted there, and taken up after the poll with positions of our choosing, so that a failure on the way can be tried
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from stream_calib import fault_points
from stream_calib.errors import AnotherProcessError, FencedError, TransportError
from stream_calib.transport.kafka_positions import check_same_topic, joined_as_we_did
from stream_calib.transport.librdkafka_errors import (
    ANOTHER_PROCESS,
    MEMBERSHIP_LOST,
    is_brokers_away,
    is_fatal,
    is_not_let_in,
    transport_error,
)
from stream_calib.transport.librdkafka_topics import REQUEST_TIMEOUT_S, TopicCatalogue, client
from stream_calib.transport.port import StartAt, TopicPartition

_LOG = logging.getLogger(__name__)

_GENERATION = slice(len("CGMDv2:"), len("CGMDv2:") + 4)
_LOOK_WITHIN_S = 0.1


class Reading(NamedTuple):
    """How far a partition is read: where that began, and the next offset."""

    begun: int
    position: int


class GroupMember:
    """One member of one group. Not thread-safe."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        catalogue: TopicCatalogue,
        topics: Sequence[str],
        start: StartAt,
        look_every_ms: int,
        on_revoked: Callable[[], dict[TopicPartition, Reading]],
    ) -> None:
        """`settings` of the client; `look_every_ms`: how often the topics' identity is looked at; `on_revoked` is
        called within a poll, when the member has no partitions any more, and says how far it was."""
        self.group = str(settings["group.id"])
        self._settings = dict(settings)
        self._catalogue = catalogue
        self._topics = list(topics)
        self._start = start
        self._look_every_s = look_every_ms / 1_000
        self._on_revoked = on_revoked
        self._doing = f"reading {', '.join(topics)} as group {self.group}"
        self._ids: dict[str, str] = {}
        self._asked: dict[str, Future[Any]] = {}
        self._asked_at = 0.0
        self._client: Client | None = None
        self._granted: list[TopicPartition] | None = None
        self._kept: dict[TopicPartition, Reading] = {}
        self._away: KafkaError | None = None
        self._fatal: KafkaError | None = None
        self._replaced: AnotherProcessError | None = None
        self.identity = b""
        """The group's metadata, as transactions need it, of the assignment that is in force."""

    @property
    def client(self) -> Client:
        """Connected and joining. Raises UnknownTopicError where a topic does not exist."""
        if self._replaced is not None:
            raise self._replaced
        if self._client is None:
            self._ids = self._ids or {topic: self._catalogue.identity(topic).id for topic in self._topics}
            self._client = client(Client, {**self._settings, "error_cb": self._note_error})
            self._client.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        return self._client

    @property
    def is_in_group(self) -> bool:
        """Whether the assignment in force has a generation: the brokers check no commit without one."""
        return _generation(self.identity) >= 0

    def close(self) -> None:
        closing, self._client = self._client, None
        if closing is not None:
            closing.close()

    # --- what the group gives

    def take_up(self) -> dict[TopicPartition, Reading] | None:
        """The newly granted partitions and where reading them goes on, None where nothing is new.

        Raises TransportError, and is to be called again, when the positions cannot be had yet.
        """
        if self._granted is None:
            return None
        fresh = self.starting_positions([p for p in self._granted if p not in self._kept])
        if fresh is None:
            return None
        readings = {**self._kept, **{p: Reading(offset, offset) for p, offset in fresh.items()}}
        self.client.assign([Position(*p, reading.position) for p, reading in readings.items()])
        self._granted, self._kept = None, {}
        return readings

    def starting_positions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Where the group goes on; None while that is not known. Raises TopicRecreatedError where its positions are of
        another topic."""
        committed = self._committed(partitions) if partitions else {}
        fresh = [p for p in partitions if p not in committed]
        if not fresh:
            return committed
        if not self._start.earliest:
            # The owner of partition 0 begins the group: the ends of all partitions become committed positions at once,
            # so that a partition without one is known to have been added later, and is read from its start.
            for topic in sorted({p.topic for p in fresh}):
                leading = TopicPartition(topic, 0)
                if leading in fresh:
                    self._begin_at_ends(topic)
                    return None
                if not self._committed([leading]):
                    return None
        return {**committed, **self._catalogue.first_offsets(fresh)}

    def _begin_at_ends(self, topic: str) -> None:
        every = [TopicPartition(topic, n) for n in range(self._catalogue.identity(topic).partitions)]
        self.commit(self._catalogue.end_offsets(every))
        _LOG.info("group %s begins at the ends of topic %s", self.group, topic)

    def _on_assign(self, consumer: Client, partitions: list[Position]) -> None:
        before, self.identity = self.identity, consumer.consumer_group_metadata()
        granted = [TopicPartition(p.topic, p.partition) for p in partitions]
        # Nobody else can have had a partition that was this member's in the generation just before.
        follows = _member_id(before) == _member_id(self.identity) and _generation(self.identity) == 1 + _generation(
            before
        )
        self._kept = {p: self._kept[p] for p in granted if follows and p in self._kept}
        self._granted = granted
        consumer.assign([])

    def _on_revoke(self, consumer: Client, partitions: list[Position]) -> None:
        self._granted = None
        self._kept.update(self._on_revoked())
        consumer.unassign()

    def _on_lost(self, consumer: Client, partitions: list[Position]) -> None:
        self._on_revoke(consumer, partitions)
        self._kept, self.identity = {}, b""

    # --- positions on the brokers

    def committed(self, partition: TopicPartition) -> int | None:
        return self._committed([partition]).get(partition)

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        doing = f"asking for the positions of group {self.group}"
        try:
            answers = self.client.committed([Position(*p) for p in partitions], timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise transport_error(error.args[0], doing) from error
        for answer in answers:
            if answer.error is not None:
                raise transport_error(answer.error, doing)
        found = {TopicPartition(a.topic, a.partition): a for a in answers if a.offset >= 0}
        for topic, answer in ((p.topic, answer) for p, answer in found.items() if p.topic in self._ids):
            check_same_topic(self.group, topic, self._ids[topic], answer.metadata)
        return {p: answer.offset for p, answer in found.items()}

    def positions(self, positions: Mapping[TopicPartition, int]) -> list[Position]:
        """As they are committed: with the identity of their topic."""
        return [Position(p.topic, p.partition, offset, self._ids[p.topic]) for p, offset in positions.items()]

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Without a transaction. Raises FencedError when this member has lost its partitions, else TransportError."""
        try:
            fault_points.before("kafka.positions")
            done = self.client.commit(offsets=self.positions(positions), asynchronous=False)
            fault_points.after("kafka.positions")
            failed = next((p.error for p in done or () if p.error is not None), None)
        except KafkaException as error:
            failed = error.args[0]
        if failed is None:
            return
        if failed.code() in ANOTHER_PROCESS:
            raise AnotherProcessError(failed.str())
        if failed.code() in MEMBERSHIP_LOST:
            raise FencedError(
                f"group {self.group} has given the batch's partitions away ({failed.str()}); drop it and poll again"
            )
        raise transport_error(failed, f"committing positions of group {self.group}")

    # --- troubles

    def look_at_topics(self, *, at_once: bool = False) -> None:
        """Now and then, or at once, asks whether the topics are still the ones that the positions belong to; never
        waits for the answer. Raises TopicRecreatedError, UnknownTopicError."""
        for topic in [topic for topic, asked in self._asked.items() if asked.done()]:
            found = self._catalogue.answer(self._asked.pop(topic), topic)
            check_same_topic(self.group, topic, found.id, self._ids[topic])
        now = time.monotonic()
        if not self._asked and self._ids and (at_once or now - self._asked_at > self._look_every_s):
            self._asked_at = now
            self._asked = self._catalogue.ask_identities(self._topics)

    def must_be_same(self, topic: str) -> None:
        """Raises TopicRecreatedError where the topic is not the one that the positions belong to."""
        check_same_topic(self.group, topic, self._catalogue.identity(topic).id, self._ids[topic])

    def failed(self, error: KafkaError) -> TransportError:
        """What an error of the client means. A client that cannot go on is ended, and the next poll makes another."""
        if error.code() in ANOTHER_PROCESS or (is_fatal(error) and "group.instance.id" in error.str()):
            return self.replaced()
        if is_fatal(error):
            self.close()
            self._on_revoked()
        return transport_error(error, self._doing)

    def replaced(self) -> AnotherProcessError:
        """Another process runs under this one's static identity: every later poll fails with the same error."""
        self._replaced = joined_as_we_did(self.group, self._settings.get("group.instance.id"))
        return self._replaced

    def raise_when_failed(self) -> None:
        """The client has told of an error that it cannot go on after."""
        error, self._fatal = self._fatal, None
        if error is not None:
            raise self.failed(error)

    def is_heard(self) -> None:
        """The brokers have answered."""
        self._away = None

    def raise_when_away(self) -> None:
        """While the brokers were last heard of as away, nothing read means only then that there is nothing."""
        error = self._away
        if error is None:
            return
        if is_brokers_away(error):
            try:
                self.client.list_topics(self._topics[0], timeout=_LOOK_WITHIN_S)
            except KafkaException as still:
                raise transport_error(error, self._doing) from still
            self._away = None
            return
        self._away = None
        raise transport_error(error, self._doing)

    def _note_error(self, error: KafkaError) -> None:
        """Called within polls."""
        if is_fatal(error):
            self._fatal = error
        elif is_not_let_in(error) or (is_brokers_away(error) and self._away is None):
            self._away = error


def _generation(identity: bytes) -> int:
    """-1 where there is none: the brokers check no commit without one."""
    return int.from_bytes(identity[_GENERATION], "little", signed=True) if identity else -1


def _member_id(identity: bytes) -> bytes:
    """After the generation librdkafka writes the group's name and the member's id, each ended by a zero byte."""
    return identity[_GENERATION.stop :].split(b"\0")[1] if identity else b""
