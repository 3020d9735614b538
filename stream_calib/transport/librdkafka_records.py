"""Messages of librdkafka as records of the port. The hot path: everything is a pass in C over the whole batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from confluent_kafka import Message

from stream_calib.transport.port import Record, TopicPartition

Headers = tuple[tuple[str, bytes], ...]

_record = partial(tuple.__new__, Record)
"""Record of a tuple of its fields, without the interpreter frame of Record.__new__."""
_second = itemgetter(1)


def split(messages: Sequence[Any]) -> tuple[list[tuple[TopicPartition, list[Record]]], list[Any]]:
    """Runs of records of one partition, each in order of offsets, and the events (messages that carry an error)."""
    errors = list(map(Message.error, messages))
    if any(errors):  # a KafkaError cannot be compared with None
        events = [m for m, error in zip(messages, errors, strict=True) if error is not None]
        messages = [m for m, error in zip(messages, errors, strict=True) if error is None]
    else:
        events = []
    runs = []
    done = 0
    sources: Iterable[Any] = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
    for source, run in groupby(sources, TopicPartition._make):
        count = len(list(run))
        part = messages if count == len(messages) else messages[done : done + count]
        runs.append((source, records_of(source, part)))
        done += count
    return runs, events


def records_of(source: TopicPartition, messages: Sequence[Any]) -> list[Record]:
    fields = zip(
        repeat(source),
        map(Message.offset, messages),
        map(Message.key, messages),
        map(Message.value, messages),
        _headers_of(messages),
        map(_second, map(Message.timestamp, messages)),
    )
    return list(map(_record, fields))


def _headers_of(messages: Sequence[Any]) -> Iterable[Headers]:
    found: list[Any] = list(map(Message.headers, messages))
    if found.count(None) == len(found):
        return repeat(())
    return [_headers(headers) if headers else () for headers in found]


def _headers(headers: list[tuple[str, bytes | None]]) -> Headers:
    """Kafka has headers without a value; the port does not tell them from empty ones."""
    return tuple([(name, value or b"") for name, value in headers])
