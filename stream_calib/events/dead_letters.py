"""Dead letters: what was refused, as it came, with where it came from and why."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.events.contracts import Reject
from stream_calib.events.outputs import Headers, source_headers
from stream_calib.transport.port import Outgoing, Record

KEY_HEADER = "stream-calib-source-key"
REASON_HEADER = "stream-calib-reason"
MESSAGE_HEADER = "stream-calib-message"
TRUNCATED_HEADER = "stream-calib-truncated-from"

_OUR_HEADERS_BYTES = 2_000
"""More than our own headers and the key of a dead letter take, but for the original key."""


def dead_letters(topic: str, records: Sequence[Record], rejects: Sequence[Reject], max_bytes: int) -> list[Outgoing]:
    """One record for `topic` for each reject, in order.

    Key ``<topic>-<partition>-<offset>``, so that a repeat is seen to be one; value: the original bytes; headers: the
    original ones, then source topic, partition, offset, the original key (left out where there was none), the reason
    code and a message in ASCII. Where an original header has one of our names, the last one is ours.

    What is larger than `max_bytes`, which the topic would refuse for ever, is cut: see `_cut`.
    """
    return [_dead_letter(topic, records[reject.record_index], reject, max_bytes) for reject in rejects]


def _dead_letter(topic: str, original: Record, reject: Reject, max_bytes: int) -> Outgoing:
    record, truncated = _cut(original, max_bytes - _OUR_HEADERS_BYTES)
    key = () if record.key is None else ((KEY_HEADER, record.key),)
    message = reject.message.encode("ascii", "backslashreplace")
    why = ((REASON_HEADER, reject.reason.value.encode()), (MESSAGE_HEADER, message))
    headers = (*record.headers, *source_headers(record), *key, *why, *truncated)
    return Outgoing(topic, f"{record.source}-{record.offset}".encode(), record.value, headers)


def _cut(record: Record, max_bytes: int) -> tuple[Record, Headers]:
    """The record in at most `max_bytes` of key, headers and value, and the header that says so where it was cut.

    The key keeps its first quarter of them, headers are kept in their order while they fit into another quarter, and
    the value has the rest. The header has the size in bytes of the original value.
    """
    key, value = record.key or b"", record.value or b""
    sizes = [len(name.encode()) + len(content or b"") for name, content in record.headers]
    if len(key) + sum(sizes) + len(value) <= max_bytes:
        return record, ()
    quarter = max_bytes // 4
    headers, left = [], quarter
    for header, size in zip(record.headers, sizes, strict=True):
        if size <= left:
            headers.append(header)
            left -= size
    rest = max_bytes - min(len(key), quarter) - (quarter - left)
    cut = record._replace(
        key=None if record.key is None else key[:quarter],
        headers=tuple(headers),
        value=None if record.value is None else value[:rest],
    )
    return cut, ((TRUNCATED_HEADER, b"%d" % len(value)),)
