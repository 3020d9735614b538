"""What a backtest writes: the report, the result for programs, tables as Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stream_calib.backtest.document import BacktestDocument
from stream_calib.backtest.report.page import render_report
from stream_calib.errors import BacktestError
from workers.backtest_places import Place, check_places, make_folder


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where to; None: not asked for."""

    html: Path | None
    json: Path | None
    parquet: Path | None

    def places(self) -> list[Place]:
        """All of them."""
        files = ("--html", self.html), ("--json", self.json)
        found = [Place(option, path) for option, path in files if path is not None]
        return found if self.parquet is None else [*found, Place("--parquet", self.parquet, is_folder=True)]

    def check(self, *others: Place, inputs: Sequence[Path] = ()) -> None:
        """Before hours are spent: raises BacktestError where one of them, or of the others that are to be written
        beside them, cannot be written or is one of the files that are read, or Parquet cannot be written."""
        check_places([*self.places(), *others], inputs)
        if self.parquet is not None:
            try:
                import pyarrow  # noqa: F401  # only whether it is there
            except ImportError as error:
                raise BacktestError(
                    f"--parquet {self.parquet}: Parquet is written with pyarrow, which is not there ({error}):"
                    " `pip install stream-calib[files]`, or use --json"
                ) from error

    def write(self, document: BacktestDocument) -> None:
        """Raises BacktestError where a file cannot be written."""
        if self.html is not None:
            write_file(self.html, render_report(document).encode())
        self.write_json(document.encode())
        if self.parquet is not None:
            from stream_calib.backtest.report.export import export_parquet

            export_parquet(document, self.parquet)

    def write_json(self, encoded: bytes) -> None:
        """Where it was asked for. Raises BacktestError where it cannot be written."""
        if self.json is not None:
            write_file(self.json, encoded + b"\n")

    def written(self) -> Iterator[str]:
        """A line for each."""
        for what, path in (("report", self.html), ("result", self.json), ("tables", self.parquet)):
            if path is not None:
                yield f"{what}: {path}"


def write_file(path: Path, content: bytes) -> None:
    """Folders that are not there are made. Raises BacktestError where it cannot be written."""
    make_folder(Path(os.path.realpath(path)).parent)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BacktestError(f"{path}: cannot be written: {error.strerror}") from error
