from __future__ import annotations

import math

import numpy as np
import pytest

from stream_calib.drift.overdispersion import overdispersion


def test_a_small_case_by_hand() -> None:
    # Blocks with A = (4, 1, 9) and V = (2, 2, 2): phi 14/6; t of 2 degrees of freedom at 95 % is 2.919986.
    residual = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    variance = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    phi = 14 / 6
    error = math.sqrt(3 / 2 * sum((a - 2 * phi) ** 2 for a in (4, 1, 9))) / 6
    assert overdispersion(residual, variance) == pytest.approx((phi + 2.919986 * error) * 3 / 2, rel=1e-6)


def test_blocks_in_which_nothing_could_vary_do_not_count() -> None:
    residual, variance = np.array([[1.0], [1.0], [0.0]]), np.array([[1.0], [1.0], [0.0]])
    assert overdispersion(residual, variance) is None
    assert overdispersion(np.ones((4, 1)), np.ones((4, 1))) == pytest.approx(4 / 3)


def test_it_is_at_least_one() -> None:
    assert overdispersion(np.full((20, 3), 0.1), np.ones((20, 3))) == 1.0


def test_it_bounds_the_truth_with_independent_events_and_with_shared_shocks() -> None:
    """Of 200 fits each, about one in twenty may be below; skewness makes it a little more."""
    rng = np.random.default_rng(5)
    for shock, truth in ((0.0, 1.0), (0.05, 1.0 + 400 * 0.05**2 / 0.24)):
        below, found = 0, []
        for _ in range(200):
            p = np.clip(0.4 + shock * rng.standard_normal((28, 1)), 0, 1)
            positives = rng.binomial(400, np.broadcast_to(p, (28, 6)))
            phi = overdispersion((positives - 160.0).astype(np.float64), np.full((28, 6), 96.0))
            assert phi is not None
            below += phi < truth * 0.999
            found.append(phi)
        assert below <= 26
        assert np.median(found) < 2.2 * truth
