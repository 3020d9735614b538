"""A feed of files: scores and labels as users have them, not as calibrate packs them.

What calibrate makes of a record is made here (fingerprint, unit bucket, signature), by the same rules; what it would
reject is rejected for the same reason, and counted. Files have no partitions: each side is one input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.feed import Feed, FeedBatch
from stream_calib.backtest.files.feed_input import FileInput
from stream_calib.backtest.files.feed_order import TimeOrder
from stream_calib.backtest.files.reading import SideFiles
from stream_calib.backtest.files.reading_labels import LabelReader
from stream_calib.backtest.files.reading_lines import LabelLines, ScoreLines
from stream_calib.backtest.files.reading_names import DataFile, data_files
from stream_calib.backtest.files.reading_rows import LABEL_ROW, SCORE_ROW, SideReport, Signatures
from stream_calib.backtest.files.reading_scores import ScoreReader
from stream_calib.backtest.tables.columns import LabelColumns, ScoreColumns
from stream_calib.backtest.tables.duckdb_files import connect
from stream_calib.config import Config
from stream_calib.errors import HistoryError
from stream_calib.events.blocks import served_fixed_point
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.shard_store import LabelRows, Mark, ScoreRows

_MOST_NAMED = 3
_EPOCH = date(1970, 1, 1)


class FileFeed(Feed):
    """Scores and labels of one model key from Parquet, CSV and NDJSON files (the latter two also packed; `-` is the
    standard input), which are read as ``[model]``, ``[scores]`` and ``[labels]`` say; paths are names of columns.

    Rows come in the order of their times, over all files of a side, whatever the order in the files is: so nothing is
    late. For that all files are read first, into temporary files of 30 bytes a score and 18 bytes a label.
    `as_written` keeps the order of the files, and what is too late in it is late.

    There is no log that took the records: nothing is skewed, and with `labels.clock = "broker"` a label was taken at
    its own time.
    """

    def __init__(
        self,
        scores: Sequence[Path],
        labels: Sequence[Path],
        config: Config,
        key: ModelKey,
        *,
        as_written: bool = False,
        threads: int | None = None,
        on_read: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Paths may have wildcards. `threads`: of the reader, None: all processors. `on_read` hears of the progress
        while rows are put in order, before the first batch.

        Raises HistoryError where a file is not there or of no kind that is read, the configuration takes the times of
        the log, or the key is a fused one, and where DuckDB is missing.
        """
        _check(config, key)
        self._settings, self._as_written, self._on_read = PaneSettings.of(config), as_written, on_read
        self._spooled: list[IO[bytes]] = []
        self._orders: list[TimeOrder] = []
        self._signatures = Signatures()
        score_files, label_files = data_files(scores, self._spooled), data_files(labels, self._spooled)
        if not score_files or not label_files:
            raise HistoryError("files of scores and files of labels are needed, at least one of each")
        open_engine, limit = partial(connect, threads), config.records.max_record_bytes
        self._score_reader = ScoreReader(config, key, self._signatures)
        self._score_lines = ScoreLines(config, key, self._signatures)
        self._scores = SideFiles(score_files, open_engine, self._score_reader, self._score_lines, limit)
        label_reader, label_lines = LabelReader(config, key), LabelLines(config, key)
        self._labels = SideFiles(label_files, open_engine, label_reader, label_lines, limit)
        self._score_key = f"s:{_identity(score_files)}:0"
        self._label_key = f"l:{_identity(label_files)}:0"
        self._given = 0

    @property
    def source(self) -> str:
        return f"scores of {_named(self._scores.files)}, labels of {_named(self._labels.files)}"

    @property
    def starts(self) -> Mapping[str, Mark]:
        return {self._score_key: Mark(0, None), self._label_key: Mark(0, None)}

    @property
    def rejects(self) -> Mapping[str, int]:
        return self._scores.report.rejected + self._labels.report.rejected

    @property
    def scores_report(self) -> SideReport:
        """What became of the rows of scores, so far."""
        report = self._scores.report
        report.odd = self._score_reader.odd + self._score_lines.odd
        report.not_sampled = self._score_reader.not_sampled + self._score_lines.not_sampled
        return report

    @property
    def labels_report(self) -> SideReport:
        """What became of the rows of labels, so far."""
        return self._labels.report

    def warnings(self) -> list[str]:
        """What people should know of the files, when all are read: what was refused, with examples, what was accepted
        although something was wrong with it, and days without any row."""
        return [*_warnings("scores", self.scores_report), *_warnings("labels", self.labels_report)]

    def batches(self) -> Iterator[FeedBatch]:
        """See Feed. At any time it is the side whose clock is behind that goes on, so neither is ahead by more than a
        batch."""
        self._scores.count()
        self._labels.count()
        if self._as_written:
            inputs = [
                FileInput(self._score_key, self._scores.rows(), SCORE_ROW, self._settings),
                FileInput(self._label_key, self._labels.rows(), LABEL_ROW, self._settings),
            ]
        else:
            inputs = [
                FileInput(self._score_key, self._in_order(self._scores, SCORE_ROW), SCORE_ROW, self._settings),
                FileInput(self._label_key, self._in_order(self._labels, LABEL_ROW), LABEL_ROW, self._settings),
            ]
            self._check_accepted()
        while inputs:
            behind = min(inputs, key=lambda one: one.clock_ms)
            rows, is_last = behind.take()
            self._given += len(rows)
            yield self._batch(behind, rows, is_last=is_last)
            if is_last:
                inputs.remove(behind)
        self._check_accepted()

    def progress(self) -> tuple[int, int]:
        """Rows read, and rows in all; while they are put in order, those of the files count half."""
        read = self._scores.report.read + self._labels.report.read
        total = max(read, self._scores.rows_in_all + self._labels.rows_in_all)
        if self._as_written:
            return read, total
        return (read + min(self._given, read)) // 2, total

    def close(self) -> None:
        for order in self._orders:
            order.close()
        for copy in self._spooled:
            copy.close()
        self._scores.close()
        self._labels.close()

    def _in_order(self, files: SideFiles, dtype: np.dtype[np.void]) -> Iterator[NDArray[np.void]]:
        order = TimeOrder(dtype)
        self._orders.append(order)
        try:
            for rows in files.rows():
                order.add(rows)
                self._on_read(*self.progress())
        except OSError as error:
            raise HistoryError(
                f"the rows cannot be put into order in a temporary file: {error}; give TMPDIR a folder with room"
            ) from error
        return order.pieces()

    def _check_accepted(self) -> None:
        """Raises HistoryError where nothing of a side can be used."""
        for what, files in (("score", self._scores), ("label", self._labels)):
            report = files.report
            if not report.accepted:
                reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.rejected.most_common())
                others = f", {report.other_models:,} of other models" if report.other_models else ""
                examples = "".join(f"\n  {example}" for example in report.examples)
                if not report.read:
                    raise HistoryError(f"{_named(files.files)}: no row; {what}s are needed")
                raise HistoryError(
                    f"{_named(files.files)}: of {report.read:,} rows none is a {what}"
                    f"{f': {reasons}' if reasons else ''}{others}; look at the paths and units of [{what}s]{examples}"
                )

    def _batch(self, one: FileInput, rows: NDArray[np.void], *, is_last: bool) -> FeedBatch:
        own = np.flatnonzero(rows["own"])
        kept = rows if len(own) == len(rows) else rows.take(own)
        time_ms, fingerprint = kept["time_ms"].copy(), kept["fingerprint"].copy()
        if one.key == self._label_key:
            labels = LabelRows(fingerprint, time_ms, kept["code"].copy())
            return FeedBatch(one.key, one.records(rows, labels, is_last=is_last), {})
        signature, values = self._signatures.hashes(kept["signature"].copy())
        score = kept["score"].copy()
        scores = ScoreRows(
            fingerprint,
            time_ms,
            score,
            signature,
            kept["unit_bucket"].copy(),
            np.zeros(len(kept), dtype=np.uint16),
            served_fixed_point(score),  # without a snapshot the raw score is served
            ("",),
        )
        return FeedBatch(one.key, one.records(rows, scores, is_last=is_last), values)


