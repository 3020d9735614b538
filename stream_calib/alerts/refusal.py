"""Records of the alert state that cannot be read: each is refused with a reason, counted, and the rest goes on.

One damaged record, or one that a newer version wrote, must not keep people from hearing of all the others. What is
refused falls to the side on which people are told: a silence or an acknowledgement that cannot be read holds nothing
back.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, TypeVar

import msgspec

from stream_calib import metrics
from stream_calib.alerts.model import Alert
from stream_calib.errors import StateError

_LOG = logging.getLogger(__name__)

Record: TypeAlias = Literal["silence", "acknowledgement", "outbox", "hook", "given_up"]
_SHOWN = 200
_KNOWN = 1_000
"""Records that were refused last, so that each is said once."""
_Content = TypeVar("_Content", str, bytes)
_Read = TypeVar("_Read")


def read_or_refuse(record: Record, content: _Content, decode: Callable[[_Content], _Read]) -> _Read | None:
    """What `decode` reads of it; None where it is refused: where `decode` raises MsgspecError or StateError."""
    try:
        return decode(content)
    except (msgspec.MsgspecError, StateError) as error:
        refuse(record, content, str(error))
        return None


class _Refused:
    """Which were refused before: by a hash, as the record of a hook may hold hundreds of alerts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Record, bytes], None] = {}

    def is_new(self, record: Record, content: str | bytes) -> bool:
        raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
        key = (record, hashlib.sha256(raw).digest())
        with self._lock:
            if key in self._known:
                return False
            if len(self._known) >= _KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = None
            return True

    def clear(self) -> None:
        with self._lock:
            self._known.clear()


REFUSED = _Refused()
"""Of this process."""


def refuse(record: Record, content: str | bytes, reason: str) -> None:
    """Says and counts it, once for each record and process, however often it is read."""
    if not REFUSED.is_new(record, content):
        return
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
