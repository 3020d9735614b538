"""Pure numerics of calibration. Knows nothing of logs, Redis or configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream_calib.calibration.base_map import BaseMap
from stream_calib.calibration.joint_fit import JointFit, fit_joint
from stream_calib.calibration.level import fit_level
from stream_calib.calibration.platt import PlattFit, fit_platt
from stream_calib.calibration.served_map import ServedMap

if TYPE_CHECKING:
    from stream_calib.calibration.girb import GIRB

__all__ = ["GIRB", "BaseMap", "JointFit", "PlattFit", "ServedMap", "fit_joint", "fit_level", "fit_platt"]


def __getattr__(name: str) -> type[GIRB]:
    # scikit-learn takes most of a second to import, and only who fits needs it.
    if name == "GIRB":
        from stream_calib.calibration.girb import GIRB

        return GIRB
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
