"""Data sets that scikit-learn ships, as tasks: two badly scaled models score each row without having seen it.

Naive Bayes says far too sure things where features depend on each other, as in all of these: nine scores in ten, but
for diabetes, lie beyond log-odds of 10, where the grid ends and we tell them apart no longer. A forest of 25 shallow
trees is not sure enough. Sets with several classes are taken one against the rest, all pooled: a row for each (sample,
class), with the class as an attribute. They are small, and what they show is that a method does no harm there.
Calibrators are cross-validated, by samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB

from benchmarks.quality_data import Rows, Split, Task

FOLDS = 5
_PARTS = ("low", "middle", "high")
_MODEL_FOLDS = 10


def packaged_tasks() -> list[Task]:
    """Every set scored by either model."""
    made = []
    for name, model in (("naive Bayes", GaussianNB()), ("forest", shallow_forest())):
        made += [_breast_cancer(name, model), _diabetes(name, model)]
        made += [_one_against_the_rest(f"wine, {name}", load_wine, model)]
        made += [_one_against_the_rest(f"digits, {name}", load_digits, model)]
    return made


def shallow_forest() -> RandomForestClassifier:
    """Not sure enough."""
    return RandomForestClassifier(25, max_depth=3, random_state=3)


def scores_unseen(model: Any, features: NDArray[np.float64], label: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, classes) probabilities by models that were fitted to other rows."""
    folds = KFold(_MODEL_FOLDS, shuffle=True, random_state=1)
    found: NDArray[np.float64] = cross_val_predict(model, features, label, cv=folds, method="predict_proba")
    total: NDArray[np.float64] = found.sum(axis=1, keepdims=True)
    return np.divide(found, total)


def _breast_cancer(name: str, model: Any) -> Task:
    features, benign = load_breast_cancer(return_X_y=True)
    attributes = {"radius": thirds(features[:, 0]), "texture": thirds(features[:, 1])}
    return _two_classes(f"breast cancer, {name}", model, features, 1 - benign, attributes)


def _diabetes(name: str, model: Any) -> Task:
    features, progression = load_diabetes(return_X_y=True)
    attributes = {"sex": (features[:, 1] > 0).astype(np.intp), "age": thirds(features[:, 0])}
    fast = (progression > np.median(progression)).astype(np.int64)
    return _two_classes(f"diabetes, {name}", model, features, fast, attributes)


def _two_classes(
    name: str, model: Any, features: NDArray[np.float64], label: NDArray[np.int64], codes: dict[str, NDArray[np.intp]]
) -> Task:
    score = scores_unseen(model, features, label)[:, 1]
    unit = np.arange(len(label))
    values: dict[str, tuple[str, ...]] = dict.fromkeys(codes, _PARTS)
    return _cross_validated(name, Rows(score, label, unit, unit, codes, values, (tuple(codes),)))


def _one_against_the_rest(name: str, load: Callable[..., Any], model: Any) -> Task:
    features, kind = load(return_X_y=True)
    return _cross_validated(name, pooled(features, kind, scores_unseen(model, features, kind)))


def pooled(features: NDArray[np.float64], kind: NDArray[np.int64], scores: NDArray[np.float64]) -> Rows:
    """A row for each (sample, class)."""
    samples, classes = scores.shape
    unit, of_class = np.repeat(np.arange(samples), classes), np.tile(np.arange(classes), samples)
    return Rows(
        score=scores.reshape(-1),
        label=(kind[unit] == of_class).astype(np.int64),
        block=unit,
        unit=unit,
        codes={"class": of_class, "size": thirds(features.sum(axis=1))[unit]},
        values={"class": tuple(f"class {number}" for number in range(classes)), "size": _PARTS},
        intersections=(("class", "size"),),
    )


def thirds(column: NDArray[np.float64]) -> NDArray[np.intp]:
    """0, 1, 2: the lowest, the middle and the highest third."""
    return np.searchsorted(np.quantile(column, [1 / 3, 2 / 3]), column)


def _cross_validated(name: str, rows: Rows) -> Task:
    fold = np.random.default_rng(2).integers(0, FOLDS, int(rows.unit.max()) + 1)[rows.unit]
    splits = [Split(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(FOLDS)]
    return Task(name, rows, splits)
