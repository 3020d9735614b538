"""Smooth expected calibration error: no bins, and a bandwidth that the data choose."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct

from stream_calib.calibration.metrics.evaluated import Evaluated

_STEPS = 2**15
"""Of the mesh over [0, 1] on which residuals are smoothed; bandwidths below 1 / 2^15 are not resolved."""


def smooth_ece(label: ArrayLike, probability: ArrayLike, weight: ArrayLike | None = None) -> float:
    """smECE of Blasiok and Nakkiran 2023 ("Smooth ECE: principled reliability diagrams via kernel smoothing").

    With the residuals r_i = y_i - p_i, their shares w_i of the weight, and the reflected Gaussian kernel K_s on [0, 1],
    smECE_s = integral over t in [0, 1] of |sum_i w_i r_i K_s(t, p_i)|. It falls as s grows; returned is its fixed
    point, the only s with smECE_s = s, which is therefore also the bandwidth used. Shapes and errors:
    `Evaluated.of_rows`.
    """
    return _fixed_point(Evaluated.of_rows(label, probability, weight))


def smooth_ece_of_counts(value: ArrayLike, labelled: ArrayLike, positives: ArrayLike) -> float:
    """The same from counts (k,) behind each probability (k,). Errors: `Evaluated.of_counts`."""
    return _fixed_point(Evaluated.of_counts(value, labelled, positives))


def _fixed_point(data: Evaluated) -> float:
    # Here, because it takes a tenth of a second to import, and every role imports metrics.
    from scipy.optimize import brentq

    spectrum = _residual_spectrum(data)
    if _smoothed(spectrum, 0.0) <= 0:
        return 0.0
    if _smoothed(spectrum, 1.0) >= 1.0:
        # Every label is the opposite of a sure probability; there is no root to enclose.
        return 1.0
    return float(brentq(lambda bandwidth: _smoothed(spectrum, bandwidth) - bandwidth, 0.0, 1.0, xtol=1e-10))


def _residual_spectrum(data: Evaluated) -> NDArray[np.float64]:
    """Cosine coefficients (mesh + 1,) of the residuals, each shared between its two neighbours on the mesh."""
    residual = (data.positives - data.labelled * data.value) / data.total
    position = data.value * _STEPS
    left = np.minimum(position.astype(np.intp), _STEPS - 1)
    right_share = position - left
    to_left = np.bincount(left, residual * (1 - right_share), _STEPS + 1)
    to_right = np.bincount(left + 1, residual * right_share, _STEPS + 1)
    # The transform counts all but the outer points of the mesh twice.
    halved = np.concatenate([[1.0], np.full(_STEPS - 1, 0.5), [1.0]])
    return np.asarray(dct((to_left + to_right) * halved, type=1), dtype=np.float64)


def _smoothed(spectrum: NDArray[np.float64], bandwidth: float) -> float:
    """smECE at a bandwidth. The reflected kernel is 1 + 2 sum_k exp(-(pi k s)^2 / 2) cos(pi k t) cos(pi k p)."""
    damping = np.exp(-0.5 * (np.pi * bandwidth * np.arange(_STEPS + 1)) ** 2)
    height = np.abs(dct(spectrum * damping, type=1))
    return float((height.sum() - (height[0] + height[-1]) / 2) / _STEPS)
