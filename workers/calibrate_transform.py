"""What calibrate makes of one batch: outputs, blocks, dead letters. No log and no state here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.events.block_runs import run_starts
from stream_calib.events.blocks import blocks_of
from stream_calib.events.contracts import Decoded, ModelKey, ScoreBatch
from stream_calib.events.control import clock_record
from stream_calib.events.dead_letters import dead_letters
from stream_calib.events.fused_scores import FusedScores, with_fused
from stream_calib.events.identity import sampled
from stream_calib.events.output_members import ServedAs
from stream_calib.events.outputs import Headers, OutputEncoder
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.port import Outgoing, Record

_PARTITION = attrgetter("source.partition")


class Calibrated(NamedTuple):
    """What is served for a batch."""

    scores: ScoreBatch
    """n scores: those of the records, and the fused ones."""
    probability: NDArray[np.float64]
    """(n,) in [0, 1]."""
    served: list[ServedAs]
    """For each of the model keys of `scores`."""
    counted: NDArray[np.bool_]
    """(n,) whether the row goes on to the monitor: its event id is in the sample, and of fused ones see FusedRows."""


class Transform:
    """The stages of a batch, in their order: `decode`, `calibrate`, `encode`. Pure but for the decoder's counters."""

    def __init__(self, config: Config, admit: Callable[[ModelKey], bool] = lambda key: True) -> None:
        """`admit`: whether the deployment may have a model key that a record names."""
        self._topics, self._windows = config.topics, config.windows
        self._passthrough = config.records.on_reject == "passthrough"
        self._max_dead_letter_bytes = config.records.max_dead_letter_bytes
        self._sample_rate = config.scores.sample_rate
        self._decoder = ScoreDecoder(config, admit)
        self._encoder = OutputEncoder(config)
        fusion = config.fused()
        self._fusion = None if fusion is None else FusedScores(fusion)

    def oddities(self) -> dict[str, int]:
        """Kind -> how often, since this was made: what was accepted although something was wrong with it."""
        found = self._decoder.oddities
        dropped = sum(found.dropped_attributes.values())
        return {
            "score_clamped": found.clamped_scores,
            "unit_replaced": found.units_replaced,
            "attribute_dropped": dropped,
        }

    def decode(self, records: Sequence[Record]) -> tuple[Decoded, ScoreBatch]:
        """The records by what they are, and the scores among them."""
        decoded = self._decoder.decode(records)
        assert decoded.scores is not None
        return decoded, decoded.scores

    def calibrate(self, batch: ScoreBatch, serving: Callable[[ModelKey], Serving]) -> Calibrated:
        """All scores of one model key by one snapshot, which `serving` gives; by the raw score where it gives none.
        Then likewise what is fused of them."""
        of_records = _by_snapshots(batch, serving, sampled(batch.fingerprint, self._sample_rate))
        if self._fusion is None or not len(batch.score):
            return of_records
        fused = self._fusion.of(batch, of_records.probability, of_records.served)
        if not len(fused.batch.score):
            return of_records
        of_fused = _by_snapshots(fused.batch, serving, sampled(fused.batch.fingerprint, self._sample_rate))
        scores, order = with_fused(batch, fused.batch)
        probability = np.concatenate([of_records.probability, of_fused.probability])[order]
        counted = np.concatenate([of_records.counted, of_fused.counted & fused.counted])[order]
        return Calibrated(scores, probability, of_records.served + of_fused.served, counted)

    def encode(self, records: Sequence[Record], decoded: Decoded, calibrated: Calibrated) -> list[Outgoing]:
        """Everything that the batch writes, in an order that keeps each partition's."""
        batch, counted = calibrated.scores, calibrated.counted
        outputs = self._encoder.encode(records, batch, calibrated.probability, calibrated.served)
        if decoded.rejects:
            if self._passthrough:
                outputs += self._encoder.passthrough(records, decoded.rejects)
            outputs += dead_letters(self._topics.dead_letters, records, decoded.rejects, self._max_dead_letter_bytes)
        topic = self._topics.blocks
        for partition, rows, clock in _segments(records, decoded, batch):
            for run in self._runs(records, batch, rows[counted[rows]]):
                for key_rows, key, how in _by_key(batch, run, calibrated.served):
                    for block in blocks_of(batch, key_rows, key, how.snapshot, calibrated.probability):
                        outputs.append(Outgoing(topic, None, block, (), partition))
            if clock is not None:
                value, headers = clock
                outputs.append(Outgoing(topic, None, value, headers, partition))
        return outputs

    def _runs(self, records: Sequence[Record], batch: ScoreBatch, rows: NDArray[np.intp]) -> Sequence[NDArray[np.intp]]:
        """These rows of one partition, cut where rows of several keys must not change places."""
        if len(batch.keys) == 1 or not len(rows):
            return [rows]
        time_ms, windows = batch.event_time_ms[rows], self._windows
        moves = np.ones(len(rows), dtype=bool)
        if windows.max_clock_skew_ms is not None:
            taken_ms = np.array([records[i].append_time_ms for i in batch.record_index[rows].tolist()], dtype=np.int64)
            moves = time_ms <= taken_ms + windows.max_clock_skew_ms
        return np.split(rows, run_starts(time_ms, moves, windows.score_lateness_ms)[1:])


def _by_snapshots(batch: ScoreBatch, serving: Callable[[ModelKey], Serving], counted: NDArray[np.bool_]) -> Calibrated:
    probability = batch.score.copy()
    served = []
    for key, rows in zip(batch.keys, batch.rows_by_key(), strict=True):
        held, status = serving(key)
        if held is not None:
            probability[rows] = held.apply(
                batch.score[rows], batch.signature_index[rows], batch.signatures, batch.event_time_ms[rows]
            )
        served.append(ServedAs(held.version if held else "", status))
    return Calibrated(batch, probability, served, counted)


def _segments(
    records: Sequence[Record], decoded: Decoded, batch: ScoreBatch
) -> Iterator[tuple[int, NDArray[np.intp], tuple[bytes, Headers] | None]]:
    """(partition, rows of the batch up to a clock record or the partition's end, that clock record), in order."""
    partition_of = np.fromiter(map(_PARTITION, records), dtype=np.intp, count=len(records))
    row_partition = partition_of[batch.record_index]
    for partition in np.unique(partition_of).tolist():
        rows = np.flatnonzero(row_partition == partition)
        done = 0
        for clock in decoded.clocks:
            if partition_of[clock.record_index] == partition:
                stop = int(np.searchsorted(batch.record_index[rows], clock.record_index))
                yield partition, rows[done:stop], clock_record(clock.clock_ms, end=clock.end)
                done = stop
        yield partition, rows[done:], None


def _by_key(
    batch: ScoreBatch, rows: NDArray[np.intp], served: Sequence[ServedAs]
) -> Iterator[tuple[NDArray[np.intp], ModelKey, ServedAs]]:
    """The rows of each model key among these, in order."""
    if len(batch.keys) == 1:
        yield rows, batch.keys[0], served[0]
        return
    key_of = batch.key_index[rows]
    for i in np.unique(key_of).tolist():
        yield rows[key_of == i], batch.keys[i], served[i]
