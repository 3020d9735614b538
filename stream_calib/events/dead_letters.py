"""Dead letters: what was refused, as it came, with where it came from and why."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.events.contracts import Reject
from stream_calib.events.outputs import source_headers
from stream_calib.transport.port import Outgoing, Record

KEY_HEADER = "stream-calib-source-key"
REASON_HEADER = "stream-calib-reason"
MESSAGE_HEADER = "stream-calib-message"


def dead_letters(topic: str, records: Sequence[Record], rejects: Sequence[Reject]) -> list[Outgoing]:
    """One record for `topic` for each reject, in order.

    Key ``<topic>-<partition>-<offset>``, so that a repeat is seen to be one; value: the original bytes; headers: the
    original ones, then source topic, partition, offset, the original key (left out where there was none), the reason
    code and a message in ASCII. Where an original header has one of our names, the last one is ours.
    """
    return [_dead_letter(topic, records[reject.record_index], reject) for reject in rejects]


def _dead_letter(topic: str, record: Record, reject: Reject) -> Outgoing:
    key = () if record.key is None else ((KEY_HEADER, record.key),)
    message = reject.message.encode("ascii", "backslashreplace")
    why = ((REASON_HEADER, reject.reason.value.encode()), (MESSAGE_HEADER, message))
    headers = (*record.headers, *source_headers(record), *key, *why)
    return Outgoing(topic, f"{record.source}-{record.offset}".encode(), record.value, headers)
