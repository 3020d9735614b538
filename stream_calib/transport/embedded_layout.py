"""Where the embedded log keeps what, and how a record is packed into a stream entry.

| key | type | content |
|---|---|---|
| log:topic:<topic> | hash | id (UUID minted at creation), partitions, end:<p> (offset of the next record) |
| log:stream:<topic>:<p> | stream | entry (n+1)-0 is offset n; its one field `r` is the packed record |
| log:group:<group>:<topic> | hash | committed positions and leases, see below |
| log:members:<group>:<topic> | zset | member -> server time in ms at which its session ends |
| log:groups:<topic> | set | groups that ever had a member on the topic |
| log:writer:<instance> | hash | sequence (last append done), beat (heartbeats so far) |

All live until they are deleted by an operator; streams are trimmed (EmbeddedLog.trim), and a writer is gone
WRITER_LIFE_MS after its last use. Fields of a group: id (of the topic that the positions belong to), first_partitions
(their number when the group began), position:<p> (committed), owner:<p> (member), token:<p>, tokens (last one given),
instance:<member>.

An entry is the msgpack array [append time in ms, [key, value, [[header, value], ...]]]. The append time is the
server's, taken once in the script that appends, so processes need not agree on a clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from stream_calib.errors import ConfigurationError, PositionLostError
from stream_calib.transport.port import Outgoing, Record, TopicPartition

WRITER_LIFE_MS = 86_400_000
"""For so long a repeated append is recognised."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")

Entry = tuple[bytes, Sequence[bytes]]
"""As XRANGE gives it: id, [field, packed record]."""

_Packed = tuple[int, tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def checked_name(kind: str, name: str) -> str:
    """The name. Raises ConfigurationError where it would be unsafe in a key."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{kind} {name!r}: use 1-200 characters of A-Z a-z 0-9 . _ -")
    return name


def topic_key(topic: str) -> str:
    return f"log:topic:{topic}"


def stream_key(partition: TopicPartition) -> str:
    return f"log:stream:{partition.topic}:{partition.partition}"


def group_key(group: str, topic: str) -> str:
    return f"log:group:{group}:{topic}"


def members_key(group: str, topic: str) -> str:
    return f"log:members:{group}:{topic}"


def groups_key(topic: str) -> str:
    return f"log:groups:{topic}"


def writer_key(instance: str) -> str:
    return f"log:writer:{instance}"


def entry_id(offset: int) -> str:
    return f"{offset + 1}-0"


def entry_offset(stream_id: bytes) -> int:
    return int(stream_id.split(b"-", 1)[0]) - 1


def pack(record: Outgoing) -> bytes:
    """What the append script puts behind the append time."""
    return _encode((record.key, record.value, record.headers))


def unpack(partition: TopicPartition, entries: Sequence[Entry]) -> list[Record]:
    """The records of consecutive entries.

    Raises PositionLostError where entries are missing in between; the log itself never leaves a hole.
    """
    if not entries:
        return []
    first, last = entry_offset(entries[0][0]), entry_offset(entries[-1][0])
    if last - first + 1 != len(entries):
        raise PositionLostError(
            f"{partition}: {last - first + 1 - len(entries)} of the records {first} to {last} were deleted from its"
            f" stream {stream_key(partition)}; only beginnings may be trimmed. Seek past {last} to go on without them"
        )
    records = []
    for offset, (_, (_, packed)) in enumerate(entries, first):
        append_time_ms, (key, value, headers) = _decode(packed)
        records.append(Record(partition, offset, key, value, headers, append_time_ms))
    return records
