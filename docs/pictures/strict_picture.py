"""What strictness costs: by how much it moves a probability, and what plateaus do to AUC."""

from __future__ import annotations

import numpy as np
from flight_weeks import LabelledFlights
from scipy.special import expit
from svg_page import Panel, svg_page

from stream_calib.calibration import GIRB, Isotonic
from stream_calib.calibration.metrics import auc
from stream_calib.pages.svg import Scale, element, polyline, signed

_ROWS = 20_000
_LIMIT = 5.0
"""What `GIRB` promises, in 1/1,000,000."""


def strict_picture(flights: LabelledFlights) -> str:
    """Of a GIRB and of isotonic regression fitted to rows drawn at random."""
    few = flights.rows(np.sort(np.random.default_rng(7).choice(len(flights.score), _ROWS, replace=False)))
    tied, strict = (GIRB(strict=kind).fit(few.score, few.label) for kind in (False, True))
    at = np.linspace(-6, 6, 600)
    moved = 1e6 * (strict.predict(expit(at)) - tied.predict(expit(at)))
    panel = Panel(Scale(-6, 6, 60, 520), Scale(-6, 6, 280, 46))
    out = panel.frame(
        "GIRB: strict less not strict, 1/1,000,000 in probability",
        "raw score, log-odds",
        [(place, signed(place)) for place in panel.x.ticks(6)],
        [(place, signed(place)) for place in (-4.0, -2.0, 0.0, 2.0, 4.0)],
    )
    for limit in (-_LIMIT, _LIMIT):
        y = panel.y(limit)
        out.append(element("line", "edge", x1=panel.x.start, x2=panel.x.stop, y1=y, y2=y))
    out.append(element("text", "bad", x=panel.x.start + 8, y=panel.y(_LIMIT) + 16, text="no further, by construction"))
    out.append(polyline(zip(map(panel.x, at.tolist()), map(panel.y, moved.tolist()), strict=True), "line calibrated"))
    out.append(element("text", "panel-name", x=570, y=32, text="AUC of all flights"))
    isotonic = Isotonic().fit(few.score, few.label)
    shown = (
        ("raw scores", "raw", flights.score),
        ("isotonic", "other", isotonic.predict(flights.score)),
        ("GIRB, not strict", "fourth", tied.predict(flights.score)),
        ("GIRB, strict", "calibrated", strict.predict(flights.score)),
    )
    for line, (name, css, p) in enumerate(shown):
        y = 70 + 48 * line
        values = len(np.unique(p))
        out.append(element("text", f"strong {css}", x=570, y=y, text=name))
        out.append(element("text", "strong end", x=800, y=y, text=f"{auc(flights.label, p):.6f}"))
        out.append(element("text", "tick", x=570, y=y + 19, text=f"{values:,} different values"))
    return svg_page(840, 334, "What strictness costs in probability, and what it keeps of AUC", out)
