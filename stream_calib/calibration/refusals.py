"""What every calibrator refuses: parameters without sense, and data without a fit."""

from __future__ import annotations

from stream_calib.calibration.fit_input import Counts
from stream_calib.errors import ConfigurationError, OneClassError, TooFewPositivesError, TooFewRowsError


def check_p_min(p_min: float) -> None:
    """Raises ConfigurationError unless 0 <= p_min < .5."""
    if not 0 <= p_min < 0.5:
        raise ConfigurationError(f"p_min = {p_min}; it must lie in [0, .5)")


def check_enough(counts: Counts, min_rows: float, min_positives: float) -> None:
    """Raises TooFewRowsError, OneClassError or TooFewPositivesError (too few negatives too), in this order."""
    if counts.rows < min_rows:
        raise TooFewRowsError(f"{counts.rows:g} labelled rows; {min_rows} are needed: wait for more labels")
    if counts.positive_rows == 0 or counts.negative_rows == 0:
        only = 0 if counts.positive_rows == 0 else 1
        raise OneClassError(f"all {counts.rows:g} labels are {only}; a calibrator needs both classes")
    fewer, kind = min((counts.positive_rows, "positives"), (counts.negative_rows, "negatives"))
    if fewer < min_positives:
        raise TooFewPositivesError(f"{fewer:g} {kind}; at least {min_positives} of each class are needed")
