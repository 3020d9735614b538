"""Fusion of two badly scaled models on the digits, each of which sees one half of the image.

Naive Bayes on the upper half is far too sure, a forest of 25 shallow trees on the lower half not sure enough. Samples
are dealt into four parts that take turns: the models' calibrators are fitted to the first, weights to the second, the
calibrator of the fused score to the third, and the fourth is answered for. What fusion is compared with is calibrated
on the three parts together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from benchmarks.quality_data import Rows
from benchmarks.quality_packaged import pooled, scores_unseen, shallow_forest
from stream_calib.calibration import GIRB
from stream_calib.calibration.fusion import FusionWeights, fit_fusion, fuse

PARTS = 4
BEST = "calibrated, fused (fitted weights), calibrated"
"""The way that is recommended."""


def fusion_answers() -> tuple[Rows, dict[str, NDArray[np.float64]]]:
    """The rows (n,), and the probabilities (n,) of each way to use the two models."""
    features, kind = load_digits(return_X_y=True)
    half = features.shape[1] // 2
    upper = scores_unseen(GaussianNB(), features[:, :half], kind)
    lower = scores_unseen(shallow_forest(), features[:, half:], kind)
    rows = pooled(features, kind, upper)
    raw = np.stack([upper.reshape(-1), lower.reshape(-1)], axis=1)
    part = np.random.default_rng(4).integers(0, PARTS, len(features))[rows.unit]
    parts = [np.flatnonzero(part == number) for number in range(PARTS)]
    answers: dict[str, NDArray[np.float64]] = {}
    for turn in range(PARTS):
        own, weighing, last, test = (parts[(turn + number) % PARTS] for number in range(PARTS))
        for name, probability in _answers(raw, rows.label, own, weighing, last, test).items():
            answers.setdefault(name, np.full(len(raw), np.nan))[test] = probability
    return rows, answers


def _answers(
    raw: NDArray[np.float64],
    label: NDArray[np.int64],
    own: NDArray[np.intp],
    weighing: NDArray[np.intp],
    last: NDArray[np.intp],
    test: NDArray[np.intp],
) -> dict[str, NDArray[np.float64]]:
    """Of the rows of `test`."""
    fitted = np.concatenate([own, weighing, last])
    mean = fuse(raw, FusionWeights.equal(2))
    found = {
        "naive Bayes, raw": raw[test, 0],
        "forest, raw": raw[test, 1],
        "naive Bayes, calibrated": _calibrated(raw[:, 0], label, fitted)[test],
        "forest, calibrated": _calibrated(raw[:, 1], label, fitted)[test],
        "raw scores fused": mean[test],
        "raw scores fused, calibrated": _calibrated(mean, label, fitted)[test],
    }
    each = np.stack([_calibrated(raw[:, model], label, own) for model in range(2)], axis=1)
    for name, weights in (
        ("equal", FusionWeights.equal(2)),
        ("fitted", fit_fusion(each[weighing], label[weighing])),
    ):
        fused = fuse(each, weights)
        found[f"calibrated, fused ({name} weights), calibrated"] = _calibrated(fused, label, last)[test]
    return found


def _calibrated(score: NDArray[np.float64], label: NDArray[np.int64], fitted: NDArray[np.intp]) -> NDArray[np.float64]:
    return GIRB().fit(score[fitted], label[fitted]).predict(score)
