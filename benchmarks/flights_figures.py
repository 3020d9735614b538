"""What policies on the flights are worth: over the whole year and either half of it, against goals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.alerts.model import Alert
from stream_calib.calibration.metrics import log_loss, worst_group_error
from stream_calib.config_refits import DriftSection
from stream_calib.demo.figures import EVALUATED_FROM_DAY, evaluated_rows, flight_families
from stream_calib.demo.flights import Flights, day_index

LAST_DAY = 306
"""Days of the year that the flights are of: March to December."""
MIDDLE_DAY = (EVALUATED_FROM_DAY + LAST_DAY) // 2
"""Here the second half of the evaluated days begins. Defaults are chosen on the first one alone."""
PARTS = {
    "year": (EVALUATED_FROM_DAY, LAST_DAY),
    "first half": (EVALUATED_FROM_DAY, MIDDLE_DAY),
    "second half": (MIDDLE_DAY, LAST_DAY),
}
"""Name -> first day, and the day behind the last."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Of one policy over some days; `worst_group_error` in percent."""

    log_loss: float
    worst_group_error: float


@dataclass(frozen=True, slots=True)
class Goal:
    """Both are to be reached, and not above."""

    log_loss: float
    worst_group_error: float

    def met(self, worth: Worth) -> bool:
        return worth.log_loss <= self.log_loss and worth.worst_group_error <= self.worst_group_error


GIVEN = {
    "raw scores": Worth(0.52389, 13.1),
    "isotonic, fitted once": Worth(0.51889, 9.3),
    "isotonic, last 14 days, daily": Worth(0.51233, 6.3),
    "the same + carrier offset": Worth(0.50966, 3.7),
    "Platt, exponential weights, daily": Worth(0.50987, 6.4),
    "MCGrad, last 28 days, every 3 days": Worth(0.50646, 5.6),
    "MCGrad, last 28 days, daily": Worth(0.50550, 5.2),
    "MCGrad, daily, hour of day as a feature": Worth(0.50008, 5.9),
}
"""Other policies over the year, as they were measured before; what is cheap is measured anew beside them."""


def worth(flights: Flights, served: NDArray[np.float64]) -> dict[str, Worth]:
    """By part of the year, of what was served (scores,) for the first scores; parts without both classes are left
    out."""
    rows = evaluated_rows(flights)
    rows = rows[flights.label_row[rows] < len(served)]
    row, label = flights.label_row[rows], flights.label[rows]
    day = day_index(flights.score_time_ms[row]) - day_index(flights.score_time_ms[:1])
    families = flight_families(flights, row)
    found = {}
    for name, (first, end) in PARTS.items():
        own = (day >= first) & (day < end)
        if len(np.unique(label[own])) == 2:
            groups = [family[own] for family in families]
            p = served[row[own]]
            found[name] = Worth(log_loss(label[own], p), worst_group_error(label[own], p, groups))
    return found


@dataclass(frozen=True, slots=True)
class Alarms:
    """How often a detector opened an alert, and how often it may without a reason."""

    detector: str
    opened: int
    budget: float


def alarms(alerts: Sequence[Alert], drift: DriftSection, days: int) -> list[Alarms]:
    """Of the detectors that have a budget; alerts may hold updates and closings too."""
    opened = Counter[str](alert.kind for alert in alerts if alert.state == "open")
    per_days = dict.fromkeys(("psi", "residual", "label_selection"), drift.false_alarm_days)
    per_days["residual_page"] = drift.page_days
    return [Alarms(kind, opened[kind], days / period) for kind, period in per_days.items()]
