"""Score events: records of the users' own schema to one batch of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.config import Config
from stream_calib.events.attributes import SignatureReader
from stream_calib.events.columns import ABSENT, Failures, column, number_column
from stream_calib.events.contracts import Decoded, Reject, RejectReason, ScoreBatch
from stream_calib.events.event_ids import canonical_id, read_ids
from stream_calib.events.event_times import append_times, read_times
from stream_calib.events.identity import fingerprints, unit_buckets
from stream_calib.events.json_decoding import JsonDecoder, JsonObject
from stream_calib.events.messages import shown
from stream_calib.events.outputs import OUTPUT_FIELD
from stream_calib.events.record_intake import take_in
from stream_calib.transport.port import Record

ScoreScale = Literal["probability", "logit", "percent"]

SCORE_TOLERANCE = 1e-6
"""A score outside [0, 1] by no more than this is set to the bound and counted."""


@dataclass(slots=True)
class Oddities:
    """What was accepted although something was wrong with it; counts since the decoder was made."""

    clamped_scores: int = 0
    """Scores a hair outside [0, 1]."""
    units_replaced: int = 0
    """Scores whose configured unit was missing or unusable: the event id stands in."""
    dropped_attributes: dict[str, int] = field(default_factory=dict)
    """Attribute name -> values that were nested, over-long or not text, and became ``__missing__``."""


class ScoreDecoder:
    """Reads score records as configured by ``[scores]`` and ``[records]``. Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self._scores = config.scores
        self._json = JsonDecoder(config.records.max_record_bytes, config.records.max_depth)
        self._signatures = SignatureReader(config.scores.attributes, config.scores.max_value_bytes)
        self._refuse_output_field = config.serving.output == "enrich"
        self.oddities = Oddities(dropped_attributes=self._signatures.dropped)

    def decode(self, records: Sequence[Record]) -> Decoded:
        """Columns of the good records, and the rest by what they are. Bad input never raises.

        A record with several faults is rejected for the first of: JSON, field taken, id, score, time.
        """
        settings = self._scores
        intake = take_in(records, self._json)
        objects = intake.objects
        taken = self._output_field_taken(objects)
        ids, bad_ids = read_ids(column(objects, settings.id), settings.id)
        scores, clamped, bad_scores = read_scores(column(objects, settings.score), settings.scale, settings.score)
        if settings.time.path is None:
            times, bad_times = append_times([records[i] for i in intake.record_index])
        else:
            times, bad_times = read_times(column(objects, settings.time.path), settings.time.unit, settings.time.path)
        record_index = np.array(intake.record_index, dtype=np.intp)

        failures: Failures = {**bad_times, **bad_scores, **bad_ids, **taken}
        if failures:
            intake.rejects.extend(Reject(intake.record_index[i], *why) for i, why in failures.items())
            kept = np.delete(np.arange(len(objects)), list(failures))
            objects = [objects[i] for i in kept]
            ids = [ids[i] for i in kept]
            record_index, scores, clamped, times = record_index[kept], scores[kept], clamped[kept], times[kept]

        self.oddities.clamped_scores += int(np.count_nonzero(clamped))
        fingerprint = fingerprints(ids)
        signature_index, signatures = self._signatures.read(objects)
        units = fingerprint if settings.unit is None else self._unit_fingerprints(objects, ids, settings.unit)
        batch = ScoreBatch(
            record_index=record_index,
            event_id=ids,
            fingerprint=fingerprint,
            event_time_ms=times,
            score=scores,
            signature_index=signature_index,
            signatures=signatures,
            unit_bucket=unit_buckets(units),
        )
        rejects = sorted(intake.rejects, key=lambda reject: reject.record_index)
        return Decoded(scores=batch, labels=None, rejects=rejects, clocks=intake.clocks, tombstones=intake.tombstones)

    def _output_field_taken(self, objects: Sequence[JsonObject]) -> Failures:
        if not self._refuse_output_field:
            return {}
        why = f'the record has a field {OUTPUT_FIELD} of its own, which output = "enrich" would have to overwrite'
        return {i: (RejectReason.OUTPUT_FIELD_TAKEN, why) for i, o in enumerate(objects) if OUTPUT_FIELD in o}

    def _unit_fingerprints(self, objects: Sequence[JsonObject], ids: list[str], path: str) -> NDArray[np.uint64]:
        units = [canonical_id(value) for value in column(objects, path)]
        self.oddities.units_replaced += units.count(None)
        return fingerprints([event_id if unit is None else unit for unit, event_id in zip(units, ids, strict=True)])


def read_scores(
    values: Sequence[Any], scale: ScoreScale, path: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_], Failures]:
    """Scores in [0, 1] (n,) float64 and never -0.0, which of them (n,) bool were set to a bound, and what is refused.

    ``logit`` scores go through 1 / (1 + exp(-x)), ``percent`` ones through x / 100, each by itself, whatever else is in
    the batch. Only JSON numbers are scores, and only within the range of float64.
    """
    numbers, bad = number_column(values)
    beyond = np.isinf(numbers)  # an integer beyond float64, which no logit may be
    if scale == "logit":
        numbers = expit(numbers)
    elif scale == "percent":
        numbers = numbers / 100
    inside = np.clip(numbers, 0.0, 1.0) + 0.0  # -0.0 + 0.0 is 0.0
    distance = np.abs(numbers - inside)
    failures: Failures = {i: _refusal(values[i], path) for i in bad}
    for i in np.flatnonzero((distance > SCORE_TOLERANCE) | beyond).tolist():
        failures[i] = (
            RejectReason.SCORE_OUT_OF_RANGE,
            f"{path} is {shown(values[i])}, outside the range of scores.scale = {scale}",
        )
    return inside, distance > 0, failures


def _refusal(value: Any, path: str) -> tuple[RejectReason, str]:
    if value is ABSENT:
        return RejectReason.SCORE_MISSING, f"{path} is missing; every score record needs a score"
    return RejectReason.SCORE_INVALID, f"{path} is {shown(value)}; a score is a JSON number"
