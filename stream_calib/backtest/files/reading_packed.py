"""Files of lines, packed or not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import IO, Any

import zstandard

UNPACK: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda raw: io.BufferedReader(_Zstandard(raw)),
}
"""Suffix of a packed file -> what reads it."""
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
"""What reading a packed file raises where it is damaged or cut off."""

_ZSTANDARD_STEP = 4_096
"""Bytes; some of them may unpack to ten thousand times as many."""


def lines(content: IO[bytes], max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Number from 1 and content, without blanks around it, of each line that is not blank; of one longer than
    `max_bytes` the beginning, a byte longer than that. A byte order mark is left out."""
    line, step = 0, max_bytes + 2  # a line that is not too long, with its end
    while part := content.readline(step):
        line += 1
        value = (part.removeprefix(BOM_UTF8) if line == 1 else part).strip()
        if len(part) == step and not part.endswith(b"\n"):
            value = part[: max_bytes + 1]
            while len(part) == step and not part.endswith(b"\n"):
                part = content.readline(step)
        if value:
            yield line, value


class _Zstandard(io.RawIOBase):
    """What is packed in frames of Zstandard. The library's own reader takes a file that was cut off for one that has
    ended."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._left = packed, memoryview(b"")
        self._frame: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises EOFError where the file ends within a frame."""
        while not self._left and (found := self._packed.read(_ZSTANDARD_STEP)):
            parts = []
            while found:
                if self._frame is None:
                    self._frame = zstandard.ZstdDecompressor().decompressobj()
                parts.append(self._frame.decompress(found))
                found = b""
                if self._frame.eof:
                    found, self._frame = self._frame.unused_data, None
            self._left = memoryview(b"".join(parts))
        if not self._left and self._frame is not None:
            raise EOFError("the file ends within a frame of Zstandard")
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size
