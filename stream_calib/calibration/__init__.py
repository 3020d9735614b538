"""Pure numerics of calibration. Knows nothing of logs, Redis or configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream_calib.calibration.base_map import BaseMap
from stream_calib.calibration.offsets import fit_level, fit_offsets
from stream_calib.calibration.platt import PlattFit, fit_platt
from stream_calib.calibration.served_map import ServedMap

if TYPE_CHECKING:
    from stream_calib.calibration.girb import GIRB

__all__ = ["GIRB", "BaseMap", "PlattFit", "ServedMap", "fit_level", "fit_offsets", "fit_platt"]


def __getattr__(name: str) -> type[GIRB]:
    # scikit-learn takes most of a second to import, and only who fits needs it.
    if name == "GIRB":
        from stream_calib.calibration.girb import GIRB

        return GIRB
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
