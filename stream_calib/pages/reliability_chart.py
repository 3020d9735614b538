"""Reliability diagrams as SVG: shares of positives against mean probabilities, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_calib.pages.svg import Scale, drawing, element, horizontal_grid, polyline

_LIMITS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """b bins in order of probability; columns (b,)."""

    probability: Sequence[float]
    """Mean."""
    rate: Sequence[float]
    """Share of positives."""
    lower: Sequence[float]
    """Bounds on the true rates; so the next."""
    upper: Sequence[float]
    rows: Sequence[float]

    def said(self, noun: str) -> list[str]:
        """(b,) each bin in words; rows are called `noun`."""
        return [
            f"{n:,.0f} {noun}: said {p:.1%}, came true {r:.1%} (interval {low:.1%} to {high:.1%})"
            for p, r, low, high, n in zip(self.probability, self.rate, self.lower, self.upper, self.rows, strict=True)
        ]


def curve_elements(x: Scale, y: Scale, curve: Curve, css: str, noun: str, square: bool = False) -> list[str]:
    """Line, intervals, and for each bin a dot, or a square, that says what it stands for."""
    points = list(zip(curve.probability, curve.rate, strict=True))
    out = [polyline([(x(p), y(r)) for p, r in points], f"line {css}")]
    for (p, r), low, high, said in zip(points, curve.lower, curve.upper, curve.said(noun), strict=True):
        out.append(element("line", f"interval {css}", x1=x(p), x2=x(p), y1=y(low), y2=y(high)))
        if square:
            out.append(element("rect", f"dot {css}", title=said, x=x(p) - 4, y=y(r) - 4, width=8, height=8))
        else:
            out.append(element("circle", f"dot {css}", title=said, cx=x(p), cy=y(r), r=4.5))
    return out


def compared_reliability(before: Curve, after: Curve, noun: str) -> str:
    """Two curves in one square, `before` of the class `raw` and `after` of the class `calibrated`.

    Where all probabilities are small, only the corner that has them is drawn.
    """
    most = max(*before.probability, *after.probability, *before.rate, *after.rate)
    limit = next(limit for limit in _LIMITS if limit >= most)
    width, height, left, right = 460.0, 470.0, 56.0, 14.0
    x, y = Scale(0, limit, left, width - right), Scale(0, limit, 410, 14)
    ticks = x.ticks(5)
    labels = [f"{tick:g}" for tick in ticks]
    out = horizontal_grid(x, y, ticks, labels)
    out.append(element("line", "perfect", x1=x(0), y1=y(0), x2=x(limit), y2=y(limit)))
    out += curve_elements(x, y, _within(before, limit), "raw", noun, square=True)
    out += curve_elements(x, y, _within(after, limit), "calibrated", noun)
    out.append(element("line", "axis", x1=x(0), x2=x(limit), y1=y(0), y2=y(0)))
    for tick, label in zip(ticks, labels, strict=True):
        out.append(element("text", "tick middle", x=x(tick), y=y(0) + 17, text=label))
    out.append(element("text", "axis-name middle", x=(x(0) + x(limit)) / 2, y=height - 22, text="what was said"))
    out.append(element("text", "axis-name", x=x(0) + 8, y=y(limit) + 16, text="what came true"))
    return drawing(width, height - 12, "Reliability diagram of what is served and of the candidate", out)


def _within(curve: Curve, limit: float) -> Curve:
    """With intervals that end where the drawing does."""
    return Curve(curve.probability, curve.rate, curve.lower, [min(upper, limit) for upper in curve.upper], curve.rows)
