"""Standalone SVG files: the report's elements with style sheet and background of their own, and panels with axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from stream_calib.pages.svg import Scale, element, horizontal_grid, number

# The background is painted: a page that shows the picture need not follow the reader's colour scheme.
_STYLE = """
:root { --page: #ffffff; --text: #1b1f24; --soft: #57606a; --grid: #e6e9ed; --raw: #b85c00; --calibrated: #0b62a8;
  --other: #7a3e9d; --fourth: #1a7f4b; --floor: #9aa3ad; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --text: #e7eaee; --soft: #a3adb8; --grid: #2a3037;
  --raw: #f0a050; --calibrated: #6db5f2; --other: #c79ae3; --fourth: #5cc98d; --floor: #6d7781; --bad: #f28b82; } }
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
  fill: var(--text); font-variant-numeric: tabular-nums; }
.page { fill: var(--page); } .tick, .axis-name { fill: var(--soft); }
.panel-name { font-weight: 600; font-size: 14px; } .strong { font-weight: 600; }
.halo { paint-order: stroke; stroke: var(--page); stroke-width: 5px; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); }
.perfect { stroke: var(--soft); stroke-dasharray: 5 4; }
.edge { stroke: var(--bad); stroke-dasharray: 6 4; fill: none; }
.line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.interval { stroke-width: 2; } .wide { stroke-width: 7; }
.link { stroke: var(--floor); stroke-width: 1.5; }
.line.raw, .interval.raw { stroke: var(--raw); } .line.calibrated, .interval.calibrated { stroke: var(--calibrated); }
.line.other, .interval.other { stroke: var(--other); } .line.fourth, .interval.fourth { stroke: var(--fourth); }
.line.floor, .interval.floor { stroke: var(--floor); }
.wide.interval { opacity: 0.3; } .faint { opacity: 0.45; }
.dot.raw, .bar.raw { fill: var(--raw); } .dot.calibrated, .bar.calibrated { fill: var(--calibrated); }
.dot.other, .bar.other { fill: var(--other); } .dot.fourth, .bar.fourth { fill: var(--fourth); }
.dot.floor, .bar.floor { fill: var(--floor); }
.bar { opacity: 0.55; } .area { fill: var(--floor); opacity: 0.3; }
.chosen { fill: none; stroke: var(--text); stroke-width: 1.5; }
text.raw { fill: var(--raw); } text.calibrated { fill: var(--calibrated); } text.other { fill: var(--other); }
text.fourth { fill: var(--fourth); } text.bad { fill: var(--bad); }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle of the drawing with its scales; `y` runs upwards."""

    x: Scale
    y: Scale

    def frame(
        self,
        name: str,
        x_name: str,
        x_ticks: Sequence[tuple[float, str]],
        y_ticks: Sequence[tuple[float, str]],
    ) -> list[str]:
        """Grid, axis, ticks (place on the scale, text) and names; that of y belongs into the panel's `name`."""
        bottom, top = self.y.start, self.y.stop
        out = horizontal_grid(self.x, self.y, [place for place, _ in y_ticks], [text for _, text in y_ticks])
        out.append(element("line", "axis", x1=self.x.start, x2=self.x.stop, y1=bottom, y2=bottom))
        for place, text in x_ticks:
            out.append(element("line", "axis", x1=self.x(place), x2=self.x(place), y1=bottom, y2=bottom + 4))
            out.append(element("text", "tick middle", x=self.x(place), y=bottom + 19, text=text))
        out.append(element("text", "panel-name", x=self.x.start, y=top - 14, text=name))
        middle = (self.x.start + self.x.stop) / 2
        out.append(element("text", "axis-name middle", x=middle, y=bottom + 40, text=x_name))
        return out

    def interval(self, x: float, low: float, high: float, css: str) -> str:
        """Upright, cut off at the panel's edges."""
        low, high = max(low, self.y.low), min(high, self.y.high)
        return element("line", f"interval {css}", x1=self.x(x), x2=self.x(x), y1=self.y(low), y2=self.y(high))

    def dot(self, x: float, y: float, css: str, title: str = "", r: float = 4.0) -> str:
        return element("circle", f"dot {css}", title=title, cx=self.x(x), cy=self.y(y), r=r)


def percent_ticks(scale: Scale, about: int) -> list[tuple[float, str]]:
    """Round shares as `20 %`."""
    return [(place, f"{100 * place:g} %") for place in scale.ticks(about)]


def svg_page(width: float, height: float, label: str, elements: Iterable[str], style: str = "") -> str:
    """The whole file; `label` says to a screen reader what the picture shows. `style` is put before that of all."""
    w, h = number(width), number(height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
        f'aria-label="{escape(label)}">'
    )
    body = "\n".join([element("rect", "page", width=width, height=height), *elements])
    return f"{head}\n<style>{style}{_STYLE}</style>\n{body}\n</svg>\n"
