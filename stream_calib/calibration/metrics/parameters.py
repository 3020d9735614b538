"""Checks of the parameters that metrics share."""

from __future__ import annotations

import math
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_calib.errors import ConfigurationError

MAX_BINS = 10_000


def checked_n_bins(n_bins: int, *, most: int = MAX_BINS) -> int:
    """`n_bins` where it is a whole number of 1 .. `most`; else raises ConfigurationError."""
    try:
        whole = index(n_bins)
    except TypeError as error:
        raise ConfigurationError(f"n_bins is {n_bins!r}; give a whole number of 1 .. {most}") from error
    if not 1 <= whole <= most:
        raise ConfigurationError(f"n_bins is {whole}; give a whole number of 1 .. {most}")
    return whole


def checked_confidence(confidence: float) -> float:
    """`confidence` where it lies between 0 and 1; else raises ConfigurationError."""
    if not 0 < confidence < 1:
        raise ConfigurationError(f"confidence is {confidence}; give a probability between 0 and 1, as .95")
    return confidence


def checked_overdispersion(overdispersion: float) -> float:
    """`overdispersion` where it is 1 or more and finite; else raises ConfigurationError."""
    if not 1 <= overdispersion < math.inf:
        raise ConfigurationError(
            f"overdispersion is {overdispersion}; give the ratio, 1 or more, of the variance of numbers of positives "
            "to that of independent labels"
        )
    return overdispersion


def checked_edges(edges: ArrayLike) -> NDArray[np.float64]:
    """Edges (m + 1,) of intervals of probability, increasing from 0 to 1; else raises ConfigurationError."""
    e = np.asarray(edges, dtype=np.float64)
    if e.ndim != 1 or not 2 <= len(e) <= MAX_BINS + 1 or e[0] != 0 or e[-1] != 1 or not (np.diff(e) > 0).all():
        raise ConfigurationError(
            f"edges of intervals must increase from 0 to 1, {MAX_BINS} intervals at most: {edges!r}"
        )
    return e
