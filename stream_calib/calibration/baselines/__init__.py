"""Calibrators to compare with, each as its source has it, with GIRB's interface: rows or counts in, a base map out."""

from stream_calib.calibration.baselines.beta import BetaCalibration
from stream_calib.calibration.baselines.centered_isotonic import CenteredIsotonic
from stream_calib.calibration.baselines.identity import Identity
from stream_calib.calibration.baselines.isotonic import Isotonic
from stream_calib.calibration.baselines.platt import Platt

__all__ = ["BetaCalibration", "CenteredIsotonic", "Identity", "Isotonic", "Platt"]
