"""Reliability diagrams as SVG: shares of positives against mean probabilities, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_calib.pages.residual_chart import short_count
from stream_calib.pages.svg import Drawing, Scale, drawing, element, horizontal_grid, polyline

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
    limit = probability_limit((before, after))
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


def probability_limit(curves: Sequence[Curve]) -> float:
    """A round end of both axes beyond everything that the curves say and that came true."""
    most = max((max(*curve.probability, *curve.rate) for curve in curves if curve.rows), default=1.0)
    return next(limit for limit in _LIMITS if limit >= min(most, 1.0))


def counted_reliability(
    curve: Curve, lower_edges: Sequence[float], bin_width: float, css: str, name: str, noun: str, limit: float = 1.0
) -> Drawing:
    """One curve in a square up to `limit`; below it how many rows each bin has, from its lower edge (b,) on.

    `css` is the class of the series; `name` says what it is of.
    """
    width, height, left, count_top, count_bottom = 420.0, 500.0, 52.0, 398.0, 456.0
    x, y = Scale(0, limit, left, width - 14), Scale(0, limit, 376, 14)
    ticks = x.ticks(5)
    digits = max(1, *(len(f"{tick:g}".partition(".")[2]) for tick in ticks))
    labels = [f"{tick:.{digits}f}" for tick in ticks]
    out = horizontal_grid(x, y, ticks, labels)
    out.append(element("line", "perfect", x1=x(0), y1=y(0), x2=x(limit), y2=y(limit)))
    most = max(curve.rows, default=1)
    bar = Scale(0, most, count_bottom, count_top)
    out += curve_elements(x, y, _within(curve, limit), css, noun)
    for n, edge, said in zip(curve.rows, lower_edges, curve.said(noun), strict=True):
        start, stop = x(edge) + 1, x(min(edge + bin_width, limit)) - 1
        height_of_bar = max(count_bottom - bar(n), 0.8)
        out.append(
            element("rect", f"bar {css}", title=said, x=start, y=bar(n), width=stop - start, height=height_of_bar)
        )
    out.append(element("line", "axis", x1=x(0), x2=x(limit), y1=count_bottom, y2=count_bottom))
    out.append(element("text", "tick end", x=left - 8, y=count_top + 8, text=short_count(round(most))))
    out.append(element("text", "tick end", x=left - 8, y=count_bottom, text="0"))
    for tick, label in zip(ticks, labels, strict=True):
        out.append(element("text", "tick middle", x=x(tick), y=count_bottom + 17, text=label))
    middle = (x(0) + x(limit)) / 2
    out.append(element("text", "axis-name middle", x=middle, y=height - 8, text=f"{name}: what was said"))
    out.append(element("text", "axis-name", x=x(0) + 8, y=y(limit) + 16, text="what came true"))
    out.append(element("text", "axis-name end", x=x(limit), y=count_top + 8, text=noun))
    return Drawing(width, height, f"Reliability diagram of {name}", out)


def _within(curve: Curve, limit: float) -> Curve:
    """With intervals that end where the drawing does."""
    return Curve(curve.probability, curve.rate, curve.lower, [min(upper, limit) for upper in curve.upper], curve.rows)
