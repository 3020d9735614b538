"""What librdkafka's errors mean to us."""

from __future__ import annotations

from confluent_kafka import KafkaError

from stream_calib.errors import TransportError, UnknownTopicError

UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)

NO_LEADER_YET = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.REPLICA_NOT_AVAILABLE,
    }
)
"""A matter of a moment, as after a topic was created or a broker has gone."""

MEMBERSHIP_LOST = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,
    }
)

ANOTHER_PROCESS = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID})

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
_NOT_LET_IN = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
_NOT_ALLOWED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_CODEC = frozenset({KafkaError._BAD_COMPRESSION, KafkaError.UNSUPPORTED_COMPRESSION_TYPE, KafkaError._NOT_IMPLEMENTED})


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that tells of it is of no more use."""
    return bool(error.fatal() or error.code() == KafkaError._FATAL)


def is_brokers_away(error: KafkaError) -> bool:
    """Whether no broker can be reached."""
    return bool(error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE))


def is_not_let_in(error: KafkaError) -> bool:
    """Whether the broker refuses this client: waiting does not help."""
    return bool(error.code() in _NOT_LET_IN)


def transport_error(error: KafkaError, doing: str) -> TransportError:
    """`doing`: what was tried, as "writing to topic x"."""
    code, text = error.code(), error.str()
    if code in UNKNOWN_TOPIC:
        return UnknownTopicError(f"{doing}: the topic or partition does not exist ({text})")
    if code in _TOO_LARGE:
        return TransportError(
            f"{doing}: a record is too large ({text}); raise max.message.bytes of the topic"
            " (and message.max.bytes in log.client where it is set), or send smaller records"
        )
    if code in _NOT_LET_IN:
        return TransportError(
            f"{doing}: the brokers do not let us in ({text}); check log.client: security.protocol, sasl.*, ssl.*"
        )
    if code in _NOT_ALLOWED:
        return TransportError(f"{doing}: not allowed ({text}); give the user of log.client the right to it")
    if code in _CODEC:
        return TransportError(
            f"{doing}: a record is compressed in a way that this build of librdkafka cannot read ({text});"
            " have its producer use lz4, zstd, snappy or gzip"
        )
    if is_brokers_away(error):
        return TransportError(
            f"{doing}: the brokers do not answer ({text}); check that they run, and log.bootstrap_servers"
        )
    return TransportError(f"{doing}: {text}")
