"""Checks of single parameters: a message names the parameter, what it is, and what it may be."""

from __future__ import annotations

import math
from numbers import Integral, Real

from stream_calib.errors import ConfigurationError


def check_whole(name: str, given: object, least: int) -> None:
    """Raises ConfigurationError unless `given` is a whole number of at least `least`; True and 1.0 are none."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise ConfigurationError(f"{name} = {given!r}; it is a whole number, {least} or more")


def check_real(name: str, given: object) -> None:
    """Raises ConfigurationError unless `given` is a finite number; which of them make sense others say."""
    if isinstance(given, bool) or not isinstance(given, Real) or not math.isfinite(given):
        raise ConfigurationError(f"{name} = {given!r}; it is a finite number")
