"""The flights' probabilities by several calibrators, each refitted every week to the eight weeks before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration import GIRB, Isotonic, Multicalibrator, Platt
from stream_calib.demo.flights import day_index, load_flights

Column = NDArray[np.float64]
Predictor = Callable[["LabelledFlights"], Column]

TRAINING_DAYS = 56
FIRST_DAY = 28
"""Before it there are too few days to fit to; figures count from here."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledFlights:
    """Columns (n,): raw score, label, carrier, origin, day from the first."""

    score: Column
    label: NDArray[np.int8]
    carrier: NDArray[np.str_]
    origin: NDArray[np.str_]
    day: NDArray[np.int64]

    @property
    def attributes(self) -> dict[str, list[str]]:
        return {"carrier": self.carrier.tolist(), "origin": self.origin.tolist()}

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> LabelledFlights:
        return LabelledFlights(
            self.score[chosen], self.label[chosen], self.carrier[chosen], self.origin[chosen], self.day[chosen]
        )

    def groups(self) -> list[NDArray[np.intp]]:
        """Group numbers (n,) of carrier, origin, and carrier x origin."""
        pair = np.char.add(np.char.add(self.carrier, " "), self.origin)
        return [np.unique(names, return_inverse=True)[1] for names in (self.carrier, self.origin, pair)]


def labelled_flights() -> LabelledFlights:
    """All flights that have a label, in the order of the labels."""
    flights = load_flights()
    row = flights.label_row
    day = day_index(flights.score_time_ms[row])
    carrier, origin = np.array(flights.carriers)[flights.carrier[row]], np.array(flights.origins)[flights.origin[row]]
    return LabelledFlights(flights.score[row], flights.label, carrier, origin, day - day[0])


METHODS: dict[str, Callable[[LabelledFlights], Predictor]] = {
    "raw scores": lambda train: lambda rows: rows.score,
    "Platt": lambda train: _of_score(Platt().fit(train.score, train.label)),
    "isotonic": lambda train: _of_score(Isotonic().fit(train.score, train.label)),
    "GIRB": lambda train: _of_score(GIRB().fit(train.score, train.label)),
    "Multicalibrator": lambda train: _of_groups(
        Multicalibrator(depth=2).fit(train.score, train.label, train.attributes)
    ),
}


def _of_score(fitted: GIRB | Platt | Isotonic) -> Predictor:
    return lambda rows: fitted.predict(rows.score)


def _of_groups(fitted: Multicalibrator) -> Predictor:
    return lambda rows: fitted.predict(rows.score, rows.attributes)


def predict_weeks(flights: LabelledFlights) -> tuple[LabelledFlights, dict[str, Column]]:
    """The flights from day 28 on, by day, and each method's probabilities of them.

    A week is predicted by fits to the labels of the 56 days that end a day before it: labels need a day to arrive.
    """
    flights = flights.rows(np.argsort(flights.day, kind="stable"))
    found: dict[str, list[Column]] = {name: [] for name in METHODS}
    for start in range(FIRST_DAY, int(flights.day.max()) + 1, 7):
        train = flights.rows((flights.day >= start - 1 - TRAINING_DAYS) & (flights.day < start - 1))
        week = flights.rows((flights.day >= start) & (flights.day < start + 7))
        for name, fit in METHODS.items():
            found[name].append(fit(train)(week))
    evaluated = flights.rows(flights.day >= FIRST_DAY)
    return evaluated, {name: np.concatenate(parts) for name, parts in found.items()}


def overdispersion(part: NDArray[np.intp], flights: LabelledFlights, probability: Column) -> float:
    """How many times the variance of residual sums over (part, day) exceeds that of independent rows, in the mean.

    It grows with the rows that share a day, so it has to be measured on parts as large as those that are shown.
    """
    _, block = np.unique(np.stack([part, flights.day]), axis=1, return_inverse=True)
    sums = np.bincount(block.reshape(-1), flights.label - probability)
    return float((sums**2).sum() / (probability * (1 - probability)).sum())
