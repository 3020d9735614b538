"""From the configuration to the settings of kafka-python's clients: ours, the deployment's own, and what is refused.

The deployment's settings carry kafka-python's names (`security_protocol`, `sasl_mechanism`, ...); each goes to every
client that knows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from stream_calib.config_connections import ClientValue, LogSection, read_secrets
from stream_calib.errors import ConfigurationError

MAX_POLL_INTERVAL_MS = 300_000
"""A member that has not polled for so long is stuck: it loses its partitions though its heartbeats go on."""

OAUTH_TOKEN = "sasl_oauth_token"
"""Our own name among the secrets: the token of OAUTHBEARER. A file is read again for each new connection."""

_MAX_FETCH_BYTES = 32 << 20
_MAX_PARTITION_FETCH_BYTES = 4 << 20
_MAX_REQUEST_BYTES = 100_000_000
_BATCH_BYTES = 512 << 10
"""Below the brokers' usual limit of a batch (1 MiB), and few requests a transaction."""
_LINGER_MS = 50
"""A commit does not wait for it: it sends what there is. It keeps half-full batches back while one is being filled."""
_CONNECT_WITHIN_MS = 5_000
_RECONNECT_WITHIN_MS = 1_000
_IDLE_FETCH_MS = 250

_CODE = "it is code, which a configuration cannot hold"
_OURS = {
    "bootstrap_servers": "it is log.bootstrap_servers",
    "group_id": "it is made of log.group_prefix",
    "group_instance_id": "it is log.instance_id",
    "partition_assignment_strategy": "every member of a group must share partitions in the same way",
    "session_timeout_ms": "it is log.session_timeout",
    "heartbeat_interval_ms": "it is a third of log.session_timeout",
    "max_poll_records": "it is asked for with each poll",
    "metadata_max_age_ms": "it is log.metadata_max_age",
    "transactional_id": "it is made of log.group_prefix and fences a process's former self",
    "transaction_timeout_ms": "it is log.transaction_timeout",
    "isolation_level": "what an aborted transaction wrote must never be read",
    "enable_auto_commit": "positions are committed with the outputs, or not at all",
    "auto_commit_interval_ms": "positions are committed with the outputs, or not at all",
    "auto_offset_reset": "a lost position must be seen; see log.on_position_lost",
    "acks": "a record counts as written when every in-sync replica has it",
    "enable_idempotence": "a repeated send must not write twice",
    "retries": "a record counts as failed when its time is over, not its tries",
    "allow_auto_create_topics": "topics are created by `stream-calib topics create`",
    "consumer_timeout_ms": "each poll has a timeout of its own",
    "exclude_internal_topics": "topics are named, not searched for",
    "api_version": "brokers are asked for it",
    "sasl_oauth_token_provider": f"{_CODE}; name the token in log.client_secrets: {OAUTH_TOKEN}",
    **dict.fromkeys(
        (
            *("key_deserializer", "value_deserializer", "key_serializer", "value_serializer", "partitioner"),
            *("default_offset_commit_callback", "kafka_client", "selector", "ssl_context", "socket_options"),
            *("metric_reporters", "sasl_kerberos_name"),
        ),
        _CODE,
    ),
}
_ONE_OF = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"),
}
"""kafka-python takes any other text, and then speaks without TLS, or fails in each connection."""
_FILES = frozenset({"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"})
_KNOWN: dict[Any, frozenset[str]] = {
    kind: frozenset(kind.DEFAULT_CONFIG) for kind in (KafkaConsumer, KafkaProducer, KafkaAdminClient)
}


