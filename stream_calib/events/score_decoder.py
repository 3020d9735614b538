"""Score events: records of the users' own schema to one batch of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.events.attributes import SignatureReader
from stream_calib.events.columns import Failures, column
from stream_calib.events.contracts import Decoded, ModelKey, Reject, RejectReason, ScoreBatch
from stream_calib.events.event_ids import canonical_id, read_ids
from stream_calib.events.event_times import append_times, read_times
from stream_calib.events.identity import fingerprints, unit_buckets
from stream_calib.events.json_decoding import JsonDecoder, JsonObject
from stream_calib.events.keep_rates import read_keep_rates, with_keep_rates
from stream_calib.events.model_scores import read_model_scores
from stream_calib.events.outputs import OUTPUT_FIELD
from stream_calib.events.record_intake import take_in
from stream_calib.transport.port import Record


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
    """Reads score records as configured by ``[model]``, ``[[models]]``, ``[scores]`` and ``[records]``. Not
    thread-safe."""

    def __init__(self, config: Config, admit: Callable[[ModelKey], bool] = lambda key: True) -> None:
        """`admit`: whether the deployment may have this model key; asked for each distinct one of a batch."""
        self._scores = config.scores
        self._models = config.score_models()
        self._admit = admit
        self._max_keys = config.model.max_keys
        self._json = JsonDecoder(config.records.max_record_bytes, config.records.max_depth)
        self._signatures = SignatureReader(config.scores.attributes, config.scores.max_value_bytes)
        self._refuse_output_field = config.serving.output == "enrich"
        self.oddities = Oddities(dropped_attributes=self._signatures.dropped)

    def decode(self, records: Sequence[Record]) -> Decoded:
        """Columns of the good scores, and the rest by what it is. Bad input never raises.

        A record with several faults is rejected for the first of: JSON, field taken, id, model, score, time, keep rate.
        Where a record holds scores of several models it is rejected only if none of them is good.
        """
        settings = self._scores
        intake = take_in(records, self._json)
        objects = intake.objects
        taken = self._output_field_taken(objects)
        ids, bad_ids = read_ids(column(objects, settings.id), settings.id)
        if settings.time.path is None:
            times, bad_times = append_times([records[i] for i in intake.record_index])
        else:
            times, bad_times = read_times(column(objects, settings.time.path), settings.time.unit, settings.time.path)
        bad_rates: Failures = {}
        if settings.keep_rate is not None:
            rates, bad_rates = read_keep_rates(column(objects, settings.keep_rate), settings.keep_rate)
        scores = read_model_scores(self._models, objects)
        scores.admit(self._admit, self._max_keys, besides={**bad_rates, **bad_times, **bad_ids, **taken})
        record_index = np.array(intake.record_index, dtype=np.intp)

        failures: Failures = {**bad_rates, **bad_times, **scores.failed_records(), **bad_ids, **taken}
        event = np.arange(len(objects))
        if failures:
            intake.rejects.extend(Reject(intake.record_index[i], *why) for i, why in failures.items())
            event = np.delete(event, list(failures))
            ids = [ids[i] for i in event]
        kept = objects if len(event) == len(objects) else [objects[i] for i in event]
        # Each row is a score: of which of the kept events, and of which model.
        row, model = np.nonzero(scores.good[event])
        source = event[row]
        self.oddities.clamped_scores += int(np.count_nonzero(scores.clamped[source, model]))
        keys, key_index = scores.keys_of(source, model)
        fingerprint = fingerprints(ids)
        signature_index, signatures = self._signatures.read(kept)
        if settings.keep_rate is not None:
            signature_index, signatures = with_keep_rates(signature_index, signatures, rates[event])
        units = fingerprint if settings.unit is None else self._unit_fingerprints(kept, ids, settings.unit)
        batch = ScoreBatch(
            record_index=record_index[source],
            keys=keys,
            key_index=key_index,
            event_id=[ids[i] for i in row.tolist()] if len(row) != len(ids) else ids,
            fingerprint=fingerprint[row],
            event_time_ms=times[source],
            score=scores.score[source, model],
            signature_index=signature_index[row],
            signatures=signatures,
            unit_bucket=unit_buckets(units)[row],
            refused=scores.refused(event, objects, intake.record_index),
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
