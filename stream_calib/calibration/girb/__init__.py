"""GIRB, and GIRB with its number of groups and prior strength chosen by cross-validation."""

from stream_calib.calibration.girb.estimator import GIRB
from stream_calib.calibration.girb.selection import GIRBCV

__all__ = ["GIRB", "GIRBCV"]
