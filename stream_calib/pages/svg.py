"""Just enough SVG to draw charts: elements, linear scales and axes.

Colours, fonts and line widths are CSS classes of the page, so that one drawing serves light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from typing import NamedTuple

_DAY_MS = 86_400_000
_MONTHS_FROM_DAYS = 100
"""Length of an axis of time from which on months are told, not days."""


def element(name: str, css: str = "", text: str = "", title: str = "", **attributes: float | str) -> str:
    """One element; `_` in attribute names is written as `-`, numbers with at most two decimals."""
    parts = [f"<{name}"]
    if css:
        parts.append(f' class="{css}"')
    for key, value in attributes.items():
        shown = escape(value) if isinstance(value, str) else number(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{shown}"')
    inside = (f"<title>{escape(title)}</title>" if title else "") + escape(text)
    parts.append(f">{inside}</{name}>" if inside else "/>")
    return "".join(parts)


def number(value: float) -> str:
    """The shortest text of the number rounded to two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def signed(value: float) -> str:
    """The number with its sign, 0 without."""
    return f"{value:+g}".replace("-", "\N{MINUS SIGN}") if value else "0"


class Drawing(NamedTuple):
    """What `drawing` takes, for pages and for files of their own."""

    width: float
    height: float
    label: str
    elements: list[str]


def drawing(width: float, height: float, label: str, elements: Iterable[str], css: str = "") -> str:
    """A whole drawing that scales with the page; `label` says to a screen reader what it shows."""
    box = f"0 0 {number(width)} {number(height)}"
    body = "".join(elements)
    return f'<svg class="chart {css}" viewBox="{box}" role="img" aria-label="{escape(label)}">{body}</svg>'


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps low..high of the data linearly to start..stop of the drawing."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, about: int) -> list[float]:
        """Round numbers inside low..high, about as many as asked for."""
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(s for s in (power, 2 * power, 5 * power, 10 * power) if s >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def horizontal_grid(x: Scale, y: Scale, ticks: Sequence[float], labels: Sequence[str]) -> list[str]:
    """Grid lines across the drawing with their values on the left."""
    out: list[str] = []
    for value, label in zip(ticks, labels, strict=True):
        out.append(element("line", "grid", x1=x.start, x2=x.stop, y1=y(value), y2=y(value)))
        out.append(element("text", "tick end", x=x.start - 8, y=y(value) + 4, text=label))
    return out


def month_starts(first_ms: int, last_ms: int) -> list[tuple[int, str]]:
    """(epoch ms, name) of the months that begin inside the range, UTC; January carries the year."""
    moment = datetime.fromtimestamp(first_ms / 1000, timezone.utc)
    year, month = moment.year, moment.month
    out: list[tuple[int, str]] = []
    while True:
        month += 1
        if month == 13:
            year, month = year + 1, 1
        start = datetime(year, month, 1, tzinfo=timezone.utc)
        start_ms = int(start.timestamp() * 1000)
        if start_ms > last_ms:
            return out
        out.append((start_ms, f"{start:%b %Y}" if month == 1 else f"{start:%b}"))


def time_ticks(first_ms: int, last_ms: int, most: int = 14) -> list[tuple[int, str]]:
    """(epoch ms, name) of at most `most` months that begin inside the range, or days where it is shorter; UTC."""
    months = month_starts(first_ms, last_ms)
    if last_ms - first_ms >= _MONTHS_FROM_DAYS * _DAY_MS:
        return months[:: math.ceil(len(months) / most)]
    first_day, last_day = math.ceil(first_ms / _DAY_MS), last_ms // _DAY_MS
    days = range(first_day, last_day + 1, max(1, math.ceil((last_day - first_day + 1) / (most // 2))))
    moments = [datetime.fromtimestamp(day * _DAY_MS / 1000, timezone.utc) for day in days]
    return [(day * _DAY_MS, f"{when.day} {when:%b}") for day, when in zip(days, moments, strict=True)]


def polyline(points: Iterable[tuple[float, float]], css: str) -> str:
    """A line through the points; a point with NaN breaks it."""
    runs: list[list[str]] = [[]]
    for px, py in points:
        if math.isnan(py):
            runs.append([])
        else:
            runs[-1].append(f"{number(px)} {number(py)}")
    path = "".join(f"M{'L'.join(run)}" for run in runs if run)
    return f'<path class="{css}" d="{path}"/>' if path else ""
