"""Metrics of calibration and ranking, from rows or from counts behind each probability."""

from stream_calib.calibration.metrics.auc import auc, auc_of_counts
from stream_calib.calibration.metrics.brier import BrierDecomposition, brier, brier_decomposition, brier_of_counts
from stream_calib.calibration.metrics.ece import (
    debiased_squared_ece,
    debiased_squared_ece_of_counts,
    ece,
    ece_of_counts,
    ece_of_perfect,
)
from stream_calib.calibration.metrics.evaluated import LOG_LOSS_CLIP
from stream_calib.calibration.metrics.log_loss import log_loss, log_loss_of_counts, log_loss_sums
from stream_calib.calibration.metrics.reliability_curve import ReliabilityCurve, reliability_curve
from stream_calib.calibration.metrics.worst_group_error import worst_group_error

__all__ = [
    "LOG_LOSS_CLIP",
    "BrierDecomposition",
    "ReliabilityCurve",
    "auc",
    "auc_of_counts",
    "brier",
    "brier_decomposition",
    "brier_of_counts",
    "debiased_squared_ece",
    "debiased_squared_ece_of_counts",
    "ece",
    "ece_of_counts",
    "ece_of_perfect",
    "log_loss",
    "log_loss_of_counts",
    "log_loss_sums",
    "reliability_curve",
    "worst_group_error",
]
