"""Reliability before and after, with bands for all bins at once: for independent rows, and for rows that share days."""

from __future__ import annotations

import numpy as np
from flight_weeks import Column, LabelledFlights, overdispersion
from svg_page import Panel, percent_ticks, svg_page

from stream_calib.calibration.metrics import ReliabilityCurve, reliability_curve
from stream_calib.pages.svg import Scale, element, polyline, signed

_BINS = 15
_TOP, _BOTTOM, _WIDTH = 114.0, 410.0, 330.0
_REACH = 10.0
"""Percentage points up and down."""


def reliability_picture(flights: LabelledFlights, probabilities: dict[str, Column]) -> str:
    """Raw scores beside the Multicalibrator's probabilities: what came true less what was said."""
    out, phis = [], []
    shown = (("raw", "Raw scores", flights.score), ("calibrated", "Calibrated", probabilities["Multicalibrator"]))
    for left, (css, name, p) in zip((56.0, 478.0), shown, strict=True):
        panel = Panel(Scale(0, 0.7, left, left + _WIDTH), Scale(-_REACH, _REACH, _BOTTOM, _TOP))
        ticks = [(place, signed(place)) for place in panel.y.ticks(4)]
        out += panel.frame(f"{name}: points by which more came true", "what was said", percent_ticks(panel.x, 7), ticks)
        out.append(element("line", "perfect", x1=panel.x(0), y1=panel.y(0), x2=panel.x(0.7), y2=panel.y(0)))
        bins = np.argsort(np.argsort(p, kind="stable"), kind="stable") * _BINS // len(p)
        phi = overdispersion(bins, flights, p)
        out += _intervals(panel, reliability_curve(flights.label, p, n_bins=_BINS, overdispersion=phi), f"wide {css}")
        curve = reliability_curve(flights.label, p, n_bins=_BINS)
        out += _intervals(panel, curve, css)
        points = list(zip(curve.mean_probability.tolist(), curve.rate.tolist(), strict=True))
        out.append(polyline([(panel.x(p), panel.y(100 * (r - p))) for p, r in points], f"line faint {css}"))
        out += [panel.dot(p, 100 * (r - p), css, f"said {p:.1%}, came true {r:.1%}") for p, r in points]
        phis.append(phi)
    for line, (css, text) in enumerate(
        (
            ("strong", "Flights, refitted every week, each week judged by the fit before it"),
            ("tick", "thin: 95 % bands of all 15 bins together, as if flights were independent"),
            (
                "tick",
                f"wide: the same where a flight counts 1/{max(phis):.0f}, as those of one day are not independent",
            ),
        )
    ):
        out.append(element("text", css, x=56, y=22 + 20 * line, text=text))
    return svg_page(840, 464, "Reliability of raw scores and of calibrated probabilities of the flights", out)


def _intervals(panel: Panel, curve: ReliabilityCurve, css: str) -> list[str]:
    columns = (curve.mean_probability, curve.lower, curve.upper)
    return [
        panel.interval(p, 100 * (low - p), 100 * (high - p), css)
        for p, low, high in zip(*(column.tolist() for column in columns), strict=True)
    ]
