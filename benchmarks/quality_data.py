"""What methods are compared on: rows with attributes, and who is fitted to which of them to answer for which others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Columns (n,): raw scores, labels 0 or 1, blocks of the bootstrap, units (rows that may depend on each other).

    `codes`: for each attribute the number of its value, which is text in `values`. `intersections`: attributes crossed.
    """

    score: NDArray[np.float64]
    label: NDArray[np.int64]
    block: NDArray[np.int64]
    unit: NDArray[np.int64]
    codes: dict[str, NDArray[np.intp]]
    values: dict[str, tuple[str, ...]]
    intersections: tuple[tuple[str, ...], ...]

    def chosen(self, rows: NDArray[np.intp]) -> Rows:
        return Rows(
            self.score[rows],
            self.label[rows],
            self.block[rows],
            self.unit[rows],
            {name: codes[rows] for name, codes in self.codes.items()},
            self.values,
            self.intersections,
        )

    def texts(self) -> dict[str, list[str]]:
        """The attributes' values."""
        return {name: np.array(self.values[name], dtype=object)[codes].tolist() for name, codes in self.codes.items()}

    def families(self) -> list[NDArray[np.intp]]:
        """Group numbers (n,) of each attribute and intersection."""
        found = list(self.codes.values())
        for crossed in self.intersections:
            number = np.zeros(len(self.score), dtype=np.intp)
            for name in crossed:
                number = number * len(self.values[name]) + self.codes[name]
            found.append(number)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows that a method is fitted to, their weights (None: alike), and rows that it then answers for."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    weight: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A data set and its splits; what is compared are the answers for all their test rows together."""

    name: str
    rows: Rows
    splits: Sequence[Split]

    @property
    def tested(self) -> NDArray[np.intp]:
        """(m,) rows that are answered for, in order."""
        return np.sort(np.concatenate([split.test for split in self.splits]))
