"""Label events: records of the users' own schema to one batch of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.events.columns import ABSENT, Failures, column
from stream_calib.events.contracts import (
    TOMBSTONE_TIME_MS,
    WITHDRAWN,
    Decoded,
    LabelBatch,
    Reject,
    RejectReason,
)
from stream_calib.events.event_ids import MAX_ID_BYTES, canonical_id, read_ids
from stream_calib.events.event_times import append_times, read_times
from stream_calib.events.identity import fingerprints
from stream_calib.events.json_decoding import JsonDecoder
from stream_calib.events.label_models import EVERY_MODEL, read_named_models
from stream_calib.events.messages import shown
from stream_calib.events.record_intake import take_in
from stream_calib.transport.port import Record

LABEL_TABLE: dict[tuple[type, Any], int] = {
    (int, 0): 0,
    (int, 1): 1,
    (float, 0.0): 0,
    (float, 1.0): 1,
    (bool, False): 0,
    (bool, True): 1,
    (str, "0"): 0,
    (str, "1"): 1,
    (type(None), None): WITHDRAWN,
}
"""Every JSON value that is a label, by type and value, and what it says. All else is rejected."""


class LabelDecoder:
    """Reads label records as configured by ``[labels]`` and ``[records]``. Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self._labels = config.labels
        self._json = JsonDecoder(config.records.max_record_bytes, config.records.max_depth)

    def decode(self, records: Sequence[Record]) -> Decoded:
        """Columns of the good records, and the rest by what they are. Bad input never raises.

        A tombstone is a withdrawal at TOMBSTONE_TIME_MS of the id that its key spells. A record with several faults is
        rejected for the first of: JSON, id, model, label, time.
        """
        settings = self._labels
        intake = take_in(records, self._json)
        objects = intake.objects
        ids, bad_ids = read_ids(column(objects, settings.id), settings.id)
        labels, bad_labels = read_labels(column(objects, settings.label), settings.label)
        if settings.time.path is None:
            times, bad_times = append_times([records[i] for i in intake.record_index])
        else:
            times, bad_times = read_times(column(objects, settings.time.path), settings.time.unit, settings.time.path)
        granule = settings.time_granularity_ms
        times = times - times % granule + (granule - 1)
        named, bad_models = read_named_models(objects, settings.model)
        record_index = np.array(intake.record_index, dtype=np.intp)
        model_index = named.model_index

        failures: Failures = {**bad_times, **bad_labels, **bad_models, **bad_ids}
        if failures:
            intake.rejects.extend(Reject(intake.record_index[i], *why) for i, why in failures.items())
            kept = np.delete(np.arange(len(objects)), list(failures))
            ids = [ids[i] for i in kept]
            record_index, labels, times = record_index[kept], labels[kept], times[kept]
            model_index = model_index[kept]

        withdrawn = self._tombstones(records, intake.tombstones, intake.rejects)
        if withdrawn:
            ids = ids + list(withdrawn.values())
            record_index = np.append(record_index, np.array(list(withdrawn), dtype=np.intp))
            labels = np.append(labels, np.full(len(withdrawn), WITHDRAWN, dtype=np.int8))
            times = np.append(times, np.full(len(withdrawn), TOMBSTONE_TIME_MS, dtype=np.int64))
            model_index = np.append(model_index, np.full(len(withdrawn), EVERY_MODEL, dtype=np.intp))
        order = np.argsort(record_index, kind="stable")
        batch = LabelBatch(
            record_index[order],
            fingerprints(ids)[order],
            times[order],
            labels[order],
            model_index[order],
            named.models,
        )
        rejects = sorted(intake.rejects, key=lambda reject: reject.record_index)
        return Decoded(scores=None, labels=batch, rejects=rejects, clocks=intake.clocks, tombstones=[])

    @staticmethod
    def _tombstones(records: Sequence[Record], tombstones: list[int], rejects: list[Reject]) -> dict[int, str]:
        """Record index -> id of the tombstones that have one; the others are added to `rejects`."""
        withdrawn: dict[int, str] = {}
        for i in tombstones:
            event_id = key_id(records[i].key)
            if event_id is not None:
                withdrawn[i] = event_id
            elif not records[i].key:
                rejects.append(Reject(i, RejectReason.ID_MISSING, "a tombstone without a key withdraws nothing"))
            else:
                why = f"a tombstone's key must be the id as UTF-8 text of at most {MAX_ID_BYTES} bytes"
                rejects.append(Reject(i, RejectReason.ID_INVALID, why))
        return withdrawn


def key_id(key: bytes | None) -> str | None:
    """The id that a record's key spells (its bytes as UTF-8, nothing else), None where it spells none."""
    try:
        return canonical_id((key or b"").decode())
    except UnicodeDecodeError:
        return None


def read_labels(values: Sequence[Any], path: str) -> tuple[NDArray[np.int8], Failures]:
    """Labels (n,) int8: 0, 1 or WITHDRAWN (0 where refused), and what is refused."""
    if set(map(type, values)) == {int} and set(values) <= {0, 1}:  # by far the most, and several times as fast
        return np.array(values, dtype=np.int8), {}
    known = [LABEL_TABLE.get((type(value), value)) if type(value) not in (dict, list) else None for value in values]
    failures: Failures = {i: _refusal(values[i], path) for i, label in enumerate(known) if label is None}
    return np.array([label or 0 for label in known], dtype=np.int8), failures


def _refusal(value: Any, path: str) -> tuple[RejectReason, str]:
    if value is ABSENT:
        return RejectReason.LABEL_MISSING, f"{path} is missing; write null to withdraw a label"
    return (
        RejectReason.LABEL_INVALID,
        f'{path} is {shown(value)}; a label is 0, 1, true, false, "0", "1", 0.0, 1.0, or null to withdraw',
    )
