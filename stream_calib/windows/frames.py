"""Frames of a file: four bytes of length (big endian) and a msgpack array of that many bytes. The last one is the
SHA-256 of all bytes of those before it. Nothing in them is executed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

_LENGTH_BYTES = 4
_LARGEST_FRAME = 600_000_000
"""A damaged length must not ask for all memory."""

T = TypeVar("T", bound=msgspec.Struct)


class EndFrame(msgspec.Struct, frozen=True, array_like=True, tag="end", forbid_unknown_fields=True):
    """The last one."""

    frames: int
    sha256: str


def write_frames(write: Callable[[bytes], object], frames: Iterable[msgspec.Struct]) -> str:
    """Writes the frames and their end; the SHA-256 of the content."""
    digest, count = hashlib.sha256(), 0
    for frame in frames:
        encoded = _framed(frame)
        digest.update(encoded)
        write(encoded)
        count += 1
    write(_framed(EndFrame(count, digest.hexdigest())))
    return digest.hexdigest()


def read_frames(
    read: Callable[[int], bytes], decode: Callable[[bytes], T | EndFrame], damaged: Callable[[str], Exception]
) -> Iterator[T]:
    """The frames, one after the other; that they are whole is only known at the end.

    `decode` raises msgspec.MsgspecError where bytes are no frame. Raises what `damaged` makes of what is wrong.
    """
    digest, count = hashlib.sha256(), 0
    while True:
        head = read(_LENGTH_BYTES)
        length = int.from_bytes(head, "big")
        if len(head) < _LENGTH_BYTES or length > _LARGEST_FRAME:
            raise damaged(f"frame {count} has no length")
        body = read(length)
        if len(body) < length:
            raise damaged(f"frame {count} is cut off")
        try:
            frame = decode(body)
        except msgspec.MsgspecError as error:
            raise damaged(f"frame {count} cannot be read: {error}") from error
        if isinstance(frame, EndFrame):
            if (frame.frames, frame.sha256) != (count, digest.hexdigest()):
                raise damaged(f"the content of {count} frames does not match its SHA-256 {frame.sha256}")
            if read(1):
                raise damaged("there is something behind the end")
            return
        digest.update(head)
        digest.update(body)
        count += 1
        yield frame


def _framed(frame: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(frame)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body
