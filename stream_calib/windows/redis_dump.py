"""One generation of a model key out of a Redis-compatible server as frames of a dump, and back into one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import Command, RedisClient, replies_to
from stream_calib.redis_connection import answering
from stream_calib.windows.redis_names import Name, full_name, names_of
from stream_calib.windows.state_dump import Content, HashFrame, ListFrame, SetFrame, StringFrame

T = TypeVar("T")

_LARGE_AT_ONCE = 8
"""Of lists' parts and strings, which may have some megabytes each."""
_ENTRIES_A_FRAME = 64
_FIELDS_A_FRAME = 1_000
_WRITTEN_A_STEP = 100
_BYTES_A_STEP = 4_000_000


def moving_parts(client: RedisClient, key: ModelKey, number: int) -> dict[bytes, Any]:
    """What changes with whatever is done to a generation: its fields, and the positions and clocks of its shards."""
    names = {
        name.full
        for some in names_of(client, key)
        for name in some
        if name.generation == number and name.rest == (b"f" if name.shard is None else b"m")
    }
    return dict(zip(sorted(names), _asked(client, [(n, ("HGETALL", n)) for n in sorted(names)]), strict=True))


def dumped(client: RedisClient, key: ModelKey, number: int, before_step: Callable[[], None]) -> Iterator[Content]:
    """All of a generation but its leases. `before_step`: called before each step; what it raises ends the work.

    Raises StateUnavailableError; StateError where something is there that this program does not write.
    """
    begun: set[bytes] = set()
    for some in names_of(client, key):
        before_step()
        names = [n for n in some if n.generation == number and not n.rest.startswith(b"lease:")]
        kinds = _asked(client, [(n.full, ("TYPE", n.full)) for n in names])
        by_kind: dict[str, list[Name]] = {}
        for name, kind in zip(names, kinds, strict=True):
            by_kind.setdefault(kind.decode() if isinstance(kind, bytes) else str(kind), []).append(name)
        # The server may name a key twice while its table grows; a list would be twice as long then.
        lists = [n for n in by_kind.pop("list", []) if n.full not in begun]
        begun.update(n.full for n in lists)
        yield from _hashes(client, by_kind.pop("hash", []))
        for part in _parted(lists, _LARGE_AT_ONCE):
            yield from _lists(client, part)
        for part in _parted(by_kind.pop("string", []), _LARGE_AT_ONCE):
            values = _asked(client, [(n.full, ("GET", n.full)) for n in part])
            yield from (StringFrame(n.shard, n.rest, v) for n, v in zip(part, values, strict=True) if v is not None)
        sets = by_kind.pop("set", [])
        members = _asked(client, [(n.full, ("SMEMBERS", n.full)) for n in sets])
        yield from (SetFrame(n.shard, n.rest, sorted(m)) for n, m in zip(sets, members, strict=True))
        by_kind.pop("none", None)  # gone in between, as a lease; what moves is found at the end
        for kind, others in by_kind.items():
            raise StateError(
                f"the key {others[0].full.decode(errors='replace')} is a {kind}, which this program does not write:"
                " remove it, then export again"
            )


def restore(
    client: RedisClient, key: ModelKey, number: int, content: Iterable[Content], before_step: Callable[[], None]
) -> int:
    """Writes content under a generation that has nothing yet; how many commands that were. Raises
    StateUnavailableError; every command may be repeated."""
    commands: list[tuple[bytes, Command]] = []
    lengths: dict[int, int] = {}
    size = written = 0

    def write() -> None:
        nonlocal commands, lengths, size
        before_step()
        replies = _asked(client, commands)
        for place, length in lengths.items():
            if int(replies[place]) != length:
                where = commands[place][0].decode(errors="replace")
                raise StateError(
                    f"the list {where} has {replies[place]} entries, not {length}:"
                    " somebody else writes there; stop it, and import again"
                )
        commands, lengths, size = [], {}, 0

    for frame in content:
        name = full_name(key, frame.shard, number, frame.name)
        if isinstance(frame, HashFrame):
            parts: Sequence[bytes] = [part for pair in frame.fields for part in pair]
            commands.append((name, ("HSET", name, *parts)))
        elif isinstance(frame, SetFrame):
            parts = frame.members
            commands.append((name, ("SADD", name, *parts)))
        elif isinstance(frame, StringFrame):
            parts = [frame.value]
            commands.append((name, ("SET", name, frame.value)))
        else:
            parts = frame.entries
            # Cut back first, so that a repeat after a lost connection appends nothing twice.
            cut: Command = ("LTRIM", name, 0, frame.start - 1) if frame.start else ("DEL", name)
            commands.append((name, cut))
            lengths[len(commands)] = frame.start + len(parts)
            commands.append((name, ("RPUSH", name, *parts)))
        written += 1
        size += sum(map(len, parts))
        if len(commands) >= _WRITTEN_A_STEP or size >= _BYTES_A_STEP:
            write()
    if commands:
        write()
    return written


def _hashes(client: RedisClient, names: Sequence[Name]) -> Iterator[HashFrame]:
    cursors = dict.fromkeys(names, 0)
    while cursors:
        asked = [(n.full, ("HSCAN", n.full, at, "COUNT", _FIELDS_A_FRAME)) for n, at in cursors.items()]
        for name, (cursor, fields) in zip(list(cursors), _asked(client, asked), strict=True):
            if fields:
                yield HashFrame(name.shard, name.rest, sorted(fields.items()))
            if int(cursor):
                cursors[name] = int(cursor)
            else:
                del cursors[name]


def _lists(client: RedisClient, names: Sequence[Name]) -> Iterator[ListFrame]:
    start = 0
    while names:
        stop = start + _ENTRIES_A_FRAME - 1
        found = _asked(client, [(n.full, ("LRANGE", n.full, start, stop)) for n in names])
        yield from (ListFrame(n.shard, n.rest, start, e) for n, e in zip(names, found, strict=True) if e)
        names = [n for n, e in zip(names, found, strict=True) if len(e) == _ENTRIES_A_FRAME]
        start = stop + 1


def _asked(client: RedisClient, commands: Sequence[tuple[bytes, Command]]) -> list[Any]:
    """Replies to the commands. Raises StateUnavailableError, and ConfigurationError where one is not allowed."""
    if not commands:
        return []
    with answering(StateUnavailableError, "reading or writing a whole state"):
        return replies_to(client, commands)


def _parted(items: Sequence[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, size)):
        yield part
