"""The ladder: kinds of base maps from the simplest to the richest, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stream_calib.calibration.baselines.beta import BetaCalibration
from stream_calib.calibration.baselines.identity import Identity
from stream_calib.calibration.baselines.isotonic import Isotonic
from stream_calib.calibration.baselines.platt import Platt
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.configuration import RUNGS, Rung
from stream_calib.calibration.girb import GIRB
from stream_calib.errors import ConfigurationError

LADDER: Mapping[Rung, Callable[[float, int, float], Calibrator]] = {
    "identity": lambda p_min, _groups, _strength: Identity(p_min=p_min, strict=True),
    "platt": lambda p_min, _groups, _strength: Platt(p_min=p_min, strict=True),
    "beta": lambda p_min, _groups, _strength: BetaCalibration(p_min=p_min, strict=True),
    "isotonic": lambda p_min, _groups, _strength: Isotonic(p_min=p_min, strict=True),
    "girb": lambda p_min, n_groups, prior_strength: GIRB(
        n_groups=n_groups, prior_strength=prior_strength, p_min=p_min, strict=True
    ),
}
"""In the order of RUNGS: from `p_min`, `n_groups` and `prior_strength` (the last two are GIRB's) to a calibrator."""


def make_rung(name: str, *, p_min: float, n_groups: int, prior_strength: float) -> Calibrator:
    """A calibrator of this kind, not fitted, that increases strictly, as served maps do. Raises ConfigurationError."""
    for rung, make in LADDER.items():
        if rung == name:
            return make(p_min, n_groups, prior_strength)
    raise ConfigurationError(f"base map {name!r} is unknown; the rungs are {', '.join(RUNGS)}")