class ClientSettings:
    """Settings of one deployment's clients.

    Raises ConfigurationError for those that kafka-python does not know and for those that would break a guarantee.
    """

    def __init__(self, log: LogSection) -> None:
        self._log = log
        secrets = {name: where for name, where in log.client_secrets.items() if name != OAUTH_TOKEN}
        given: Mapping[str, ClientValue] = {**log.client, **read_secrets(secrets, "log")}
        known = frozenset[str]().union(*_KNOWN.values())
        for name in given:
            if reason := _OURS.get(name):
                raise ConfigurationError(f"log.client: {name} cannot be set: {reason}; remove it")
            if name in _ONE_OF and given[name] not in _ONE_OF[name]:
                raise ConfigurationError(
                    f"log.client: {name} = {given[name]} is none of {', '.join(_ONE_OF[name])}; write one of them"
                )
            if name in _FILES and not os.access(str(given[name]), os.R_OK):
                raise ConfigurationError(f"log.client: {name} = {given[name]}: there is no such file, or not for us")
            if name not in known:
                close = get_close_matches(name, known - _OURS.keys(), 1)
                meant = f"; did you mean {close[0]}?" if close else ""
                raise ConfigurationError(f"log.client: kafka-python has no setting {name}{meant}")
        self._given: dict[str, Any] = dict(given)
        if OAUTH_TOKEN in log.client_secrets:
            self._given["sasl_oauth_token_provider"] = TokenProvider(log.client_secrets[OAUTH_TOKEN])

    def consumer(self, group: str, member: str) -> dict[str, Any]:
        """For a member of the group, which leaves partitions, positions and their loss to us."""
        log = self._log
        ours: dict[str, Any] = {
            "group_id": group,
            "session_timeout_ms": log.session_timeout_ms,
            "heartbeat_interval_ms": max(1, log.session_timeout_ms // 3),
        }
        if log.instance_id is not None:
            ours["group_instance_id"] = log.instance_id
        defaults = {"client_id": member, "max_poll_interval_ms": max(MAX_POLL_INTERVAL_MS, log.session_timeout_ms)}
        return {**self._reader(defaults), **ours}

    def reader(self) -> dict[str, Any]:
        """For reading outside any group."""
        return {**self._reader({}), "group_id": None}

    def producer(self) -> dict[str, Any]:
        """For records outside transactions; the client gives up idempotence where brokers do not have it."""
        defaults = {
            "max_request_size": _MAX_REQUEST_BYTES,
            "batch_size": _BATCH_BYTES,
            "linger_ms": _LINGER_MS,
            "max_block_ms": _CONNECT_WITHIN_MS,
            "metrics_enabled": False,
        }
        return self._client(KafkaProducer, defaults, {})

    def transactional_producer(self, transactional_id: str) -> dict[str, Any]:
        ours = {"transactional_id": transactional_id, "transaction_timeout_ms": self._log.transaction_timeout_ms}
        return {**self.producer(), **ours}

    def admin(self) -> dict[str, Any]:
        return self._client(KafkaAdminClient, {}, {})

    def _reader(self, defaults: dict[str, Any]) -> dict[str, Any]:
        ours = {
            "isolation_level": "read_committed",
            "allow_auto_create_topics": False,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
        }
        reading = {
            "fetch_max_bytes": _MAX_FETCH_BYTES,
            "max_partition_fetch_bytes": _MAX_PARTITION_FETCH_BYTES,
            "fetch_max_wait_ms": _IDLE_FETCH_MS,
            "metrics_enabled": False,
        }
        return self._client(KafkaConsumer, {**reading, **defaults}, ours)

    def _client(self, kind: Any, defaults: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
        """`defaults` give way to the deployment's settings, `ours` do not."""
        basic = {
            "client_id": "stream-calib",
            # So long may a broker that stands still look alive.
            "request_timeout_ms": max(10_000, self._log.session_timeout_ms),
            "bootstrap_timeout_ms": _CONNECT_WITHIN_MS,
            "reconnect_backoff_max_ms": _RECONNECT_WITHIN_MS,
        }
        given = {name: value for name, value in self._given.items() if name in _KNOWN[kind]}
        always = {
            "bootstrap_servers": [server.strip() for server in self._log.bootstrap_servers.split(",")],
            "metadata_max_age_ms": self._log.metadata_max_age_ms,
        }
        return {**basic, **defaults, **given, **always, **ours}


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """The token of OAUTHBEARER, read where `where` ("env:NAME" or "file:PATH") says, at each connection."""

    def __init__(self, where: str) -> None:
        self._where = where

    def token(self) -> str:
        """Raises ConfigurationError where it cannot be read."""
        return read_secrets({OAUTH_TOKEN: self._where}, "log")[OAUTH_TOKEN]
