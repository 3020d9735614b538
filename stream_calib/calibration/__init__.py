"""Pure numerics of calibration. Knows nothing of logs, Redis or configuration files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stream_calib.calibration.joint.fit import JointFit, fit_joint
from stream_calib.calibration.joint.level import fit_level
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.explanation import Explanation, explain
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.platt import PlattFit, fit_platt
from stream_calib.calibration.time_attributes import TimeAttributes

if TYPE_CHECKING:
    from stream_calib.calibration.girb import GIRB
    from stream_calib.calibration.girb.selection import GIRBCV
    from stream_calib.calibration.multicalibrator import Multicalibrator

__all__ = [
    "GIRB",
    "GIRBCV",
    "BaseMap",
    "Explanation",
    "FamilyShift",
    "JointFit",
    "MapParts",
    "Multicalibrator",
    "PatchRound",
    "PlattFit",
    "ServedMap",
    "TimeAttributes",
    "explain",
    "fit_joint",
    "fit_level",
    "fit_platt",
]

_BY_SCIKIT_LEARN = {"GIRB": "girb", "GIRBCV": "girb", "Multicalibrator": "multicalibrator"}


def __getattr__(name: str) -> Any:
    # scikit-learn takes most of a second to import, and only who fits needs it.
    if name in _BY_SCIKIT_LEARN:
        return getattr(import_module(f"{__name__}.{_BY_SCIKIT_LEARN[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
