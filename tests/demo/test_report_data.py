"""Series of the report on small inputs with answers worked out by hand."""

import numpy as np
import pytest

from stream_calib.demo.report_data import daily_log_loss, group_residuals, reliability

DAY = 86_400_000
TEN = 36_000_000


def test_reliability_bins_keep_every_row_and_give_exact_intervals() -> None:
    probability = np.array([0.0, 0.01, 0.5, 0.5, 0.5, 1.0])
    label = np.array([0, 0, 1, 0, 1, 1], dtype=np.int8)

    r = reliability(probability, label)

    assert r.n.tolist() == [2, 3, 1]
    assert r.rate == pytest.approx([0, 2 / 3, 1])
    assert r.mean_probability == pytest.approx([0.005, 0.5, 1])
    assert r.lower_edge == pytest.approx([0, 7 / 15, 14 / 15])
    # Clopper-Pearson in closed form where all rows are alike, else by the binomial law; 5 % shared by three bins.
    tail = 0.05 / 6
    low, high = r.rate_low[1], r.rate_high[1]
    assert (r.rate_low[0], r.rate_low[2]) == pytest.approx((0, tail))
    assert (r.rate_high[0], r.rate_high[2]) == pytest.approx((1 - tail**0.5, 1))
    assert 3 * low**2 * (1 - low) + low**3 == pytest.approx(tail)
    assert 1 - high**3 == pytest.approx(tail)


def test_days_run_from_ten_to_ten() -> None:
    time_ms = np.array([TEN, TEN + DAY - 1, TEN + DAY, TEN + 3 * DAY])
    label = np.array([1, 0, 1, 0], dtype=np.int8)
    raw = np.array([0.5, 0.5, 1.0, 1.0])

    daily = daily_log_loss(time_ms, label, raw, np.full(4, 0.25))

    assert daily.day_start_ms.tolist() == [TEN, TEN + DAY, TEN + 3 * DAY]
    assert daily.n.tolist() == [2, 1, 1]
    assert daily.raw_log_loss == pytest.approx([np.log(2), 0, -np.log(1e-6)], abs=2e-6)
    assert daily.calibrated_log_loss == pytest.approx([-np.log(0.25 * 0.75) / 2, -np.log(0.25), -np.log(0.75)])


def test_residual_of_a_group_is_what_was_said_minus_what_came_true() -> None:
    code = np.array([2, 0, 2, 2], dtype=np.uint8)
    label = np.array([1, 0, 0, 0], dtype=np.int8)

    first, second = group_residuals(
        "origin", code, ["EWR", "JFK", "LGA"], label, np.array([0.5, 0.2, 0.5, 0.8]), np.array([0.1, 0.0, 0.3, 0.3])
    )

    assert (first.family, first.name, first.n, first.raw, first.calibrated) == ("origin", "EWR", 1, 0.2, 0.0)
    assert (second.name, second.n) == ("LGA", 3)
    assert (second.rate, second.raw, second.calibrated) == pytest.approx((1 / 3, 0.6 - 1 / 3, 0.7 / 3 - 1 / 3))
