"""Rows of score columns, by the rules of `ScoreDecoder`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.files.reading_rows import SCORE_ROW, Read, Signatures, rejects_of
from stream_calib.backtest.files.reading_values import (
    Column,
    Columns,
    Wanted,
    by_value,
    encoded,
    ids_of,
    scores_of,
    times_of,
)
from stream_calib.config import Config
from stream_calib.config_models import ScoreModel
from stream_calib.events.attributes import attribute_text
from stream_calib.events.columns import ABSENT, Failures
from stream_calib.events.contracts import MISSING_VALUE, ModelKey, RejectReason
from stream_calib.events.event_ids import canonical_id
from stream_calib.events.identity import fingerprints, fingerprints_of_encoded, sampled, unit_buckets
from stream_calib.events.keep_rates import rate_text, read_keep_rates
from stream_calib.events.model_keys import read_keys
from stream_calib.events.model_scores import ModelScores
from stream_calib.events.outputs import OUTPUT_FIELD


class ScoreReader:
    """Reads columns as configured by ``[model]``, ``[[models]]`` and ``[scores]``. `odd` and `not_sampled` count since
    it was made.

    What a deployment refuses because it has too many model keys already is not known here: other keys are other keys.
    """

    def __init__(self, config: Config, key: ModelKey, signatures: Signatures) -> None:
        self._scores, self._models, self._key = config.scores, config.score_models(), key
        self._refuse_output_field = config.serving.output == "enrich"
        self._signatures = signatures
        self.odd: Counter[str] = Counter()
        self.not_sampled = 0

    @property
    def wanted(self) -> list[Wanted]:
        """The columns to be read. Scores of other models, and their versions, may be missing."""
        scores = self._scores
        wanted = [Wanted(scores.id, "text"), Wanted(OUTPUT_FIELD, "number", required=False)]
        if scores.time.path is not None:
            wanted.append(Wanted(scores.time.path, "time"))
        for model in self._models:
            needed = model.name in (None, self._key.model)
            wanted.append(Wanted(model.score_path, "number", needed))
            paths = [path for path in (model.name_path, model.version_path) if path is not None]
            wanted += [Wanted(path, "name", needed) for path in paths]
        if scores.unit is not None:
            wanted.append(Wanted(scores.unit, "text"))
        if scores.keep_rate is not None:
            wanted.append(Wanted(scores.keep_rate, "number"))
        return wanted + [Wanted(path, "text") for path in scores.attributes.values()]

    def read(self, n: int, columns: Columns) -> Read:
        """The scores of n rows. `columns`: those that are wanted."""
        settings = self._scores
        ids, bad_ids = ids_of(columns[settings.id, "text"])
        assert settings.time.path is not None
        times, bad_times = times_of(columns[settings.time.path, "time"], settings.time.unit)
        rates = np.empty(0)
        bad_rates: Failures = {}
        path = settings.keep_rate
        if path is not None:
            rates, bad_rates = by_value(
                columns[path, "number"], lambda values: read_keep_rates(values, settings.keep_rate or "")
            )
        scores = self._model_scores(n, columns)
        failures = {**bad_rates, **bad_times, **scores.failed_records(), **bad_ids, **self._taken(n, columns)}
        event = np.arange(n)
        if failures:
            event = np.delete(event, list(failures))
            ids = ids.take(event)
        fingerprint = fingerprints_of_encoded(encoded(ids))
        counted = sampled(fingerprint, settings.sample_rate)
        own_place = scores.keys.index(self._key) if self._key in scores.keys else -1
        of_key = scores.good[event] & (scores.place[event] == own_place)
        own, model = of_key.any(axis=1), of_key.argmax(axis=1)
        self.odd["score_clamped"] += int(np.count_nonzero(scores.clamped[event, model] & own))
        rows = np.zeros(len(event), dtype=SCORE_ROW)
        rows["time_ms"] = times[event]
        rows["fingerprint"] = fingerprint
        rows["score"] = scores.score[event, model]
        rows["signature"] = self._signature_places(event, columns, rates)
        rows["unit_bucket"] = unit_buckets(self._units(event, columns, fingerprint))
        rows["own"] = own
        self.not_sampled += int(np.count_nonzero(own & ~counted))
        return Read(rows if counted.all() else rows.take(np.flatnonzero(counted)), rejects_of(failures))

    def _model_scores(self, n: int, columns: Columns) -> ModelScores:
        shape = (n, len(self._models))
        places: dict[ModelKey, int] = {}
        found = ModelScores(
            self._models,
            np.zeros(shape, bool),
            np.zeros(shape),
            np.zeros(shape, bool),
            np.zeros(shape, np.intp),
            [],
            [],
        )
        for m, model in enumerate(self._models):
            column = columns.get((model.score_path, "number"))
            if column is None:
                found.failures.append({})
                continue
            found.score[:, m], found.clamped[:, m], bad_scores = scores_of(column, model.scale)
            found.place[:, m], bad_keys = _keys(model, n, columns, places)
            failures: Failures = {**bad_scores, **bad_keys}
            absent = np.zeros(n, dtype=bool) if len(self._models) == 1 or column.absent is None else column.absent
            found.good[:, m] = ~absent
            found.good[list(failures), m] = False
            found.failures.append({i: why for i, why in failures.items() if not absent[i]})
        found.keys.extend(places)
        return found

    def _taken(self, n: int, columns: Columns) -> Failures:
        column = columns.get((OUTPUT_FIELD, "number")) if self._refuse_output_field else None
        if column is None:
            return {}
        why = f'the row has a field {OUTPUT_FIELD} of its own, which output = "enrich" would have to overwrite'
        rows = range(n) if column.absent is None else np.flatnonzero(~column.absent).tolist()
        return dict.fromkeys(rows, (RejectReason.OUTPUT_FIELD_TAKEN, why))

    def _signature_places(
        self, event: NDArray[np.intp], columns: Columns, rates: NDArray[np.float64]
    ) -> NDArray[np.uint32]:
        """Place (k,) of the signature of each of the rows `event` (k,)."""
        coded = [self._attribute(event, columns[path, "text"]) for path in self._scores.attributes.values()]
        if self._scores.keep_rate is not None:
            distinct, place = np.unique(rates[event], return_inverse=True)
            coded.append((place.reshape(-1), [rate_text(rate) for rate in distinct.tolist()]))
        if not len(event):
            return np.empty(0, dtype=np.uint32)
        index, used = _combined(len(event), [(codes, len(texts)) for codes, texts in coded])
        parts = [[texts[code] for code in codes] for (_, texts), codes in zip(coded, used, strict=True)]
        signatures = list(zip(*parts, strict=True)) if parts else [()]
        return self._signatures.places(signatures)[index]

    def _attribute(self, event: NDArray[np.intp], column: Column) -> tuple[NDArray[np.intp], list[str]]:
        """Code (k,) of the attribute's text in each of the rows, and the texts."""
        codes, values = column.distinct()
        codes = codes[event]
        texts = [attribute_text(_known(value, column), self._scores.max_value_bytes) for value in values]
        unusable = np.array([text is None for text in texts], dtype=bool)
        if unusable.any():
            self.odd["attribute_dropped"] += int(np.count_nonzero(unusable[codes]))
        return codes, [MISSING_VALUE if text is None else text for text in texts]

    def _units(self, event: NDArray[np.intp], columns: Columns, fingerprint: NDArray[np.uint64]) -> NDArray[np.uint64]:
        if self._scores.unit is None:
            return fingerprint
        codes, values = columns[self._scores.unit, "text"].distinct()
        codes = codes[event]
        units = [canonical_id(value) for value in values]
        unusable = np.array([unit is None for unit in units], dtype=bool)[codes]
        self.odd["unit_replaced"] += int(np.count_nonzero(unusable))
        return np.where(unusable, fingerprint, fingerprints([unit or "" for unit in units])[codes])


