"""The families that a configuration asks for, and the values behind signature hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import FamilyRule, family_rule
from stream_calib.config import Config


def family_rules(config: Config) -> list[FamilyRule]:
    """Every configured attribute alone, then the configured intersections."""
    attributes = list(config.scores.attributes)
    asked = [(name,) for name in attributes] + [tuple(names) for names in config.scores.intersections]
    return [family_rule(names, attributes) for names in asked]


def signature_values(
    hashes: NDArray[np.uint64], dictionary: Mapping[int, Sequence[str]]
) -> tuple[list[tuple[str, ...]], NDArray[np.intp]]:
    """The distinct signatures' values, in the order of their hashes, and (k,) the place of each cell's among them."""
    distinct, place = np.unique(hashes, return_inverse=True)
    return [tuple(dictionary[h]) for h in distinct.tolist()], place.astype(np.intp)
