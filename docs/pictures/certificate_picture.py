"""Cells of a certificate, and how many rows it takes to certify an alpha."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from flight_weeks import LabelledFlights
from svg_page import Panel, svg_page

from stream_calib.calibration import (
    AuditTarget,
    Certificate,
    Multicalibrator,
    families_up_to,
    make_family,
    multicalibrate_cells,
)
from stream_calib.calibration.labelled_rows import LabelledRows
from stream_calib.pages.svg import Scale, element, polyline, signed

_GAMMA, _ALPHA = 0.05, 0.05
_SHOWN = 14
_ROW, _TOP = 22.0, 46.0
_SMALLEST = 0.004
_GAMMAS = {0.01: "raw", 0.05: "fourth", 0.2: "calibrated"}


def certificate_picture(flights: LabelledFlights) -> str:
    """Of the flights, each a unit."""
    fitted = Multicalibrator(depth=2, gamma=_GAMMA, alpha_abs=_ALPHA)
    fitted.fit(flights.score, flights.label, flights.attributes)
    out = [*_cells(fitted.certificate_), *_rows_needed(flights, fitted)]
    return svg_page(900, 410, "Cells of a certificate, and the rows that an alpha takes", out)


def _cells(certificate: Certificate) -> list[str]:
    reach = 11.0
    x = Scale(-reach, reach, 290, 526)
    bottom = _TOP + _ROW * _SHOWN
    name = f"{certificate.total_rows:,.0f} rows: residual, points"
    out = [element("text", "panel-name", x=14, y=_TOP - 14, text=name)]
    for tick in (-10.0, -5.0, 0.0, 5.0, 10.0):
        out.append(element("line", "axis" if tick == 0 else "grid", x1=x(tick), x2=x(tick), y1=_TOP, y2=bottom))
        out.append(element("text", "tick middle", x=x(tick), y=bottom + 20, text=signed(tick)))
    for place in range(_SHOWN):
        residual, width, alpha = (
            100 * float(column[place]) for column in (certificate.residual, certificate.half_width, certificate.alpha)
        )
        middle = _TOP + _ROW * (place + 0.5)
        out.append(element("rect", "area", x=x(-alpha), width=x(alpha) - x(-alpha), y=middle - 8, height=16))
        css = "calibrated" if abs(residual) + width <= alpha else "raw"
        ends = [x(min(max(residual + side * width, -reach), reach)) for side in (-1, 1)]
        out.append(element("line", f"interval {css}", x1=ends[0], x2=ends[1], y1=middle, y2=middle))
        out.append(element("circle", f"dot {css}", cx=x(residual), cy=middle, r=4))
        out.append(element("text", "tick end", x=282, y=middle + 4, text=certificate.cell_name(place)))
    out.append(element("text", "axis-name middle", x=x(0), y=bottom + 42, text="grey: what alpha allows"))
    return out


def _rows_needed(flights: LabelledFlights, fitted: Multicalibrator) -> list[str]:
    """Counts of the flights, scaled: half-widths depend on counts alone."""
    rows = LabelledRows.checked(flights.score, flights.label, flights.attributes, None)
    cells = rows.cells(np.ones(len(flights.score), dtype=np.bool_))
    families = [make_family(rule, cells.signatures) for rule in families_up_to(2, ["carrier", "origin"])]
    low, high = float(np.log10(_SMALLEST)), float(np.log10(0.5))
    panel = Panel(Scale(3.5, 7, 594, 880), Scale(low, high, _TOP + _ROW * _SHOWN, _TOP))
    out = panel.frame(
        "Smallest alpha that can be certified",
        "rows of the certificate",
        [(3.5, ""), (4.0, "10,000"), (5.0, "100,000"), (6.0, "1,000,000")],
        [(float(np.log10(share)), f"{share:g}") for share in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)],
    )
    total = float(cells.labelled.sum())
    for line, (gamma, css) in enumerate(_GAMMAS.items()):
        points = []
        for place in np.linspace(3.5, 7, 15).tolist():
            share = 10**place / total
            scaled = replace(cells, labelled=cells.labelled * share, positives=cells.positives * share)
            found = multicalibrate_cells(
                cells, [scaled], scaled, families, replace(fitted.parts_, rounds=()), target=AuditTarget(gamma=gamma)
            )
            at = float(np.log10(found.certificate.detectable_alpha))
            points.append((panel.x(place), panel.y(at) if low <= at <= high else float("nan")))
        out.append(polyline(points, f"line {css}"))
        name = f"cells of {100 * gamma:g} % or more"
        out.append(element("text", f"end {css}", x=panel.x.stop - 6, y=_TOP + 14 + 19 * line, text=name))
    return out
