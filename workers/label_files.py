"""Files of labels as record values: NDJSON line by line, CSV row by row, packed or not, and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from stream_calib.backtest.files.reading_packed import UNPACK, UNREADABLE, lines
from stream_calib.backtest.files.reading_values import typed_cell
from stream_calib.config_records import LabelsSection
from stream_calib.errors import ConfigurationError
from workers.parquet_labels import parquet_rows

_LINES, _TABLE, _PARQUET = (".ndjson", ".jsonl", ".json"), ".csv", ".parquet"
_UNREADABLE = (*UNREADABLE, csv.Error, UnicodeDecodeError)


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
                    content: Any = UNPACK[packing](raw) if packing else raw
                    read = self._table(path, content) if kind == _TABLE else lines(content, max_bytes)
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
            value = {names[i]: typed_cell(cells[i]) if i in typed else cells[i] for i in filled}
            yield rows.line_num, json.dumps(value, separators=(",", ":")).encode()


def _kind(path: Path) -> tuple[str, str]:
    """How the file is packed ("": not), and what it is. Raises ConfigurationError where it is of no kind read here."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in UNPACK else ""
    kind = suffixes[-1] if suffixes else ""
    if kind not in (*_LINES, _TABLE) and (kind, packing) != (_PARQUET, ""):
        raise ConfigurationError(
            f"{path}: of no kind that is read here; name it .ndjson, .jsonl, .json (an object a line) or .csv, packed"
            f" {', '.join(UNPACK)}, or .parquet, not packed, or convert it"
        )
    return packing, kind
