from __future__ import annotations

import numpy as np
import pytest

from stream_calib.calibration.entering import comes_on, mean_and_error, simplest_rung, stays_on

ROWS = np.full(4, 10.0)


def test_the_error_is_that_of_the_blocks_means() -> None:
    mean, error = mean_and_error(np.array([1.0, 2.0, 3.0, 4.0]), ROWS)
    assert mean == pytest.approx(0.25)
    assert error == pytest.approx(np.std([0.1, 0.2, 0.3, 0.4], ddof=1) / 2)


def test_what_is_configured_goes_only_when_it_harms_and_what_is_not_comes_only_when_it_helps() -> None:
    base = np.array([5.0, 6.0, 7.0, 8.0])
    noise = np.array([0.3, -0.3, 0.2, -0.2])
    assert stays_on(base + noise, base, ROWS)
    assert not comes_on(base + noise, base, ROWS)
    assert not stays_on(base + 1 + noise, base, ROWS)
    assert comes_on(base - 1 + noise, base, ROWS)
    assert stays_on(base, base, ROWS)
    assert not comes_on(base, base, ROWS)


def test_the_simplest_rung_that_is_as_good_is_taken() -> None:
    noise = np.array([0.3, -0.3, 0.2, -0.2])
    best = np.array([5.0, 6.0, 7.0, 8.0])
    losses = np.stack([best + 1 + noise, best + noise + 0.05, best + 0.5, best])
    assert simplest_rung(losses, ROWS) == 1
    assert simplest_rung(losses[::-1], ROWS) == 0


def test_a_rung_that_loses_more_than_a_simpler_one_is_passed_over_however_large_its_error() -> None:
    best = np.array([5.0, 6.0, 7.0, 8.0])
    clearly_worse, now_and_then_far_off = best + 0.1, best + np.array([-0.5, -0.5, -0.5, 4.0])
    assert simplest_rung(np.stack([now_and_then_far_off, best]), ROWS) == 0
    assert simplest_rung(np.stack([clearly_worse, now_and_then_far_off, best]), ROWS) == 2
