"""From the configuration to the settings of librdkafka's clients: ours, the deployment's own, and what is refused.

The deployment's settings carry librdkafka's names (`security.protocol`, `sasl.mechanisms`, ...) and go to every client;
librdkafka itself judges names and values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from stream_calib.config_connections import ClientValue, LogSection, read_secrets
from stream_calib.errors import ConfigurationError
from stream_calib.transport.librdkafka_setting_names import COMMON, CONSUMER_ONLY, PRODUCER_ONLY

LOGGER = logging.getLogger("stream_calib.librdkafka")
"""To which librdkafka logs."""

T = TypeVar("T")

MAX_POLL_INTERVAL_MS = 300_000
"""A member that has not polled for so long is stuck: it loses its partitions though its heartbeats go on."""

_MAX_RECORD_BYTES = 100_000_000
_MAX_FETCH_BYTES = 32_000_000
_PREFETCHED_RECORDS = 20_000
_PREFETCHED_KILOBYTES = 32_768
_IDLE_FETCH_MS = 100
"""The end of a partition is told by an empty fetch, and a seek waits for the fetch before it."""
_FULL_QUEUE_WAIT_MS = 10
"""librdkafka's own second would leave polls without records while thousands wait at the broker."""

_OURS = {
    "bootstrap.servers": "it is log.bootstrap_servers",
    "metadata.broker.list": "it is log.bootstrap_servers",
    "group.id": "it is made of log.group_prefix",
    "group.instance.id": "it is log.instance_id",
    "group.protocol": "batches are fenced by the generations of the classic protocol",
    "group.protocol.type": "batches are fenced by the generations of the classic protocol",
    "partition.assignment.strategy": "every member of a group must share partitions in the same way",
    "session.timeout.ms": "it is log.session_timeout",
    "heartbeat.interval.ms": "it is a third of log.session_timeout",
    "max.poll.interval.ms": "a role that does not poll is judged by http.hung_after",
    "topic.metadata.refresh.interval.ms": "it is log.metadata_max_age",
    "metadata.max.age.ms": "it is log.metadata_max_age",
    "transactional.id": "it is made of log.group_prefix and fences a process's former self",
    "transaction.timeout.ms": "it is log.transaction_timeout",
    "isolation.level": "what an aborted transaction wrote must never be read",
    "enable.auto.commit": "positions are committed with the outputs, or not at all",
    "auto.commit.enable": "positions are committed with the outputs, or not at all",
    "auto.commit.interval.ms": "positions are committed with the outputs, or not at all",
    "enable.auto.offset.store": "positions are committed with the outputs, or not at all",
    "auto.offset.reset": "a lost position must be seen; see log.on_position_lost",
    "enable.partition.eof": "the end of a partition is known by it",
    "acks": "a record counts as written when every in-sync replica has it",
    "request.required.acks": "a record counts as written when every in-sync replica has it",
    "enable.idempotence": "a repeated send must not write twice",
    "max.in.flight": "order and idempotence need librdkafka's own limit",
    "max.in.flight.requests.per.connection": "order and idempotence need librdkafka's own limit",
    "partitioner": "a key must have one partition, whatever client wrote it",
    "delivery.report.only.error": "reports of failures are needed, others cost time",
    "allow.auto.create.topics": "topics are created by `stream-calib topics create`",
    "plugin.library.paths": "foreign code may change what is read and written",
    "test.mock.num.brokers": "it replaces the brokers",
}


class ClientSettings:
    """Settings of one deployment's clients. Raises ConfigurationError for those that would break a guarantee."""

    def __init__(self, log: LogSection, bootstrap_servers: str | None = None) -> None:
        """`bootstrap_servers`: instead of the configured ones."""
        secrets = read_secrets(log.client_secrets, "log")
        given: Mapping[str, ClientValue] = {**log.client, **secrets}
        for name in given:
            if name in _OURS or name.endswith("_cb"):
                reason = _OURS.get(name, "callbacks are code")
                raise ConfigurationError(f"log.client: {name} cannot be set: {reason}; remove it")
        self._given = given
        self._log = log
        self._servers = bootstrap_servers or log.bootstrap_servers

    def consumer(self, group: str, member: str) -> dict[str, Any]:
        """For a member of the group, under whose name the brokers' tools list it."""
        log = self._log
        ours: dict[str, Any] = {
            "client.id": self._given.get("client.id", member),
            "group.id": group,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": log.session_timeout_ms,
            "heartbeat.interval.ms": max(1, log.session_timeout_ms // 3),
            "max.poll.interval.ms": max(MAX_POLL_INTERVAL_MS, log.session_timeout_ms),
        }
        if log.instance_id is not None:
            ours["group.instance.id"] = log.instance_id
        return {**self.reader(), **ours}

    def reader(self) -> dict[str, Any]:
        """For reading outside any group (librdkafka asks for a group's name all the same)."""
        defaults = {
            "fetch.wait.max.ms": _IDLE_FETCH_MS,
            "fetch.queue.backoff.ms": _FULL_QUEUE_WAIT_MS,
            "fetch.max.bytes": _MAX_FETCH_BYTES,
            "queued.min.messages": _PREFETCHED_RECORDS,
            "queued.max.messages.kbytes": _PREFETCHED_KILOBYTES,
        }
        ours = {
            "group.id": f"{self._log.group_prefix}.reader",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
        return self._client(defaults, ours, PRODUCER_ONLY)

    def producer(self) -> dict[str, Any]:
        """For records outside transactions."""
        defaults = {"message.max.bytes": _MAX_RECORD_BYTES, "queue.buffering.max.kbytes": _PREFETCHED_KILOBYTES * 4}
        ours = {
            "enable.idempotence": True,
            "acks": "all",
            # CRC-32 of the key, as `Partitioner` has it.
            "partitioner": "consistent",
            "delivery.report.only.error": True,
        }
        return self._client(defaults, ours, CONSUMER_ONLY)

    def transactional_producer(self, transactional_id: str) -> dict[str, Any]:
        settings = self.producer()
        timeout_ms = self._log.transaction_timeout_ms
        return {
            **settings,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            # A request that outlives its transaction is refused by librdkafka.
            "socket.timeout.ms": min(int(settings["socket.timeout.ms"]), timeout_ms),
        }

    def admin(self) -> dict[str, Any]:
        return self._client({}, {}, PRODUCER_ONLY | CONSUMER_ONLY)

    def _client(self, defaults: dict[str, Any], ours: dict[str, Any], others: frozenset[str]) -> dict[str, Any]:
        """`defaults` give way to the deployment's settings, `ours` do not; `others` are for another kind of client."""
        basic = {
            "client.id": "stream-calib",
            # So long does a broker that stands still look alive; long polls of our own are a fraction of a second.
            "socket.timeout.ms": max(10_000, self._log.session_timeout_ms),
            "reconnect.backoff.max.ms": 1_000,
            "log.connection.close": False,
        }
        given = {name: value for name, value in self._given.items() if name not in others}
        always = {
            "bootstrap.servers": self._servers,
            "topic.metadata.refresh.interval.ms": self._log.metadata_max_age_ms,
            "logger": LOGGER,
        }
        return {**basic, **defaults, **given, **always, **ours}


def refused(error: Exception) -> ConfigurationError:
    """What librdkafka says of settings that it does not take, with the name that may have been meant."""
    text = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
    meant = ""
    if "No such configuration property" in text and '"' in text:
        close = get_close_matches(text.split('"')[1], COMMON | CONSUMER_ONLY | PRODUCER_ONLY, 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
    return ConfigurationError(f"log.client: librdkafka does not take these settings: {text}{meant}")
