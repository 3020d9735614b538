import numpy as np
import pytest
from scipy.special import expit

from stream_calib.calibration.joint.level import fit_level


def test_is_the_one_common_shift_shrunk_by_its_prior() -> None:
    log_odds, n = np.array([-2.0, 0.0, 1.0]), np.array([300.0, 200.5, 100.0])
    k = n * expit(log_odds + 0.4)
    assert fit_level(log_odds, n, k, prior=1e-6) == pytest.approx(0.4, abs=1e-6)
    level = fit_level(log_odds, n, k, prior=300.0)
    assert 0 < level < 0.4
    assert (k - n * expit(log_odds + level)).sum() == pytest.approx(300.0 * level, abs=1e-6)


def test_is_0_without_cells() -> None:
    empty = np.empty(0)
    assert fit_level(empty, empty, empty) == 0.0


def test_has_12_significant_digits() -> None:
    level = fit_level(np.array([-2.0, 0.5]), np.array([100.0, 37.0]), np.array([20.0, 30.0]))
    assert level == float(f"{level:.12g}") != 0.0
