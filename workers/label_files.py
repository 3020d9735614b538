"""Files of labels as record values: NDJSON line by line, CSV row by row, packed or not, and Parquet."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import zstandard

from stream_calib.config_records import LabelsSection
from stream_calib.errors import ConfigurationError
from workers.parquet_labels import parquet_rows

_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda raw: io.BufferedReader(_Zstandard(raw)),
}
_ZSTANDARD_STEP = 4_096
"""Bytes; some of them may unpack to ten thousand times as many."""
_LINES, _TABLE, _PARQUET = (".ndjson", ".jsonl", ".json"), ".csv", ".parquet"
_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, csv.Error, UnicodeDecodeError)
_JSON_SCALAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")


class LabelRow(NamedTuple):
    """One row of a file."""

    file: int
    """Index of the file."""
    line: int
    """Line from 1, of a CSV row its last one; of Parquet the row from 1."""
    value: bytes
    """The value of its record."""


class LabelFiles:
    """Reads the files one after the other. `bytes_read` counts bytes of the files as they are on disk."""

    def __init__(self, paths: Sequence[Path], labels: LabelsSection) -> None:
        """Raises ConfigurationError where a file is not there, or of no kind that is read here."""
        self.paths, self._labels = paths, labels
        self.bytes_read = 0
        for path in paths:
            _kind(path)
        try:
            self.total_bytes = sum(path.stat().st_size for path in paths)
        except OSError as error:
            raise ConfigurationError(f"{error.filename}: cannot be read: {error.strerror}") from error

    def rows(self, max_bytes: int) -> Iterator[LabelRow]:
        """Blank lines are skipped; of a line longer than `max_bytes` comes the beginning, a byte longer than that.
        Raises ConfigurationError where a file cannot be read on."""
        for index, path in enumerate(self.paths):
            before, line = self.bytes_read, 0
            packing, kind = _kind(path)
            if kind == _PARQUET:
                size = path.stat().st_size
                for line, share, value in parquet_rows(path, self._labels):
                    self.bytes_read = before + round(share * size)
                    yield LabelRow(index, line, value)
                continue
            try:
                with path.open("rb") as raw:
                    content: Any = _OPENERS[packing](raw) if packing else raw
                    read = self._table(path, content) if kind == _TABLE else _lines(content, max_bytes)
                    for line, value in read:
                        self.bytes_read = before + raw.tell()
                        yield LabelRow(index, line, value)
            except _UNREADABLE as error:
                raise ConfigurationError(f"{path}: cannot be read on after line {line}: {error}") from error

    def _table(self, path: Path, content: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        rows = csv.reader(io.TextIOWrapper(content, encoding="utf-8-sig", newline=""), strict=True)
        names = next(rows, [])
        labels, time = self._labels, self._labels.time
        for wanted in (labels.id, labels.label, *([time.path] if time.path else [])):
            if names.count(wanted) != 1:
                raise ConfigurationError(
                    f"{path}: its header line has {'several columns' if wanted in names else 'no column'} {wanted!r};"
                    " the columns are named as the paths of [labels]"
                )
        # Other columns are text. These have a type in JSON, which a cell has not.
        typed = {names.index(labels.label)}
        if time.path is not None and time.unit != "iso8601":
            typed.add(names.index(time.path))
        for cells in rows:
            if not cells:
                continue
            if len(cells) != len(names):
                raise ConfigurationError(
                    f"{path}, line {rows.line_num}: {len(cells)} cells under {len(names)} columns; quote cells that"
                    " hold commas or line ends"
                )
            filled = [i for i, cell in enumerate(cells) if cell]
            value = {names[i]: _typed(cells[i]) if i in typed else cells[i] for i in filled}
            yield rows.line_num, json.dumps(value, separators=(",", ":")).encode()


def _lines(content: IO[bytes], max_bytes: int) -> Iterator[tuple[int, bytes]]:
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


def _typed(cell: str) -> Any:
    """A cell that is a JSON number, true, false or null as that; another one stays text, for the decoder to judge, and
    so does a number of more digits than Python reads."""
    try:
        return json.loads(cell) if _JSON_SCALAR.fullmatch(cell) else cell
    except ValueError:
        return cell


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


def _kind(path: Path) -> tuple[str, str]:
    """How the file is packed ("": not), and what it is. Raises ConfigurationError where it is of no kind read here."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in _OPENERS else ""
    kind = suffixes[-1] if suffixes else ""
    if kind not in (*_LINES, _TABLE) and (kind, packing) != (_PARQUET, ""):
        raise ConfigurationError(
            f"{path}: of no kind that is read here; name it .ndjson, .jsonl, .json (an object a line) or .csv, packed"
            f" {', '.join(_OPENERS)}, or .parquet, not packed, or convert it"
        )
    return packing, kind
