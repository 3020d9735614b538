"""Keep rates: which share of such events was kept where events were thinned before the stream.

The rate of an event is one more value at the end of its signature. So cells of different rates stay apart and stay
plain counts; whatever makes figures of them counts a row 1 / rate times. It is in no group, and no input to the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.columns import ABSENT, Failures, number_column
from stream_calib.events.contracts import RejectReason
from stream_calib.events.messages import shown

LEAST_KEEP_RATE = 1e-6
"""A row that stands for more than a million others would be all that any figure says."""

POOLED = "~"
"""Before the text of a rate that stands for several, in matured cells (windows/vocabulary.py)."""


def read_keep_rates(values: Sequence[Any], path: str) -> tuple[NDArray[np.float64], Failures]:
    """Rates (n,) float64 in [LEAST_KEEP_RATE, 1], 1 where the field is missing or null; and what is refused.

    Only JSON numbers are rates.
    """
    given = [1.0 if value is ABSENT or value is None else value for value in values]
    rates, _ = number_column(given)
    bad = np.flatnonzero(~((rates >= LEAST_KEEP_RATE) & (rates <= 1.0)))  # NaN is neither
    failures: Failures = {
        i: (
            RejectReason.KEEP_RATE_INVALID,
            f"{path} is {shown(values[i])}; a keep rate is a JSON number from {LEAST_KEEP_RATE:g} to 1",
        )
        for i in bad.tolist()
    }
    return rates, failures


def with_keep_rates(
    signature_index: NDArray[np.intp], signatures: Sequence[tuple[str, ...]], rates: NDArray[np.float64]
) -> tuple[NDArray[np.intp], list[tuple[str, ...]]]:
    """Index (n,) into the distinct signatures that end with the rates' texts, and these. `rates` (n,)."""
    distinct, place = np.unique(rates, return_inverse=True)
    size = max(len(distinct), 1)
    used, index = np.unique(signature_index * size + place.reshape(-1), return_inverse=True)
    texts = [rate_text(rate) for rate in distinct.tolist()]
    return index.reshape(-1).astype(np.intp), [(*signatures[i // size], texts[i % size]) for i in used.tolist()]


def rate_text(rate: float) -> str:
    """The rate as the last value of a signature: the shortest text that reads back to the same float64."""
    return repr(float(rate))


def rate_of(text: str) -> float:
    """The inverse of `rate_text`, also of a pooled rate."""
    return float(text.removeprefix(POOLED))
