"""The synthetic world that calibrators are compared on: overlapping groups, some pairs of their own, slopes.

Attributes country (50 values, Zipf: 1 / rank), content (20, 1 / sqrt rank), device (5, uniform). Base log-odds
t ~ N(-2, 1.3), the raw score is sigmoid(t); truth = sigmoid((1 + slope[content]) t + a[country] + b[content] +
c[device] + e[country, content]) with a, b, c ~ N(0, .25), slope ~ N(0, .15), e ~ N(0, .35) on a random tenth of the
pairs, else 0 (second arguments are standard deviations). The world and each sample of it have seeds of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.labelled_cells import LabelledCells

ATTRIBUTES = ("country", "content", "device")
N_COUNTRIES, N_CONTENTS, N_DEVICES = 50, 20, 5

SIGNATURES: tuple[Signature, ...] = tuple(
    (f"country{i:02d}", f"content{j:02d}", f"device{k}")
    for i in range(N_COUNTRIES)
    for j in range(N_CONTENTS)
    for k in range(N_DEVICES)
)
"""All 5,000, in the order of `Sample.signature`."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rows, columns (n,): `score`, `label` (0 or 1), `truth` (probability of 1), `signature` (place in SIGNATURES)."""

    score: NDArray[np.float64]
    label: NDArray[np.int64]
    truth: NDArray[np.float64]
    signature: NDArray[np.intp]

    def attributes(self) -> dict[str, list[str]]:
        """The rows' values of each attribute."""
        columns = zip(*(SIGNATURES[place] for place in self.signature.tolist()), strict=True)
        return {name: list(column) for name, column in zip(ATTRIBUTES, columns, strict=True)}

    def cells(self) -> LabelledCells:
        """The rows as counts by (signature, grid bin), those without rows left out."""
        shape = (len(SIGNATURES), N_BINS)
        key = self.signature * N_BINS + locate(self.score)[0]
        labelled = np.bincount(key, minlength=shape[0] * shape[1])
        positives = np.bincount(key, self.label, minlength=shape[0] * shape[1])
        used = np.flatnonzero(labelled)
        signature, grid_bin = np.divmod(used, N_BINS)
        return LabelledCells(
            SIGNATURES, signature, grid_bin, labelled[used].astype(np.float64), positives[used].astype(np.float64)
        )

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Sample:
        """The chosen rows."""
        return Sample(self.score[chosen], self.label[chosen], self.truth[chosen], self.signature[chosen])

    def rmse(self, probability: NDArray[np.float64]) -> float:
        """Root mean squared distance of probabilities (n,) to the truth."""
        return float(np.sqrt(((probability - self.truth) ** 2).mean()))


class SyntheticWorld:
    """One draw of everything but the rows."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.country = random.normal(0, 0.25, N_COUNTRIES)
        self.content = random.normal(0, 0.25, N_CONTENTS)
        self.device = random.normal(0, 0.25, N_DEVICES)
        self.slope = random.normal(0, 0.15, N_CONTENTS)
        pairs = N_COUNTRIES * N_CONTENTS
        own = random.choice(pairs, pairs // 10, replace=False)
        pair = np.zeros(pairs)
        pair[own] = random.normal(0, 0.35, len(own))
        self.pair = pair.reshape(N_COUNTRIES, N_CONTENTS)

    def sample(self, rows: int, seed: int) -> Sample:
        """Independent rows; samples of other seeds share nothing but the world."""
        random = np.random.default_rng(seed)
        country = random.choice(N_COUNTRIES, rows, p=_shares(1.0 / np.arange(1, N_COUNTRIES + 1)))
        content = random.choice(N_CONTENTS, rows, p=_shares(1.0 / np.sqrt(np.arange(1, N_CONTENTS + 1))))
        device = random.integers(0, N_DEVICES, rows)
        t = random.normal(-2.0, 1.3, rows)
        own = self.country[country] + self.content[content] + self.device[device] + self.pair[country, content]
        truth = expit((1 + self.slope[content]) * t + own)
        label = (random.random(rows) < truth).astype(np.int64)
        signature = (country * N_CONTENTS + content) * N_DEVICES + device
        return Sample(expit(t), label, truth, signature)


def _shares(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = weight / weight.sum()
    return shares
