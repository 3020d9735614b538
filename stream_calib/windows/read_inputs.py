"""What the monitor reads: records of `blocks` and `labels` as rows for the join of each model key, and rejects.

A partition's clock belongs to the partition: what a block of one model key holds moves it for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import BlockFormatError
from stream_calib.events.blocks import BlockRows, unpack
from stream_calib.events.contracts import ClockRecord, ModelKey, Reject, RejectReason
from stream_calib.events.control import is_control, read_clock
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.label_models import EVERY_MODEL
from stream_calib.transport.port import OffsetRange, Record
from stream_calib.windows.input_batch import EMPTY_LABELS, Records
from stream_calib.windows.intake import concatenate_scores
from stream_calib.windows.join_entry import CODE_OF_LABEL
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import LabelRows, ScoreRows

Signatures = dict[int, tuple[str, ...]]
_CODE = np.array([CODE_OF_LABEL[-1], CODE_OF_LABEL[0], CODE_OF_LABEL[1]], dtype=np.uint8)


class ReadInput(Protocol):
    """The records of one partition, as each model key sees them."""

    rejects: list[Reject]
    rows: int
    """Of all model keys."""

    def of(self, key: ModelKey) -> Records:
        """The key's rows, and what moves the partition's clock beside them."""

    def signatures(self, key: ModelKey) -> Signatures:
        """The attribute values of the key's rows."""


class ReadBlocks(ReadInput):
    """Records of a partition of `blocks`."""

    def __init__(self, records: Sequence[Record], span: OffsetRange, max_clock_skew_ms: int | None) -> None:
        """`max_clock_skew_ms`: as for judging; rows beyond it move no clock."""
        self._records, self._span, self._max_clock_skew_ms = records, span, max_clock_skew_ms
        self.rejects = []
        self.rows = 0
        self._clocks: list[ClockRecord] = []
        self._blocks: dict[ModelKey, list[tuple[int, BlockRows]]] = defaultdict(list)
        for i, record in enumerate(records):
            self._read(i, record)

    def _read(self, i: int, record: Record) -> None:
        if is_control(record):
            clock = read_clock(record, i)
            if isinstance(clock, Reject):
                self.rejects.append(clock)
            else:
                self._clocks.append(clock)
            return
        try:
            block = unpack(record.value or b"")
        except BlockFormatError as error:
            self.rejects.append(Reject(i, RejectReason.BLOCK_DAMAGED, str(error)))
            return
        self._blocks[block.model_key].append((i, block))
        self.rows += len(block.fingerprint)

    @property
    def keys(self) -> list[ModelKey]:
        """Of the blocks, in the order of their first ones."""
        return list(self._blocks)

    def last_offset(self, key: ModelKey) -> int:
        """Of the key's blocks."""
        return self._records[self._blocks[key][-1][0]].offset

    def refuse(self, key: ModelKey, why: str) -> None:
        """Turns the key's blocks into rejects."""
        blocks = self._blocks.pop(key)
        self.rejects += [Reject(i, RejectReason.TOO_MANY_MODELS, why) for i, _ in blocks]
        self.rows -= sum(len(block.fingerprint) for _, block in blocks)

    def of(self, key: ModelKey) -> Records:
        own = self._blocks.get(key, [])
        rows = concatenate_scores([_score_rows(block) for _, block in own]) if own else EMPTY_ROWS
        row_record = [np.full(len(block.fingerprint), i, dtype=np.intp) for i, block in own]
        others = [
            self._clock(i, block) for other, blocks in self._blocks.items() if other != key for i, block in blocks
        ]
        clocks = sorted([*self._clocks, *(clock for clock in others if clock is not None)])
        index = np.concatenate([np.empty(0, dtype=np.intp), *row_record])
        return _as_records(self._records, self._span, rows, index, clocks)

    def _clock(self, i: int, block: BlockRows) -> ClockRecord | None:
        """The block as a clock record: its largest event time, of those that are not too far ahead."""
        time_ms = block.event_time_ms
        if self._max_clock_skew_ms is not None:
            time_ms = time_ms[time_ms <= self._records[i].append_time_ms + self._max_clock_skew_ms]
        return ClockRecord(i, int(time_ms.max()), False) if len(time_ms) else None

    def signatures(self, key: ModelKey) -> Signatures:
        found: Signatures = {}
        for _, block in self._blocks.get(key, []):
            found.update(zip(block.signature_hash.tolist(), block.signatures, strict=True))
        return found


