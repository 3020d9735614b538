"""The file that `state export` writes: whole states of model keys, portable between servers and their versions.

A first line names the format and its number; behind it, compressed by gzip, come frames: four bytes of length (big
endian) and a msgpack array of that many bytes. For each model key a `model` frame, then its content in any order; the
last frame is the SHA-256 of all bytes of the frames before it. Nothing in it is executed, and nothing is of Redis's own
formats.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from stream_calib.errors import StateError

FORMAT = 1
_MAGIC = b"stream-calib state "
_LENGTH_BYTES = 4
_LARGEST_FRAME = 600_000_000
"""A damaged length must not ask for all memory."""


class ModelFrame(msgspec.Struct, frozen=True, array_like=True, tag="model", forbid_unknown_fields=True):
    """Begins a model key."""

    model: str
    version: str
    generation: str
    """Hash of the semantic configuration that the state was made under."""
    state_format: int
    """See registration.STATE_FORMAT."""


class HashFrame(msgspec.Struct, frozen=True, array_like=True, tag="hash", forbid_unknown_fields=True):
    """Some fields of a hash; a later frame of the same name adds to it."""

    shard: int | None
    """None: of the model key's own state."""
    name: bytes
    fields: list[tuple[bytes, bytes]]


class ListFrame(msgspec.Struct, frozen=True, array_like=True, tag="list", forbid_unknown_fields=True):
    """Entries of a list from `start` on; frames of one list are in order."""

    shard: int | None
    name: bytes
    start: int
    entries: list[bytes]


class SetFrame(msgspec.Struct, frozen=True, array_like=True, tag="set", forbid_unknown_fields=True):
    """Members of a set."""

    shard: int | None
    name: bytes
    members: list[bytes]


class StringFrame(msgspec.Struct, frozen=True, array_like=True, tag="string", forbid_unknown_fields=True):
    """A value."""

    shard: int | None
    name: bytes
    value: bytes


class EndFrame(msgspec.Struct, frozen=True, array_like=True, tag="end", forbid_unknown_fields=True):
    """The last one."""

    frames: int
    sha256: str


Content: TypeAlias = HashFrame | ListFrame | SetFrame | StringFrame
Frame: TypeAlias = ModelFrame | Content
_ANY = msgspec.msgpack.Decoder(ModelFrame | HashFrame | ListFrame | SetFrame | StringFrame | EndFrame)


def write_dump(path: Path, frames: Iterable[Frame]) -> str:
    """Writes the file as a whole or not at all; its SHA-256 over the content. A file that is there is replaced.

    Raises StateError where it cannot be written, and what `frames` raises.
    """
    beside = path.with_name(path.name + ".part")
    digest, count = hashlib.sha256(), 0
    try:
        with beside.open("wb") as raw:
            raw.write(_MAGIC + b"%d\n" % FORMAT)
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
                for frame in frames:
                    encoded = _framed(frame)
                    digest.update(encoded)
                    packed.write(encoded)
                    count += 1
                packed.write(_framed(EndFrame(count, digest.hexdigest())))
            raw.flush()
            os.fsync(raw.fileno())
        beside.replace(path)
    except OSError as error:
        raise StateError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
    return digest.hexdigest()


def read_dump(path: Path) -> Iterator[Frame]:
    """The frames, one after the other; that they are whole is only known at the end, so go through all of them before
    anything is done with the first.

    Raises StateError where the file cannot be read, is of another format, is damaged, or ends early.
    """
    try:
        with path.open("rb") as raw:
            _check_format(path, raw.readline(100))
            with gzip.GzipFile(fileobj=raw, mode="rb") as packed:
                yield from _frames(path, packed)
    except (OSError, EOFError, zlib.error) as error:
        raise StateError(f"{path}: cannot be read to its end, so nothing is made of it: {error}") from error


def _frames(path: Path, packed: gzip.GzipFile) -> Iterator[Frame]:
    digest, count, in_model = hashlib.sha256(), 0, False
    while True:
        head = packed.read(_LENGTH_BYTES)
        length = int.from_bytes(head, "big")
        if len(head) < _LENGTH_BYTES or length > _LARGEST_FRAME:
            raise _damaged(path, f"frame {count} has no length")
        body = packed.read(length)
        if len(body) < length:
            raise _damaged(path, f"frame {count} is cut off")
        try:
            frame = _ANY.decode(body)
        except msgspec.MsgspecError as error:
            raise _damaged(path, f"frame {count} cannot be read: {error}") from error
        if isinstance(frame, EndFrame):
            if (frame.frames, frame.sha256) != (count, digest.hexdigest()):
                raise _damaged(path, f"the content of {count} frames does not match its SHA-256 {frame.sha256}")
            if packed.read(1):
                raise _damaged(path, "there is something behind the end")
            return
        if not (in_model or isinstance(frame, ModelFrame)):
            raise _damaged(path, "content comes before the model key that it belongs to")
        in_model = True
        digest.update(head)
        digest.update(body)
        count += 1
        yield frame


def _framed(frame: Frame | EndFrame) -> bytes:
    body = msgspec.msgpack.encode(frame)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def _check_format(path: Path, line: bytes) -> None:
    number = line.removeprefix(_MAGIC).strip()
    if not line.startswith(_MAGIC) or not number.isdigit():
        raise StateError(f"{path}: not written by `stream-calib state export`")
    if int(number) != FORMAT:
        raise StateError(
            f"{path}: is of format {int(number)}, this version reads format {FORMAT}: import it with the version that"
            " wrote it"
        )


def _damaged(path: Path, what: str) -> StateError:
    return StateError(f"{path}: {what}: the file is damaged, and nothing was made of it; take another one")
