"""Records of the alert state that cannot be read: each is refused with a reason, counted, and the rest goes on.

One damaged record, or one that a newer version wrote, must not keep people from hearing of all the others. What is
refused falls to the side on which people are told: a silence or an acknowledgement that cannot be read holds nothing
back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, TypeAlias, TypeVar

import msgspec

from stream_calib import metrics
from stream_calib.alerts.model import Alert
from stream_calib.errors import StateError

_LOG = logging.getLogger(__name__)

Record: TypeAlias = Literal["silence", "acknowledgement", "outbox", "hook", "given_up"]
_SHOWN = 200
_Content = TypeVar("_Content", str, bytes)
_Read = TypeVar("_Read")


def read_or_refuse(record: Record, content: _Content, decode: Callable[[_Content], _Read]) -> _Read | None:
    """What `decode` reads of it; None where it is refused: where `decode` raises MsgspecError or StateError."""
    try:
        return decode(content)
    except (msgspec.MsgspecError, StateError) as error:
        refuse(record, content, str(error))
        return None


@lru_cache(maxsize=1_000)
def refuse(record: Record, content: str | bytes, reason: str) -> None:
    """Says and counts it, once for each record and process, however often it is read."""
    metrics.ALERT_RECORDS_REFUSED.labels(record).inc()
    _LOG.error(
        "a record of alerts (%s) is refused, the others go on: %s: %r",
        record,
        " ".join(reason.split())[:_SHOWN],
        content[:_SHOWN],
    )


def alerts_of(entries: Iterable[bytes]) -> list[Alert | None]:
    """The alerts of entries of an outbox; None in the place of one that is refused."""
    return [read_or_refuse("outbox", entry, Alert.decode) for entry in entries]
