"""What a backtest writes: the report, the result for programs, tables as Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stream_calib.backtest.document import BacktestDocument
from stream_calib.backtest.report.page import render_report
from stream_calib.errors import BacktestError


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where to; None: not asked for."""

    html: Path | None
    json: Path | None
    parquet: Path | None

    def paths(self) -> tuple[Path | None, ...]:
        """All of them."""
        return self.html, self.json, self.parquet

    def check(self) -> None:
        """Before hours are spent: raises BacktestError where a folder is not there, or Parquet cannot be written."""
        for path in (self.html, self.json):
            if path is not None and (path.is_dir() or not path.parent.is_dir()):
                what = "is a folder" if path.is_dir() else f"the folder {path.parent} is not there"
                raise BacktestError(f"{path}: {what}; name a file in a folder that is there")
        if self.html is not None and self.html == self.json:
            raise BacktestError(f"{self.html}: is named for --html and --json; give each a file of its own")
        if self.parquet is not None:
            if self.parquet.exists() and not self.parquet.is_dir():
                raise BacktestError(
                    f"--parquet {self.parquet}: is a file; name a folder, which is made where it is not there"
                )
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
    """Raises BacktestError where it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BacktestError(f"{path}: cannot be written: {error.strerror}") from error
