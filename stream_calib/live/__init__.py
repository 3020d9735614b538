"""Calibration in the request path: by the current snapshot, in any process, with what was served written for the
monitor."""

from __future__ import annotations

from stream_calib.live.block_writer import BlockWriter
from stream_calib.live.calibrator import Calibrated, LiveCalibrator

__all__ = ["BlockWriter", "Calibrated", "LiveCalibrator"]
