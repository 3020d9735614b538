"""stream-calib: streaming calibration of a deployed binary classifier."""

__version__ = "0.1.0"
