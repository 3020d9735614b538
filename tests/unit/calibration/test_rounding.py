"""Twelve digits, to the bit what printing and reading gives."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_calib.calibration.rounding import round_significant


def printed(values: NDArray[np.float64], digits: int = 12) -> NDArray[np.float64]:
    return np.array([float(f"{value:.{digits}g}") for value in values.tolist()]) + 0.0


def assert_same_bits(values: NDArray[np.float64], digits: int = 12) -> None:
    """Also among many, which are rounded in another way than few."""
    for some in (values, np.concatenate([values, np.full(50, 0.125)])):
        made, expected = round_significant(some, digits), printed(some, digits)
        different = np.flatnonzero(made.view(np.int64) != expected.view(np.int64))
        assert len(different) == 0, [(some[i].hex(), made[i].hex(), expected[i].hex()) for i in different[:5]]


@given(st.lists(st.floats(allow_nan=False), max_size=30))
@example([0.0, -0.0, np.inf, -np.inf, 5e-324, 1.7976931348623157e308, 1e-10, 1e32, 1e22, 1e23, 1e-11, 1e11, 1e12])
def test_any_doubles(values: list[float]) -> None:
    assert_same_bits(np.array(values, dtype=np.float64))


@given(st.integers(10**11, 10**12 - 1), st.integers(-40, 40), st.integers(-3, 3), st.sampled_from([-1, 1]))
def test_next_to_ties_and_to_twelve_digits(digits: int, power: int, steps: int, sign: int) -> None:
    """Numbers of 12 digits and those half way between two, moved by a few units in the last place."""
    for text in (f"{digits}e{power}", f"{digits}5e{power}", f"{digits}4999e{power}", f"{digits}5001e{power}"):
        value = np.array([sign * float(text)])
        for _ in range(abs(steps)):
            value = np.nextafter(value, np.inf if steps > 0 else -np.inf)
        assert_same_bits(value)


def test_many_of_each_size() -> None:
    random = np.random.default_rng(0)
    assert_same_bits(random.normal(size=200_000))
    assert_same_bits(random.normal(size=100_000) * 10.0 ** random.integers(-40, 40, 100_000))
    bits = random.integers(-(2**63), 2**63 - 1, 100_000).view(np.float64)
    assert_same_bits(bits[np.isfinite(bits)])
    near_powers = 10.0 ** np.arange(-40, 41)
    for _ in range(4):
        assert_same_bits(np.concatenate([near_powers, -near_powers]))
        near_powers = np.nextafter(near_powers, 0)


@given(st.lists(st.floats(allow_nan=False), max_size=30), st.integers(1, 11))
@example([0.0, 1e-16, 1e26, 1e22, 1e23, 999999.5, 99999.95, 0.0009999995, 1e-17, 5e-324], 6)
def test_fewer_digits(values: list[float], digits: int) -> None:
    assert_same_bits(np.array(values, dtype=np.float64), digits)
    random = np.random.default_rng(digits)
    assert_same_bits(random.normal(size=1_000) * 10.0 ** random.integers(-30, 30, 1_000), digits)


def test_shapes_and_what_is_no_number() -> None:
    assert round_significant(1 / 3).shape == ()
    assert float(round_significant(1 / 3)) == 0.333333333333
    assert round_significant(np.full((2, 3), 2 / 3)).tolist() == [[0.666666666667] * 3] * 2
    assert round_significant([]).shape == (0,)
    assert np.isnan(round_significant([np.nan])).all()
    assert not np.signbit(round_significant([-0.0])).any()
