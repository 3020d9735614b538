"""How large the ECE of perfect probabilities is by noise alone, by the number of rows."""

from __future__ import annotations

import numpy as np
from flight_weeks import Column, LabelledFlights
from svg_page import Panel, svg_page

from stream_calib.calibration.metrics import ece, ece_of_perfect
from stream_calib.pages.svg import Scale, element, polyline

_ROWS = (300, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
_DRAWS = 60


def ece_picture(flights: LabelledFlights, probability: Column) -> str:
    """Perfect probabilities have labels drawn from themselves; raw scores have the flights'."""
    rng = np.random.default_rng(5)
    panel = Panel(Scale(2.4, 5.03, 60, 600), Scale(0, 0.11, 340, 46))
    out = panel.frame(
        "ECE, 15 bins of equal mass",
        "rows evaluated",
        [(float(np.log10(n)), f"{n:,}") for n in (300, 1_000, 3_000, 10_000, 30_000, 100_000)],
        [(share, f"{share:g}") for share in (0.0, 0.02, 0.04, 0.06, 0.08, 0.1)],
    )
    shown: dict[str, list[list[float]]] = {"raw": [], "calibrated": []}
    expected = []
    for n in _ROWS:
        drawn = [rng.choice(len(probability), n, replace=False) for _ in range(_DRAWS)]
        shown["raw"].append([ece(flights.label[rows], flights.score[rows]) for rows in drawn])
        shown["calibrated"].append([ece(rng.random(n) < probability[rows], probability[rows]) for rows in drawn])
        expected.append(ece_of_perfect(probability[drawn[0]]))
    at = [float(np.log10(n)) for n in _ROWS]
    for (css, values), aside in zip(shown.items(), (-0.015, 0.015), strict=True):
        for place, of_size in zip(at, values, strict=True):
            x = place + aside
            low, high = np.quantile(of_size, [0.05, 0.95])
            out.append(panel.interval(x, float(low), float(high), f"wide {css}"))
            out.append(panel.dot(x, float(np.mean(of_size)), css))
    out.append(polyline([(panel.x(x), panel.y(e)) for x, e in zip(at, expected, strict=True)], "line calibrated faint"))
    for line, (css, text) in enumerate(
        (("raw", "raw scores of the flights"), ("calibrated", "true probabilities: noise alone"))
    ):
        out.append(element("text", f"end {css}", x=panel.x.stop - 8, y=66 + 20 * line, text=text))
    said = "bars: 90 % of samples; line: ece_of_perfect"
    out.append(element("text", "tick end", x=panel.x.stop - 8, y=106, text=said))
    return svg_page(640, 396, "ECE that noise alone shows, by the number of rows", out)
