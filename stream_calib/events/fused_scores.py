"""The fused scores of a batch: rows of one more model key, made of the calibrated probabilities of its members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.fusion import FusionWeights, fuse
from stream_calib.config_fusion import Fusion
from stream_calib.events.contracts import ScoreBatch
from stream_calib.events.output_members import ServedAs


@dataclass(frozen=True, slots=True)
class FusedRows:
    """k fused scores."""

    batch: ScoreBatch
    """(k,) rows of the fused key, one for each record with a score of a member whose weight is above 0."""
    counted: NDArray[np.bool_]
    """(k,) whether each such score was calibrated by a snapshot of its own model key. The others are served and not
    counted: a map that was fitted on means of raw scores would be wrong for those of calibrated ones."""


class FusedScores:
    """Makes fused scores, by the rule of `calibration.fusion.fuse`: where a record has no good score of a member, the
    mean is that of the others."""

    def __init__(self, fusion: Fusion) -> None:
        self._key = fusion.key
        self._members = {name: place for place, name in enumerate(fusion.weights)}
        self._weights = FusionWeights.given(list(fusion.weights.values()))

    def of(self, batch: ScoreBatch, probability: NDArray[np.float64], served: Sequence[ServedAs]) -> FusedRows:
        """Of a batch (n,), what is served for its scores, and how for each of its keys."""
        record, first, place = np.unique(batch.record_index, return_index=True, return_inverse=True)
        members = np.array([self._members.get(key.model, -1) for key in batch.keys], dtype=np.intp)
        by_snapshot = np.array([how.status == "calibrated" for how in served], dtype=bool)
        member = members[batch.key_index]
        given = np.flatnonzero(member >= 0)
        probabilities = np.full((len(record), len(self._members)), np.nan)
        probabilities[place[given], member[given]] = probability[given]
        counts = np.array(self._weights.weights)[member] > 0
        counted = np.ones(len(record), dtype=bool)
        counted[place[(member >= 0) & counts & ~by_snapshot[batch.key_index]]] = False
        score = fuse(probabilities, self._weights)
        fused = np.flatnonzero(~np.isnan(score))
        row = first[fused]
        rows = ScoreBatch(
            record_index=record[fused],
            keys=[self._key],
            key_index=np.zeros(len(fused), dtype=np.intp),
            event_id=[batch.event_id[i] for i in row.tolist()],
            fingerprint=batch.fingerprint[row],
            event_time_ms=batch.event_time_ms[row],
            score=score[fused],
            signature_index=batch.signature_index[row],
            signatures=batch.signatures,
            unit_bucket=batch.unit_bucket[row],
            refused=[],
        )
        return FusedRows(rows, counted[fused])


def with_fused(batch: ScoreBatch, fused: ScoreBatch) -> tuple[ScoreBatch, NDArray[np.intp]]:
    """The rows of both, the fused one of a record behind its others; and the order (n + k,): place of each among the
    rows of the batch (n,) followed by the fused ones (k,)."""
    order = np.argsort(np.concatenate([batch.record_index, fused.record_index]), kind="stable")
    ids = batch.event_id + fused.event_id
    both = replace(
        batch,
        record_index=np.concatenate([batch.record_index, fused.record_index])[order],
        keys=batch.keys + fused.keys,
        key_index=np.concatenate([batch.key_index, fused.key_index + len(batch.keys)])[order],
        event_id=[ids[i] for i in order.tolist()],
        fingerprint=np.concatenate([batch.fingerprint, fused.fingerprint])[order],
        event_time_ms=np.concatenate([batch.event_time_ms, fused.event_time_ms])[order],
        score=np.concatenate([batch.score, fused.score])[order],
        signature_index=np.concatenate([batch.signature_index, fused.signature_index])[order],
        unit_bucket=np.concatenate([batch.unit_bucket, fused.unit_bucket])[order],
    )
    return both, order
