"""Pure numerics of calibration. Knows nothing of logs, Redis or configuration files."""

from stream_calib.calibration.base_map import BaseMap
from stream_calib.calibration.girb import GIRB
from stream_calib.calibration.offsets import fit_level, fit_offsets
from stream_calib.calibration.platt import PlattFit, fit_platt
from stream_calib.calibration.served_map import ServedMap

__all__ = ["GIRB", "BaseMap", "PlattFit", "ServedMap", "fit_level", "fit_offsets", "fit_platt"]
