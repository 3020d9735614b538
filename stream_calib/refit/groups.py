"""Groups of signatures: which group of each family a signature is in, and how groups are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.served_map import OTHER
from stream_calib.config import Config


@dataclass(frozen=True, slots=True)
class Family:
    """The groups of one attribute or intersection among given signatures, sorted by their values."""

    attributes: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    """G value tuples, in the order of the attributes."""
    group_of: NDArray[np.intp]
    """(s,) group of each signature, -1 where a value is `__other__`."""

    @property
    def names(self) -> list[str]:
        """As `carrier=UA & origin=EWR`."""
        return [" & ".join(f"{a}={v}" for a, v in zip(self.attributes, values, strict=True)) for values in self.values]


def family_attributes(config: Config) -> list[tuple[str, ...]]:
    """Every configured attribute alone, then the configured intersections."""
    return [(name,) for name in config.scores.attributes] + [tuple(names) for names in config.scores.intersections]


def make_family(
    attributes: tuple[str, ...], all_attributes: Sequence[str], signatures: Sequence[Sequence[str]]
) -> Family:
    """The family over s signatures, each with its values in the order of `all_attributes`."""
    positions = [list(all_attributes).index(name) for name in attributes]
    keys = [tuple(values[i] for i in positions) for values in signatures]
    groups = sorted({key for key in keys if OTHER not in key})
    number = {key: i for i, key in enumerate(groups)}
    return Family(attributes, tuple(groups), np.array([number.get(key, -1) for key in keys], dtype=np.intp))


def signature_values(
    hashes: NDArray[np.uint64], dictionary: Mapping[int, Sequence[str]]
) -> tuple[list[tuple[str, ...]], NDArray[np.intp]]:
    """The distinct signatures' values, in the order of their hashes, and (k,) the place of each cell's among them."""
    distinct, place = np.unique(hashes, return_inverse=True)
    return [tuple(dictionary[h]) for h in distinct.tolist()], place.astype(np.intp)
