"""Checks of the parameters that metrics share."""

from __future__ import annotations

import math
from operator import index

from stream_calib.errors import ConfigurationError

MAX_BINS = 10_000


def checked_n_bins(n_bins: int) -> int:
    """`n_bins` where it is a whole number of 1 .. 10,000; else raises ConfigurationError."""
    try:
        whole = index(n_bins)
    except TypeError as error:
        raise ConfigurationError(f"n_bins is {n_bins!r}; give a whole number of 1 .. {MAX_BINS:,}") from error
    if not 1 <= whole <= MAX_BINS:
        raise ConfigurationError(f"n_bins is {whole}; give a whole number of 1 .. {MAX_BINS:,}")
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
