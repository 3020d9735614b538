"""Offsets of groups with their uncertainty, in log-odds and as a change in probability."""

from __future__ import annotations

import numpy as np
from flight_weeks import LabelledFlights
from svg_page import svg_page

from stream_calib.calibration import GIRB, GroupEffect, families_up_to, fit_joint, group_effects, make_family
from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.labelled_rows import LabelledRows
from stream_calib.pages.svg import Scale, element, signed

_ROW, _TOP = 21.0, 62.0
_ERRORS = 2.0
"""Standard errors to both sides."""


def offsets_picture(flights: LabelledFlights) -> str:
    """Carriers and origins of the last 56 days, fitted jointly with their pairs."""
    last = flights.rows(flights.day > flights.day.max() - 56)
    rows = LabelledRows.checked(last.score, last.label, last.attributes, None)
    cells = rows.cells(np.ones(len(last.score), dtype=np.bool_))
    counts = (np.bincount(cells.grid_bin, column, N_BINS) for column in (cells.labelled, cells.positives))
    base = GIRB().fit_cells(*counts).base_map()
    families = [make_family(rule, cells.signatures) for rule in families_up_to(2, ["carrier", "origin"])]
    effects = group_effects(fit_joint(cells, base, families), cells, base)
    shown = [effect for effect in effects if len(effect.key) == 1]
    shown.sort(key=lambda effect: (effect.family != "origin", effect.offset))
    height = _TOP + _ROW * len(shown)
    out = [element("text", "tick end", x=166, y=_TOP - 14, text="flights")]
    for place, effect in enumerate(shown):
        middle = _TOP + _ROW * (place + 0.5)
        out.append(element("text", "strong", x=20, y=middle + 4, text=effect.name))
        out.append(element("text", "tick end", x=166, y=middle + 4, text=f"{effect.labelled:,.0f}"))
    out += _panel(shown, "Offset, log-odds", "offset", "offset_error", 1.0, (190.0, 490.0), height)
    out += _panel(shown, "Change in probability, points", "change", "change_error", 100.0, (524.0, 820.0), height)
    return svg_page(840, height + 40, "Offsets of carriers and origins with their uncertainty", out)


def _panel(
    shown: list[GroupEffect], name: str, value: str, error: str, unit: float, ends: tuple[float, float], bottom: float
) -> list[str]:
    columns = [(unit * getattr(effect, value), _ERRORS * unit * getattr(effect, error)) for effect in shown]
    reach = max(abs(at) + width for at, width in columns) * 1.05
    x = Scale(-reach, reach, *ends)
    out = [element("text", "panel-name", x=ends[0], y=_TOP - 34, text=name)]
    for tick in x.ticks(6):
        out.append(element("line", "axis" if tick == 0 else "grid", x1=x(tick), x2=x(tick), y1=_TOP, y2=bottom))
        out.append(element("text", "tick middle", x=x(tick), y=bottom + 20, text=signed(tick)))
    for place, (at, width) in enumerate(columns):
        middle = _TOP + _ROW * (place + 0.5)
        low, high = x(at - width), x(at + width)
        clear = abs(at) > width
        out.append(element("line", "interval calibrated", x1=low, x2=high, y1=middle, y2=middle))
        css = "dot calibrated" if clear else "dot floor"
        out.append(element("circle", css, title=f"{at:+.3f} +- {width:.3f}", cx=x(at), cy=middle, r=4.5))
    return out
