"""The events of one request as columns, read by the rules that hold for events of the score topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.config_models import ScoreModel, ScoreScale
from stream_calib.errors import RequestError
from stream_calib.events.attributes import SignatureReader
from stream_calib.events.columns import Failures
from stream_calib.events.contracts import ModelKey, RejectReason
from stream_calib.events.event_ids import canonical_id, read_ids
from stream_calib.events.event_times import read_times
from stream_calib.events.identity import fingerprints, unit_buckets
from stream_calib.events.keep_rates import read_keep_rates, with_keep_rates
from stream_calib.events.model_scores import read_scores

NOW = -1
"""Event time of an event that has none of its own: when its row is put down for the monitor."""

Column = Sequence[Any] | NDArray[Any]
Attributes = Sequence[Mapping[str, Any]] | Mapping[str, Column]
"""One mapping for each event, or columns by attribute name."""


@dataclass(frozen=True, slots=True)
class RequestRows:
    """n events, good and refused ones, in the order of the request."""

    refused: Failures
    """Place -> reason code and message."""
    good: NDArray[np.intp]
    """(k,) places of the others."""
    score: NDArray[np.float64]
    """(n,) in [0, 1], never -0.0; of those that are good."""
    signature_index: NDArray[np.intp]
    """(n,) index into `signatures`."""
    signatures: list[tuple[str, ...]]
    """As in ScoreBatch."""
    event_id: list[str] | None
    """n ids, "" where refused; None where the request has none."""
    event_time_ms: NDArray[np.int64]
    """(n,) epoch milliseconds, or NOW."""
    unit_bucket: NDArray[np.uint8] | None
    """(n,); None without ids."""
    fingerprint: NDArray[np.uint64] | None
    """(n,); None without ids."""


class RequestReader:
    """Reads requests as configured by `[model]`, `[[models]]` and `[scores]`, but for the paths: what is asked for has
    names of its own. Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self._models, self._fused = config.score_models(), config.fused()
        self._attributes = list(config.scores.attributes)
        self._has_units = config.scores.unit is not None
        self._has_keep_rates = config.scores.keep_rate is not None
        self._signatures = SignatureReader({name: name for name in self._attributes}, config.scores.max_value_bytes)

    def model(self, name: str | None, version: str | None) -> tuple[ModelKey, ScoreScale]:
        """The model key that is asked for, and the scale of its scores.

        What is left out is the configuration's constant. Raises RequestError where there is none, or where name and
        version are none that the configuration allows.
        """
        named = [m for m in self._models if name is None or m.name is None or m.name == name]
        found = [m for m in named if version is None or m.version is None or m.version == version]
        if not found and self._fused is not None and name == self._fused.key.model:
            raise RequestError(
                f"{name} is fused of several models' scores in a record of the score topic, and a request has those of"
                f" one; ask for {', '.join(self._fused.weights)}, or send the records to the topic"
            )
        if not found:
            known = ", ".join(map(_shown, self._models))
            raise RequestError(f"no model {name or '(any)'}/{version or '(any)'} is configured; there are: {known}")
        if len(found) > 1:
            raise RequestError(f"name the model; there are: {', '.join(map(_shown, found))}")
        model, name, version = found[0], name or found[0].name, version or found[0].version
        if name is None or version is None:
            raise RequestError(f"give the model's {'name' if name is None else 'version'}: it is no constant here")
        try:
            return ModelKey.of(name, version), model.scale
        except ValueError as error:
            raise RequestError(str(error)) from error

    def read(
        self,
        scale: ScoreScale,
        scores: Column,
        attributes: Attributes | None,
        event_ids: Column | None,
        event_times_ms: Column | None,
        units: Column | None,
        keep_rates: Column | None = None,
    ) -> RequestRows:
        """Raises RequestError where the columns differ in length."""
        values = _listed(scores)
        n = len(values)
        score, _, refused = read_scores(values, scale, "score")
        for i in np.flatnonzero(np.isnan(score)).tolist():
            refused.setdefault(i, (RejectReason.SCORE_INVALID, "score is NaN; a score is a finite number"))
        times, bad_times = self._times(event_times_ms, n)
        ids, bad_ids, fingerprint, buckets = self._identities(event_ids, units, n)
        rates, bad_rates = self._rates(keep_rates, n)
        refused = {**bad_rates, **bad_times, **refused, **bad_ids}
        index, signatures = self._signatures.read(self._objects(attributes, n))
        if rates is not None:
            index, signatures = with_keep_rates(index, signatures, rates)
        good = np.delete(np.arange(n), list(refused))
        return RequestRows(refused, good, score, index, signatures, ids, times, buckets, fingerprint)

    def _objects(self, attributes: Attributes | None, n: int) -> list[dict[str, Any]]:
        if attributes is None:
            return [{}] * n
        if isinstance(attributes, Mapping):
            named = {name: _of_length(attributes[name], n, name) for name in self._attributes if name in attributes}
            if not named:
                return [{}] * n
            return [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]
        return [row if type(row) is dict else dict(row) for row in _of_length(attributes, n, "attributes")]

    def _rates(self, keep_rates: Column | None, n: int) -> tuple[NDArray[np.float64] | None, Failures]:
        if not self._has_keep_rates:
            if keep_rates is not None:
                raise RequestError(
                    "keep_rates are given, and scores.keep_rate is not configured: all events were kept then"
                )
            return None, {}
        if keep_rates is None:
            return np.ones(n), {}
        rates, bad = read_keep_rates(_of_length(keep_rates, n, "keep_rates"), "keep_rate")
        # What is refused is left out of the rows; until then its signature must be one.
        rates[list(bad)] = 1.0
        return rates, bad

    def _times(self, event_times_ms: Column | None, n: int) -> tuple[NDArray[np.int64], Failures]:
        times = np.full(n, NOW, dtype=np.int64)
        if event_times_ms is None:
            return times, {}
        values = _of_length(event_times_ms, n, "event_times_ms")
        given = [i for i, value in enumerate(values) if value is not None]
        times[given], bad = read_times([values[i] for i in given], "ms", "event_time_ms")
        return times, {given[i]: why for i, why in bad.items()}

    def _identities(
        self, event_ids: Column | None, units: Column | None, n: int
    ) -> tuple[list[str] | None, Failures, NDArray[np.uint64] | None, NDArray[np.uint8] | None]:
        if units is not None and not self._has_units:
            raise RequestError("units are given, and scores.unit is not configured: the event id is the unit then")
        if event_ids is None:
            return None, {}, None, None
        ids, bad = read_ids(_of_length(event_ids, n, "event_ids"), "event_id")
        fingerprint = unit_fingerprint = fingerprints(ids)
        if units is not None:
            texts = [canonical_id(unit) for unit in _of_length(units, n, "units")]
            unit_fingerprint = fingerprints([i if u is None else u for u, i in zip(texts, ids, strict=True)])
        return ids, bad, fingerprint, unit_buckets(unit_fingerprint)


def _listed(values: Column) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _of_length(values: Any, n: int, name: str) -> list[Any]:
    listed = _listed(values)
    if len(listed) != n:
        raise RequestError(f"{name}: {len(listed)} values for {n} scores; each score needs one")
    return listed


def _shown(model: ScoreModel) -> str:
    return f"{model.name or '(any)'}/{model.version or '(any)'}"