def _known(value: Any, column: Column) -> Any:
    """Not a number is how tables of numbers say that a value is not known."""
    return None if column.kind == "number" and value == "NaN" else value


def _keys(
    model: ScoreModel, n: int, columns: Columns, places: dict[ModelKey, int]
) -> tuple[NDArray[np.intp], Failures]:
    """As `model_keys.read_keys`, of the distinct pairs of name and version."""
    paths = [path for path in (model.name_path, model.version_path) if path is not None]
    coded = [columns[path, "name"].distinct() for path in paths]
    if not coded or not n:
        return read_keys(model, [{}] * min(n, 1), places)[0].repeat(n), {}
    index, used = _combined(n, [(codes, len(values)) for codes, values in coded])
    objects: list[dict[str, Any]] = [{} for _ in range(len(used[0]))]
    for path, (_, values), codes in zip(paths, coded, used, strict=True):
        for content, code in zip(objects, codes, strict=True):
            if values[code] is not ABSENT:
                content[path] = values[code]
    place, bad = read_keys(model, objects, places)
    refused: Failures = {}
    if bad:
        rows = np.flatnonzero(np.isin(index, list(bad)))
        refused = {row: bad[int(index[row])] for row in rows.tolist()}
    return place[index], refused


def _combined(n: int, coded: Sequence[tuple[NDArray[np.intp], int]]) -> tuple[NDArray[np.intp], list[Sequence[int]]]:
    """Index (n,) into the distinct combinations of columns of codes, and of each column the codes of the combinations.

    `coded`: codes (n,) and how many there are. Combinations are in the order of their codes.
    """
    index, combinations = np.zeros(n, dtype=np.intp), 1
    used: list[NDArray[np.intp]] = []
    for codes, size in coded:
        key, keys = index * size + codes, combinations * size
        if keys <= 4 * n + 1_000:
            there = np.zeros(keys, dtype=bool)
            there[key] = True
            distinct = np.flatnonzero(there)
            index = (np.cumsum(there) - 1)[key]
        else:
            distinct, index = np.unique(key, return_inverse=True)
        used = [before[distinct // size] for before in used] + [distinct % size]
        combinations = len(distinct)
    return index, [codes.tolist() for codes in used]