def _check(config: Config, key: ModelKey) -> None:
    """Raises HistoryError where scores of the key, or times, are not what tables can hold."""
    fused = config.fused()
    if fused is not None and fused.key == key:
        raise HistoryError(
            f"{key} is fused of calibrated scores, which files of raw scores do not have: replay the topic"
            f" {config.topics.blocks} in place of them"
        )
    ScoreColumns.of(config, key)
    LabelColumns.of(config)


def _identity(files: Sequence[DataFile]) -> str:
    """Of the files, in place of the id of a topic."""
    state = blake2b(digest_size=8)
    for file in files:
        state.update(f"{Path(file.name).name}\0{file.path.stat().st_size}\0".encode())
    return f"files-{state.hexdigest()}"


def _named(files: Sequence[DataFile]) -> str:
    names = [file.name for file in files[:_MOST_NAMED]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _warnings(what: str, report: SideReport) -> Iterator[str]:
    if report.rejected:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.rejected.most_common())
        examples = "".join(f"\n  {example}" for example in report.examples)
        yield f"{what}: {report.rejected.total():,} of {report.read:,} rows are left out: {reasons}{examples}"
    for kind, count in sorted(report.odd.items()):
        if count:
            yield f"{what}: {count:,} times {kind}"
    for first, last in report.missing_days():
        days = f"{_EPOCH + timedelta(first)}" + ("" if first == last else f" to {_EPOCH + timedelta(last)}")
        yield f"{what}: no row on {days}"
