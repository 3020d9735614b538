"""The scores of one batch by record and model: which are good, whose they are, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.config_models import ScoreModel, ScoreScale
from stream_calib.events.columns import ABSENT, Failures, column, number_column
from stream_calib.events.contracts import ModelKey, RefusedScore, Reject, RejectReason
from stream_calib.events.messages import shown
from stream_calib.events.model_keys import read_keys, text_at

SCORE_TOLERANCE = 1e-6
"""A score outside [0, 1] by no more than this is set to the bound and counted."""


@dataclass(frozen=True, slots=True)
class ModelScores:
    """Of e records, each with a score of one or more of m models."""

    models: tuple[ScoreModel, ...]
    good: NDArray[np.bool_]
    """(e, m) whether there is a score that can be calibrated."""
    score: NDArray[np.float64]
    """(e, m) in [0, 1], never -0.0; of those that are good."""
    clamped: NDArray[np.bool_]
    """(e, m) set to a bound."""
    place: NDArray[np.intp]
    """(e, m) index into `keys`; of those that are good."""
    keys: list[ModelKey]
    failures: list[Failures]
    """For each model: record -> why its score, which is there, is refused."""

    def admit(self, admitted: Callable[[ModelKey], bool], max_keys: int, besides: Failures) -> None:
        """Refuses the good scores whose model key comes from the record and is none that the deployment can have.

        Not asked for on behalf of records that are refused anyway (`besides`).
        """
        constant = {model.key for model in self.models}
        if constant.issuperset(self.keys):
            return
        asking = self.good.copy()
        asking[list(besides)] = False
        used = dict.fromkeys(self.place[asking].tolist())
        refused = [i for i in used if self.keys[i] not in constant and not admitted(self.keys[i])]
        for record, model in np.argwhere(asking & np.isin(self.place, refused)).tolist():
            why = f"model {self.keys[self.place[record, model]]} would be one more than model.max_keys = {max_keys}"
            self.failures[model][record] = (RejectReason.TOO_MANY_MODELS, why)
            self.good[record, model] = False

    def failed_records(self) -> Failures:
        """The records without a good score, each with the first reason for that."""
        failed: Failures = {}
        for i in np.flatnonzero(~self.good.any(axis=1)).tolist():
            failed[i] = next((failures[i] for failures in self.failures if i in failures), None) or self._nothing()
        return failed

    def keys_of(self, record: NDArray[np.intp], model: NDArray[np.intp]) -> tuple[list[ModelKey], NDArray[np.intp]]:
        """The distinct keys of these scores (n,), and the index (n,) of each into them."""
        used, index = np.unique(self.place[record, model], return_inverse=True)
        return [self.keys[i] for i in used.tolist()], index

    def refused(
        self, records: NDArray[np.intp], objects: Sequence[dict[str, Any]], record_index: Sequence[int]
    ) -> list[RefusedScore]:
        """What is refused in these records, which have good scores too. `record_index`: of each of the objects."""
        if not any(self.failures):
            return []
        kept = set(records.tolist())
        found = sorted((i, m) for m, failures in enumerate(self.failures) for i in failures if i in kept)
        return [
            RefusedScore(
                record_index[i],
                self.models[m].name or "",
                self.models[m].version or text_at(self.models[m].version_path, objects[i]),
                Reject(record_index[i], *self.failures[m][i]),
            )
            for i, m in found
        ]

    def _nothing(self) -> tuple[RejectReason, str]:
        paths = ", ".join(model.score_path for model in self.models)
        return RejectReason.SCORE_MISSING, f"none of {paths} is there; every score record needs a score"


def read_model_scores(models: tuple[ScoreModel, ...], objects: Sequence[dict[str, Any]]) -> ModelScores:
    """The scores of the objects. Of one model each object must have one; of several, some may be absent."""
    shape = (len(objects), len(models))
    places: dict[ModelKey, int] = {}
    found = ModelScores(
        models, np.zeros(shape, bool), np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, np.intp), [], []
    )
    for m, model in enumerate(models):
        values: Sequence[Any] = column(objects, model.score_path)
        present: slice | list[int] = slice(None)
        holders = objects
        if len(models) > 1 and ABSENT in values:
            present = [i for i, value in enumerate(values) if value is not ABSENT]
            values, holders = [values[i] for i in present], [objects[i] for i in present]
        score, clamped, bad_scores = read_scores(values, model.scale, model.score_path)
        place, bad_keys = read_keys(model, holders, places)
        found.good[present, m] = True
        found.score[present, m], found.clamped[present, m], found.place[present, m] = score, clamped, place
        failures: Failures = {**bad_scores, **bad_keys}
        if isinstance(present, list):
            failures = {present[i]: why for i, why in failures.items()}
        found.good[list(failures), m] = False
        found.failures.append(failures)
    found.keys.extend(places)
    return found


def read_scores(
    values: Sequence[Any], scale: ScoreScale, path: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_], Failures]:
    """Scores in [0, 1] (n,) float64 and never -0.0, which of them (n,) bool were set to a bound, and what is refused.

    ``logit`` scores go through 1 / (1 + exp(-x)), ``percent`` ones through x / 100, each by itself, whatever else is in
    the batch. Only JSON numbers are scores, and only within the range of float64.
    """
    numbers, bad = number_column(values)
    beyond = np.isinf(numbers)  # an integer beyond float64, which no logit may be
    inside, distance = scaled(numbers, scale)
    failures: Failures = {i: _refusal(values[i], path) for i in bad}
    for i in np.flatnonzero((distance > SCORE_TOLERANCE) | beyond).tolist():
        failures[i] = (
            RejectReason.SCORE_OUT_OF_RANGE,
            f"{path} is {shown(values[i])}, outside the range of scores.scale = {scale}",
        )
    return inside, distance > 0, failures


def scaled(numbers: NDArray[np.float64], scale: ScoreScale) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers (n,) of the scale as scores in [0, 1] (n,), never -0.0, and how far outside of it (n,) they were."""
    if scale == "logit":
        numbers = expit(numbers)
    elif scale == "percent":
        numbers = numbers / 100
    inside = np.clip(numbers, 0.0, 1.0) + 0.0  # -0.0 + 0.0 is 0.0
    return inside, np.abs(numbers - inside)


def _refusal(value: Any, path: str) -> tuple[RejectReason, str]:
    if value is ABSENT:
        return RejectReason.SCORE_MISSING, f"{path} is missing; every score record needs a score"
    return RejectReason.SCORE_INVALID, f"{path} is {shown(value)}; a score is a JSON number"
