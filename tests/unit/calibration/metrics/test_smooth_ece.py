import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from stream_calib.calibration.metrics import ece, smooth_ece, smooth_ece_of_counts


def at_bandwidth(y: NDArray[np.float64], p: NDArray[np.float64], s: float, mesh: int = 4000) -> float:
    """smECE_s by its definition: reflections of the Gaussian summed one by one, the integral by the midpoint rule."""
    t = (np.arange(mesh) + 0.5)[:, None] / mesh
    height = np.zeros(mesh)
    for k in range(-4, 5):
        for image in (2 * k + p, 2 * k - p):
            height += (np.exp(-0.5 * ((t - image) / s) ** 2) * (y - p)).sum(1)
    return float(np.abs(height).mean() / (s * np.sqrt(2 * np.pi)) / len(p))


def golden_ratio_rows(n: int, k: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Labels and probabilities without randomness; k bends the true curve."""
    p = 0.1 + 0.8 * (np.arange(n) + 0.5) / n
    truth = p + k * p * (1 - p) * (1 - 2 * p)
    return (np.arange(n) * 0.6180339887498949 % 1 < truth).astype(np.float64), p


@given(st.integers(0, 10_000), st.integers(5, 60), st.floats(-2, 2))
@settings(max_examples=25, deadline=None)
def test_is_the_fixed_point_of_the_definition(seed: int, n: int, bend: float) -> None:
    rng = np.random.default_rng(seed)
    p = rng.beta(0.8, 1.5, n)
    y = (rng.random(n) < np.clip(p + bend * p * (1 - p), 0, 1)).astype(np.float64)
    shown = smooth_ece(y, p)
    assert at_bandwidth(y, p, shown) == pytest.approx(shown, rel=1e-3)


@pytest.mark.parametrize(
    ("bend", "reference_at_05", "reference"),
    [
        (0.0, 0.013121627368325476, 0.021475545711017223),
        (0.3, 0.027362804569209406, 0.02992824918793095),
        (-0.5, 0.029229894568287715, 0.0311697902286792),
        (1.2, 0.09462412858000913, 0.08875242624555578),
    ],
)
def test_agrees_with_the_authors_package(bend: float, reference_at_05: float, reference: float) -> None:
    # relplot 1.0.3 with 20,000 mesh points, at the bandwidth .05 and at its own, found to within 1 / 1024.
    y, p = golden_ratio_rows(200, bend)
    assert at_bandwidth(y, p, 0.05) == pytest.approx(reference_at_05, rel=1e-4)
    assert abs(smooth_ece(y, p) - reference) < 1 / 1024


def test_one_sided_errors_add_up_whatever_the_bandwidth() -> None:
    p = np.linspace(0, 1, 101)
    assert smooth_ece(np.ones(101), p) == pytest.approx(0.5, abs=1e-6)
    assert smooth_ece([1, 1], [0.5, 0.5]) == pytest.approx(0.5, abs=1e-6)
    assert smooth_ece([0, 1], [0.0, 1.0]) == 0.0


def test_two_opposite_errors_by_hand() -> None:
    # Half of the rows are off by .2 at .45, half by -.2 at .55: .2 x (2 Phi(.05 / s) - 1) = s.
    p, y = np.repeat([0.45, 0.55], 20), np.concatenate([np.arange(20) < 13, np.arange(20) < 7])
    expected = brentq(lambda s: 0.2 * (2 * ndtr(0.05 / s) - 1) - s, 1e-6, 1)
    assert smooth_ece(y, p) == pytest.approx(expected, abs=1e-5)


def test_errors_at_neighbouring_probabilities_cancel_where_bins_jump() -> None:
    # Blasiok and Nakkiran: tiny moves of probabilities must not matter. ECE over distinct values sees .5 here.
    p, y = np.array([0.5 - 1e-4, 0.5 + 1e-4] * 50), np.array([1, 0] * 50)
    assert ece(y, p, n_bins=100) == pytest.approx(0.5, abs=1e-3)
    assert smooth_ece(y, p) < 0.01
    assert smooth_ece(y, np.full(100, 0.5)) == pytest.approx(0.0, abs=1e-9)


def test_true_probabilities_come_near_0_with_more_rows() -> None:
    rng = np.random.default_rng(3)
    shown = []
    for n in (1_000, 100_000):
        p = rng.beta(1.5, 5, n)
        shown.append(smooth_ece(rng.random(n) < p, p))
    assert shown[1] < shown[0] / 3
    assert smooth_ece_of_counts([0.25], [4000], [1000]) == 0.0


@pytest.mark.parametrize(("label", "probability"), [(0, 1.0), (1, 0.0)])
def test_sure_and_always_wrong_is_an_error_of_1(label: int, probability: float) -> None:
    assert smooth_ece([label] * 3, [probability] * 3) == 1.0
    assert smooth_ece_of_counts([probability], [3], [3 * label]) == 1.0