class ReadLabels(ReadInput):
    """Records of a partition of `labels`: a model key gets those that name its model, or none."""

    def __init__(
        self, records: Sequence[Record], span: OffsetRange, decoder: LabelDecoder, settings: PaneSettings
    ) -> None:
        """`settings`: as for judging. They say which labels of other models move the clock, and where to."""
        decoded = decoder.decode(records)
        assert decoded.labels is not None
        batch = decoded.labels
        self.rejects = decoded.rejects
        self.rows = len(batch.label)
        rows = LabelRows(batch.fingerprint, batch.event_time_ms, _CODE[batch.label + 1]) if self.rows else EMPTY_LABELS
        self._all = _as_records(records, span, rows, batch.record_index, decoded.clocks)
        self._batch, self._settings = batch, settings
        self._of_model: dict[int, Records] = {}

    def of(self, key: ModelKey) -> Records:
        models = self._batch.models
        if not models:
            return self._all
        place = models.index(key.model) if key.model in models else len(models)
        if place not in self._of_model:
            self._of_model[place] = self._filtered(place)
        return self._of_model[place]

    def _filtered(self, place: int) -> Records:
        """Labels of other models are clock records for this one."""
        found, batch = self._all, self._batch
        own = (batch.model_index == EVERY_MODEL) | (batch.model_index == place)
        moves = ~own
        append_time_ms = found.append_time_ms[batch.record_index]
        by_broker, max_clock_skew_ms = self._settings.broker_clock, self._settings.clock_skew_ms("l")
        moves_to_ms = append_time_ms if by_broker else batch.event_time_ms
        if max_clock_skew_ms is not None and not by_broker:
            moves &= batch.event_time_ms <= append_time_ms + max_clock_skew_ms
        clock_record = np.concatenate([found.clock_record, batch.record_index[moves]])
        clock_time_ms = np.concatenate([found.clock_time_ms, moves_to_ms[moves]])
        order = np.argsort(clock_record, kind="stable")
        return replace(
            found,
            rows=found.rows.take(np.flatnonzero(own)),
            row_record=found.row_record[own],
            clock_record=clock_record[order],
            clock_time_ms=clock_time_ms[order],
        )

    def signatures(self, key: ModelKey) -> Signatures:
        return {}


def _score_rows(block: BlockRows) -> ScoreRows:
    return ScoreRows(
        block.fingerprint,
        block.event_time_ms,
        block.score,
        block.signature_hash[block.signature_index],
        block.unit_bucket,
        block.snapshot_index.astype(np.uint16),
        block.served,
        tuple(block.snapshots),
    )


def _as_records(
    records: Sequence[Record],
    span: OffsetRange,
    rows: ScoreRows | LabelRows,
    row_record: NDArray[np.intp],
    clocks: Sequence[ClockRecord],
) -> Records:
    return Records(
        start=span.start,
        end=span.end,
        position=np.array([record.offset for record in records], dtype=np.int64),
        append_time_ms=np.array([record.append_time_ms for record in records], dtype=np.int64),
        rows=rows,
        row_record=row_record,
        clock_record=np.array([clock.record_index for clock in clocks], dtype=np.intp),
        clock_time_ms=np.array([ENDED_CLOCK_MS if c.end else c.clock_ms for c in clocks], dtype=np.int64),
    )
