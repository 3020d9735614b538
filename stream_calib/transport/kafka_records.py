"""Records of kafka-python as records of the port. The hot path of reading."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any

from stream_calib.transport.port import Record, TopicPartition

_record = partial(tuple.__new__, Record)
"""Record of a tuple of its fields, without the interpreter frame of Record.__new__."""
_offset, _timestamp, _key, _value, _headers = (
    itemgetter(i)
    for i in (3, 4, 6, 7, 8)  # of kafka.consumer.fetcher.ConsumerRecord
)


def records_of(source: TopicPartition, found: Sequence[Any]) -> list[Record]:
    """`found`: kafka-python's ConsumerRecords of one partition."""
    fields = zip(
        repeat(source),
        map(_offset, found),
        map(_key, found),
        map(_value, found),
        [_tuples(headers) if headers else () for headers in map(_headers, found)],
        map(_timestamp, found),
    )
    return list(map(_record, fields))


def _tuples(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes], ...]:
    """Kafka has headers without a value; the port does not tell them from empty ones."""
    return tuple([(name, value or b"") for name, value in headers])
