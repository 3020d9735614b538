"""Which files are meant: names, wildcards, the standard input."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stream_calib.backtest.files.reading_packed import UNPACK
from stream_calib.backtest.tables.duckdb_files import KIND_OF_SUFFIX, FileKind, matching_files
from stream_calib.errors import HistoryError

STANDARD_INPUT = "-"
_COPIED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file to read."""

    path: Path
    """Where its bytes are."""
    name: str
    """In words for people."""
    kind: FileKind
    packing: str
    """Suffix of the packing; "" where it is not packed."""


def data_files(paths: Sequence[Path], spooled: list[IO[bytes]]) -> list[DataFile]:
    """The files of the paths, which may have wildcards, in order; `-` is NDJSON or CSV from the standard input, which
    is copied to a temporary file, put into `spooled`. Raises HistoryError where there is none, or of no kind that is
    read here."""
    found = []
    for path in paths:
        if str(path) == STANDARD_INPUT:
            found.append(_standard_input(spooled))
            continue
        for file in matching_files(str(path)):
            found.append(_data_file(Path(file)))
    return found


def _data_file(path: Path) -> DataFile:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in UNPACK else ""
    kind = KIND_OF_SUFFIX.get(suffixes[-1] if suffixes else "")
    if kind is None or (kind == "parquet" and packing):
        raise HistoryError(
            f"{path}: of no kind that is read here; name it .parquet, or .csv, .ndjson, .jsonl or .json (an object a"
            f" line), these also packed {', '.join(UNPACK)}, or convert it"
        )
    return DataFile(path, str(path), kind, packing)


def _standard_input(spooled: list[IO[bytes]]) -> DataFile:
    copy = tempfile.NamedTemporaryFile(prefix="stream-calib-", suffix=".csv")  # noqa: SIM115  # closed with the feed
    spooled.append(copy)
    while part := sys.stdin.buffer.read(_COPIED_BYTES):
        copy.write(part)
    copy.seek(0)
    begin = copy.read(1_000).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not begin:
        raise HistoryError("standard input: is empty; pipe NDJSON, or CSV with a header line, into it")
    copy.flush()
    return DataFile(Path(copy.name), "standard input", "ndjson" if begin[:1] == b"{" else "csv", "")
