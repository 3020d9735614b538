"""The ladder: kinds of base maps from the simplest to the richest, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from stream_calib.calibration.baselines.beta import BetaCalibration
from stream_calib.calibration.baselines.hedged_isotonic import HedgedIsotonic
from stream_calib.calibration.baselines.identity import Identity
from stream_calib.calibration.baselines.platt import Platt
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.configuration import RUNGS, Rung
from stream_calib.calibration.girb import GIRB
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.errors import ConfigurationError

LADDER: Mapping[Rung, type[Identity | Platt | BetaCalibration | HedgedIsotonic | GIRB]] = {
    "identity": Identity,
    "platt": Platt,
    "beta": BetaCalibration,
    "isotonic": HedgedIsotonic,
    "girb": GIRB,
}
"""In the order of RUNGS."""


def make_rung(name: str, *, p_min: float, n_groups: int, prior_strength: float) -> Calibrator:
    """A calibrator of this kind, not fitted, that increases strictly, as served maps do.

    `n_groups` and `prior_strength` are GIRB's. Raises ConfigurationError for an unknown name. `base_map()` of a fitted
    Platt raises FitError where the score ranks the wrong way round.
    """
    for rung, kind in LADDER.items():
        if rung == name:
            made = kind(p_min=p_min, strict=True)
            return made.set_params(n_groups=n_groups, prior_strength=prior_strength) if rung == "girb" else made
    raise ConfigurationError(f"base map {name!r} is unknown; the rungs are {', '.join(RUNGS)}")


def fit_rung(rung: Rung, cells: LabelledCells, *, p_min: float, n_groups: int, prior_strength: float) -> BaseMap:
    """The base map of this kind, fitted to the cells of all signatures together. Raises as `Calibrator.fit_cells`, and
    FitError as `make_rung` says.
    """
    labelled, positives = cells.by_bin()
    return _fitted(rung, labelled.tobytes(), positives.tobytes(), p_min, n_groups, prior_strength)


@lru_cache(maxsize=8)
def _fitted(
    rung: Rung, labelled: bytes, positives: bytes, p_min: float, n_groups: int, prior_strength: float
) -> BaseMap:
    """Kept, because what is compared on some cells is chosen and fitted to them next. `labelled`, `positives`: (402,)
    float64 each."""
    made = make_rung(rung, p_min=p_min, n_groups=n_groups, prior_strength=prior_strength)
    return made.fit_cells(np.frombuffer(labelled), np.frombuffer(positives)).base_map()
