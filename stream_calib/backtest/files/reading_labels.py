"""Rows of label columns, by the rules of `LabelDecoder`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.files.reading_rows import LABEL_ROW, Read, rejects_of
from stream_calib.backtest.files.reading_values import Columns, Wanted, by_value, encoded, ids_of, times_of
from stream_calib.config import Config
from stream_calib.events.columns import ABSENT, Failures
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import fingerprints_of_encoded
from stream_calib.events.label_decoder import read_labels
from stream_calib.events.label_models import EVERY_MODEL, read_named_models
from stream_calib.windows.join_entry import CODE_OF_LABEL

_CODE = np.array([CODE_OF_LABEL[-1], CODE_OF_LABEL[0], CODE_OF_LABEL[1]], dtype=np.uint8)


class LabelReader:
    """Reads columns as configured by ``[labels]``. A label that names another model is not the model key's own."""

    def __init__(self, config: Config, key: ModelKey) -> None:
        self._labels, self._key = config.labels, key

    @property
    def wanted(self) -> list[Wanted]:
        """The columns to be read. That of the model may be missing."""
        labels = self._labels
        wanted = [Wanted(labels.id, "text"), Wanted(labels.label, "number")]
        if labels.time.path is not None:
            wanted.append(Wanted(labels.time.path, "time"))
        return wanted if labels.model is None else [*wanted, Wanted(labels.model, "name", required=False)]

    def read(self, n: int, columns: Columns) -> Read:
        """The labels of n rows. `columns`: those that are wanted."""
        settings = self._labels
        ids, bad_ids = ids_of(columns[settings.id, "text"])
        labels, bad_labels = by_value(
            columns[settings.label, "number"], lambda values: read_labels(values, settings.label)
        )
        assert settings.time.path is not None
        times, bad_times = times_of(columns[settings.time.path, "time"], settings.time.unit)
        own = np.ones(n, dtype=bool)
        bad_models: Failures = {}
        column = None if settings.model is None else columns.get((settings.model, "name"))
        if column is not None:
            own, bad_models = by_value(column, self._are_own)
        failures: Failures = {**bad_times, **bad_labels, **bad_models, **bad_ids}
        event = np.arange(n)
        if failures:
            event = np.delete(event, list(failures))
            ids = ids.take(event)
        granule = settings.time_granularity_ms
        times = times[event]
        rows = np.zeros(len(event), dtype=LABEL_ROW)
        rows["time_ms"] = times - times % granule + (granule - 1)
        rows["fingerprint"] = fingerprints_of_encoded(encoded(ids))
        rows["code"] = _CODE[labels[event] + 1]
        rows["own"] = own[event]
        return Read(rows, rejects_of(failures))

    def _are_own(self, values: Sequence[Any]) -> tuple[NDArray[np.bool_], Failures]:
        path = self._labels.model
        assert path is not None
        named, failures = read_named_models([{} if v is ABSENT else {path: v} for v in values], path)
        own = [i == EVERY_MODEL or named.models[i] == self._key.model for i in named.model_index.tolist()]
        return np.array(own, dtype=bool), failures
