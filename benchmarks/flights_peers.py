"""Other policies on the flights, in the protocol of the service: each day is answered by what was fitted to labels that
were 24 hours old when it began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration.baselines import Isotonic, Platt
from stream_calib.demo.figures import EVALUATED_FROM_DAY
from stream_calib.demo.flights import DAY_MS, Flights

Floats = NDArray[np.float64]
MATURITY_MS = DAY_MS
_WINDOW_DAYS = 14
_HALF_LIFE_DAYS = 14.0
_RIDGE = 20.0
_MARGIN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Labelled flights; columns (n,)."""

    time_ms: NDArray[np.int64]
    score: Floats
    label: NDArray[np.int8]
    carrier: NDArray[np.uint8]

    def chosen(self, rows: NDArray[np.bool_]) -> _Rows:
        return _Rows(self.time_ms[rows], self.score[rows], self.label[rows], self.carrier[rows])


Answer = Callable[[_Rows], Floats]
Policy = Callable[[_Rows, int], Answer]
"""Fits to matured rows as of a time in epoch milliseconds."""


def _isotonic(train: _Rows, now_ms: int) -> Answer:
    fitted = Isotonic().fit(train.score, train.label)
    return lambda rows: fitted.predict(rows.score)


def _recent(train: _Rows, now_ms: int) -> _Rows:
    return train.chosen(train.time_ms >= now_ms - (_WINDOW_DAYS + 1) * DAY_MS)


def _isotonic_of_weeks(train: _Rows, now_ms: int) -> Answer:
    return _isotonic(_recent(train, now_ms), now_ms)


def _with_carrier(train: _Rows, now_ms: int) -> Answer:
    recent = _recent(train, now_ms)
    base = _isotonic(recent, now_ms)
    offset = _offsets(_log_odds(base(recent)), recent)
    return lambda rows: expit(_log_odds(base(rows)) + offset[rows.carrier])


def _platt_by_age(train: _Rows, now_ms: int) -> Answer:
    age_days = (now_ms - train.time_ms) / DAY_MS
    fitted = Platt().fit(train.score, train.label, 0.5 ** (age_days / _HALF_LIFE_DAYS))
    return lambda rows: fitted.predict(rows.score)


POLICIES: Mapping[str, tuple[Policy, bool]] = {
    "isotonic, fitted once": (_isotonic, False),
    "isotonic, last 14 days, daily": (_isotonic_of_weeks, True),
    "the same + carrier offset": (_with_carrier, True),
    "Platt, exponential weights, daily": (_platt_by_age, True),
}
"""Name -> policy, and whether it is fitted anew every day."""


def answers(flights: Flights, days: int) -> dict[str, Floats]:
    """(scores,) of each policy, by row of the flights, for the first so many days; the raw score before day 14."""
    periods = flights.days()[:days]
    row = flights.label_row
    labelled = _Rows(flights.score_time_ms[row], flights.score[row], flights.label, flights.carrier[row])
    made = {name: flights.score[: periods[-1].scores.stop].copy() for name in POLICIES}
    for name, (policy, daily) in POLICIES.items():
        answer: Answer | None = None
        for period in periods[EVALUATED_FROM_DAY:]:
            if answer is None or daily:
                mature = labelled.time_ms + MATURITY_MS <= period.start_ms
                answer = policy(labelled.chosen(mature), period.start_ms)
            asked = period.scores
            none = np.zeros(asked.stop - asked.start, dtype=np.int8)
            made[name][asked] = answer(
                _Rows(flights.score_time_ms[asked], flights.score[asked], none, flights.carrier[asked])
            )
    return made


def _log_odds(probability: Floats) -> Floats:
    return np.asarray(logit(np.clip(probability, _MARGIN, 1 - _MARGIN)))


def _offsets(log_odds: Floats, rows: _Rows) -> Floats:
    """(256,) in log-odds, by carrier: Newton steps of a logistic fit with a ridge."""
    found = np.zeros(256)
    for _ in range(8):
        p = expit(log_odds + found[rows.carrier])
        gradient = np.bincount(rows.carrier, rows.label - p, 256) - _RIDGE * found
        found += np.clip(gradient / (np.bincount(rows.carrier, p * (1 - p), 256) + _RIDGE), -1, 1)
    return found
