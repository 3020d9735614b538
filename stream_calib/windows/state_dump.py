"""The file that `state export` writes: whole states of model keys, portable between servers and their versions.

A first line names the format and its number; behind it, compressed by gzip, come frames (frames.py). For each model
key a `model` frame, then its content in any order. Nothing in it is executed, and nothing is of Redis's own formats.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from stream_calib.errors import StateError
from stream_calib.windows.frames import EndFrame, read_frames, write_frames

FORMAT = 1
_MAGIC = b"stream-calib state "


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


Content: TypeAlias = HashFrame | ListFrame | SetFrame | StringFrame
Frame: TypeAlias = ModelFrame | Content
_ANY = msgspec.msgpack.Decoder(ModelFrame | HashFrame | ListFrame | SetFrame | StringFrame | EndFrame)


def write_dump(path: Path, frames: Iterable[Frame]) -> str:
    """Writes the file as a whole or not at all; its SHA-256 over the content. A file that is there is replaced.

    Raises StateError where it cannot be written, and what `frames` raises.
    """
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as raw:
            raw.write(_MAGIC + b"%d\n" % FORMAT)
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
                digest = write_frames(packed.write, frames)
            raw.flush()
            os.fsync(raw.fileno())
        beside.replace(path)
    except OSError as error:
        raise StateError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
    return digest


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
    in_model = False
    for frame in read_frames(packed.read, _ANY.decode, lambda what: _damaged(path, what)):
        if not (in_model or isinstance(frame, ModelFrame)):
            raise _damaged(path, "content comes before the model key that it belongs to")
        in_model = True
        yield frame


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
