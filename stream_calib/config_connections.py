"""The sections that say what a deployment is connected to: the log, the state, its own HTTP endpoint, telemetry.

Secrets are never values in the file: addresses may come from the environment (config_file.ENVIRONMENT), and settings of
a client that are secret are named in `client_secrets` as "env:NAME" or "file:PATH".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from stream_calib.config_secrets import is_place, read_secret
from stream_calib.config_values import DurationMs, DurationMsOrOff, Section, ServerUrl

ClientValue = str | int | float | bool

_SECRET_NAME = re.compile(r"passw|passphrase|secret|key\.pem|token(?!_endpoint|\.endpoint)", re.IGNORECASE)


def read_secrets(secrets: Mapping[str, str], section: str) -> dict[str, str]:
    """The values that `client_secrets` names, by setting. Raises ConfigurationError where one cannot be read."""
    return {setting: read_secret(where, f"{section}.client_secrets.{setting}") for setting, where in secrets.items()}


class ClientSection(Section):
    """Settings that are passed on to a client library."""

    client: dict[str, ClientValue] = Field(
        default_factory=dict,
        description="Further settings of the client library, by its own names, passed on as they are",
    )
    client_secrets: dict[str, str] = Field(
        default_factory=dict, description='Settings that are secret: name -> "env:NAME" or "file:PATH"'
    )

    @model_validator(mode="after")
    def _secrets_are_elsewhere(self) -> ClientSection:
        for name in self.client:
            if _SECRET_NAME.search(name):
                raise ValueError(
                    f'client: {name} is a secret; name where it is: client_secrets = {{ "{name}" = "env:.." }}'
                )
        for name, where in self.client_secrets.items():
            if not is_place(where):
                raise ValueError(f'client_secrets: {name} must be "env:NAME" or "file:PATH", not the secret itself')
            if name in self.client:
                raise ValueError(f"{name} is in client and in client_secrets; keep one of them")
        return self


class LogSection(ClientSection):
    """The log that the roles read and write."""

    kind: Literal["embedded", "kafka", "librdkafka"] = Field(
        default="embedded",
        description="`embedded`: streams in a Redis-compatible server; `kafka`: Apache Kafka through kafka-python;"
        " `librdkafka`: the same through confluent-kafka, faster (`pip install stream-calib[fast]`)",
    )
    url: ServerUrl = Field(default="redis://127.0.0.1:6379/0", repr=False, description="Where the embedded log lives")
    bootstrap_servers: str = Field(
        default="127.0.0.1:9092", description="Kafka: host:port of some brokers, with commas between"
    )
    delivery: Literal["exactly_once", "at_least_once"] = Field(
        default="exactly_once",
        description="`at_least_once` for clusters without transactions: users may see an output twice",
    )
    group_prefix: str = Field(
        default="stream-calib",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="Kafka: begins the names of consumer groups and transactions; one deployment a prefix",
    )
    instance_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="Kafka: the process's lasting name (as a pod's); a restart within the session timeout then keeps"
        " its partitions and moves nobody else's",
    )
    session_timeout_ms: DurationMs = Field(
        default=10_000, alias="session_timeout", ge=1_000, description="A silent member loses its partitions"
    )
    transaction_timeout_ms: DurationMs = Field(
        default=8_000,
        alias="transaction_timeout",
        ge=500,
        description="Kafka: the broker aborts a dead process's open transaction after it; below the session timeout",
    )
    metadata_max_age_ms: DurationMs = Field(
        default=15_000,
        alias="metadata_max_age",
        ge=100,
        description="Kafka: at most so long until new partitions are seen",
    )
    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Where a deployment that has no positions yet begins on `scores` and `labels`: with what the log"
        " holds, or with what comes from then on",
    )
    on_position_lost: Literal["stop", "skip"] = Field(
        default="stop",
        description="Where retention has passed a position: stop with a message, or go on at what is left, with the gap"
        " counted, alerted and on record",
    )
    score_partitions: int = Field(default=4, ge=1, le=4096, description="Used when topics are created")
    label_partitions: int = Field(default=4, ge=1, le=4096, description="Used when topics are created")
    replication_factor: int | None = Field(
        default=None, ge=1, le=100, description="Kafka: used when topics are created; without one the broker's default"
    )
    output_retention_ms: DurationMs = Field(
        default=7 * 86_400_000, alias="output_retention", description="Kafka: of `calibrated`, when it is created"
    )
    blocks_retention_ms: DurationMsOrOff = Field(
        default=None,
        alias="blocks_retention",
        description='Kafka: of `blocks`, when it is created; "off": two horizons and a week, so that a lost shard can'
        " be rebuilt",
    )
    reject_retention_ms: DurationMs = Field(
        default=30 * 86_400_000,
        alias="reject_retention",
        description="Kafka: of dead letters and alerts, when they are created",
    )

    @model_validator(mode="after")
    def _transactions_end_before_sessions(self) -> LogSection:
        if self.kind != "embedded" and self.transaction_timeout_ms >= self.session_timeout_ms:
            raise ValueError("transaction_timeout must be below session_timeout: a dead member's work would outlive it")
        return self


class RedisSection(ClientSection):
    """The state: join, counts, snapshots, decision log."""

    url: ServerUrl = Field(
        default="redis://127.0.0.1:6379/0",
        repr=False,
        description="Redis or Valkey, 6.2 or later. With `cluster`: one of its nodes; with `sentinels`: user, password,"
        " database and TLS of the servers that these name",
    )
    cluster: bool = Field(default=False, description="The address is a node of a Redis Cluster")
    sentinels: list[str] = Field(
        default_factory=list,
        description="host:port of the Sentinels that know the current primary; a user of their own is"
        " client.sentinel_username, with client_secrets.sentinel_password",
    )
    sentinel_service: str = Field(default="mymaster", description="The name that the Sentinels watch it under")
    socket_timeout_ms: DurationMs = Field(
        default=10_000,
        alias="socket_timeout",
        ge=100,
        description="An answer that takes longer counts as a lost connection",
    )
    retries: int = Field(
        default=4, ge=0, le=20, description="Repeats after a lost connection, with about 20, 40, 80, ... ms between"
    )

    @model_validator(mode="after")
    def _is_one_kind(self) -> RedisSection:
        if self.cluster and self.sentinels:
            raise ValueError("cluster and sentinels exclude each other: a Redis Cluster fails over by itself")
        return self


class HttpSection(Section):
    """Metrics, health and, for `serve`, calibration over HTTP."""

    listen: str = Field(
        default="off",
        pattern=r"^(off|\[?[A-Za-z0-9.:_-]*\]?:[0-9]{1,5})$",
        description='host:port of /metrics, /healthz and /readyz, or "off"',
    )
    tls_certificate: Path | None = Field(default=None, strict=False, description="PEM file; with it only TLS is spoken")
    tls_key: Path | None = Field(default=None, strict=False, description="PEM file of the certificate's key")
    token_file: Path | None = Field(
        default=None, strict=False, description="File of the bearer token that /v1/calibrate asks for"
    )
    max_request_bytes: int = Field(default=4_000_000, ge=1_000, description="A larger request is refused")
    max_request_events: int = Field(default=10_000, ge=1, description="Events of one request")
    hung_after_ms: DurationMs = Field(
        default=60_000,
        alias="hung_after",
        ge=1_000,
        description="/healthz fails where a role's loop has not come round for so long",
    )

    @model_validator(mode="after")
    def _key_and_certificate(self) -> HttpSection:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together; set both or none")
        return self


class TelemetrySection(Section):
    """What a process says of itself."""

    log_format: Literal["text", "json"] = Field(default="text", description="`json`: one object a line")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level logged")
    traces: Literal["off", "otlp"] = Field(
        default="off",
        description="`otlp`: a trace of each batch, to where the OTEL_EXPORTER_OTLP_* variables say"
        " (`pip install stream-calib[otel]`)",
    )
