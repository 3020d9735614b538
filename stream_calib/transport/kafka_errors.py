"""What kafka-python's errors mean to us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors as kafka_errors

from stream_calib.errors import TransportError, UnknownTopicError

_NOT_LET_IN = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)
_NOT_LET_IN_TEXTS = ("Handshake failed", "SSL:")
_DISCONNECTED_TEXT = "socket disconnected"
MEMBERSHIP_LOST = (
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.UnknownMemberIdError,
    kafka_errors.RebalanceInProgressError,
)
_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
_CODEC = (kafka_errors.UnsupportedCodecError, kafka_errors.UnsupportedCompressionTypeError)
_AWAY = (
    kafka_errors.KafkaTimeoutError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
)


def transport_error(error: Exception, doing: str) -> TransportError:
    """`doing`: what was tried, as "writing to topic x"."""
    text = str(error) or type(error).__name__
    if isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
        return UnknownTopicError(f"{doing}: the topic or partition does not exist")
    if isinstance(error, _TOO_LARGE):
        return TransportError(
            f"{doing}: a record is too large ({text}); raise max.message.bytes of the topic"
            " (and max_request_size in log.client where it is set), or send smaller records"
        )
    if isinstance(error, _NOT_LET_IN) or any(known in text for known in _NOT_LET_IN_TEXTS):
        return _not_let_in(text, doing)
    if isinstance(error, kafka_errors.AuthorizationError):
        return TransportError(f"{doing}: not allowed ({text}); give the user of log.client the right to it")
    if isinstance(error, _CODEC):
        return TransportError(
            f"{doing}: a record is compressed with a codec that is not installed here ({text});"
            " install it, as `pip install kafka-python[lz4,zstd,snappy]`"
        )
    if isinstance(error, _AWAY):
        return TransportError(f"{doing}: the brokers do not answer ({text})")
    return TransportError(f"{doing}: {text}")


def connection_error(error: Exception, doing: str, *, logs_in: bool) -> TransportError:
    """Of a first connection. `logs_in`: with SASL, where brokers may close instead of answering."""
    if logs_in and _DISCONNECTED_TEXT in str(error):
        return _not_let_in(f"they closed the connection while we logged in: {error}", doing)
    return transport_error(error, doing)


def _not_let_in(text: str, doing: str) -> TransportError:
    return TransportError(
        f"{doing}: the brokers do not let us in ({text}); check log.client: security_protocol, sasl_*, ssl_*"
    )


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raises kafka-python's errors as TransportError that begins with `doing`."""
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise transport_error(error, doing) from error
