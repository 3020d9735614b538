"""Metrics of calibration and ranking; every one from rows, with weights, and from the counts behind each probability.

`name(label, probability, ..., weight)` and `name_of_counts(value, labelled, positives, ...)` are one definition: equal
rows give equal figures. Metrics of groups take one column of group numbers for each family, -1 for "in none". From
`LabelledCells` and a served map: value = map.at_centres(cells.grid_bin, cells.signature, cells.signatures), counts as
they are, and family.group_of[cells.signature] for each family.
"""

from stream_calib.calibration.metrics.auc import auc, auc_of_counts
from stream_calib.calibration.metrics.audit_cells import DEFAULT_EDGES, AuditCell
from stream_calib.calibration.metrics.brier import (
    BrierDecomposition,
    brier,
    brier_decomposition,
    brier_decomposition_of_counts,
    brier_of_counts,
)
from stream_calib.calibration.metrics.corp import (
    CorpCurve,
    CorpDecomposition,
    corp_curve,
    corp_curve_of_counts,
    corp_decomposition,
    corp_decomposition_of_counts,
)
from stream_calib.calibration.metrics.ece import (
    debiased_squared_ece,
    debiased_squared_ece_of_counts,
    ece,
    ece_of_counts,
    ece_of_perfect,
    ece_of_perfect_of_counts,
)
from stream_calib.calibration.metrics.evaluated import LOG_LOSS_CLIP
from stream_calib.calibration.metrics.evaluated_groups import EVERYTHING
from stream_calib.calibration.metrics.group_calibration_errors import (
    GroupCalibrationErrors,
    group_calibration_errors,
    group_calibration_errors_of_counts,
)
from stream_calib.calibration.metrics.group_table import GroupTable, group_table, group_table_of_counts
from stream_calib.calibration.metrics.isotonic_band import IsotonicBand
from stream_calib.calibration.metrics.log_loss import log_loss, log_loss_of_counts, log_loss_sums
from stream_calib.calibration.metrics.maximum_calibration_error import (
    maximum_calibration_error,
    maximum_calibration_error_of_counts,
)
from stream_calib.calibration.metrics.multicalibration_error import (
    multicalibration_error,
    multicalibration_error_of_counts,
)
from stream_calib.calibration.metrics.multicalibration_test import (
    MulticalibrationTest,
    multicalibration_test,
    multicalibration_test_of_counts,
)
from stream_calib.calibration.metrics.reliability_curve import (
    ReliabilityCurve,
    reliability_curve,
    reliability_curve_of_counts,
)
from stream_calib.calibration.metrics.smooth_ece import smooth_ece, smooth_ece_of_counts
from stream_calib.calibration.metrics.worst_group_error import worst_group_error, worst_group_error_of_counts

__all__ = [
    "DEFAULT_EDGES",
    "EVERYTHING",
    "LOG_LOSS_CLIP",
    "AuditCell",
    "BrierDecomposition",
    "CorpCurve",
    "CorpDecomposition",
    "GroupCalibrationErrors",
    "GroupTable",
    "IsotonicBand",
    "MulticalibrationTest",
    "ReliabilityCurve",
    "auc",
    "auc_of_counts",
    "brier",
    "brier_decomposition",
    "brier_decomposition_of_counts",
    "brier_of_counts",
    "corp_curve",
    "corp_curve_of_counts",
    "corp_decomposition",
    "corp_decomposition_of_counts",
    "debiased_squared_ece",
    "debiased_squared_ece_of_counts",
    "ece",
    "ece_of_counts",
    "ece_of_perfect",
    "ece_of_perfect_of_counts",
    "group_calibration_errors",
    "group_calibration_errors_of_counts",
    "group_table",
    "group_table_of_counts",
    "log_loss",
    "log_loss_of_counts",
    "log_loss_sums",
    "maximum_calibration_error",
    "maximum_calibration_error_of_counts",
    "multicalibration_error",
    "multicalibration_error_of_counts",
    "multicalibration_test",
    "multicalibration_test_of_counts",
    "reliability_curve",
    "reliability_curve_of_counts",
    "smooth_ece",
    "smooth_ece_of_counts",
    "worst_group_error",
    "worst_group_error_of_counts",
]
