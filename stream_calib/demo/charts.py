"""The report's charts of probabilities against outcomes, as SVG: reliability, and residuals of groups."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.demo.report_data import RELIABILITY_BINS, GroupResidual, Reliability
from stream_calib.pages.reliability_chart import Curve, curve_elements
from stream_calib.pages.residual_chart import ResidualRow, residual_chart, short_count
from stream_calib.pages.svg import Scale, drawing, element, horizontal_grid

_LEFT, _RIGHT = 52.0, 14.0


def reliability_chart(data: Reliability, css: str, name: str) -> str:
    """Share of positives against mean probability, with intervals; below it how many rows each bin has.

    `css` is the class of the series, "raw" or "calibrated".
    """
    width, height, count_top, count_bottom = 420.0, 500.0, 398.0, 456.0
    x = Scale(0, 1, _LEFT, width - _RIGHT)
    y = Scale(0, 1, 376, 14)
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    labels = [f"{t:.1f}" for t in ticks]
    out = horizontal_grid(x, y, ticks, labels)
    out.append(element("line", "perfect", x1=x(0), y1=y(0), x2=x(1), y2=y(1)))
    most = int(data.n.max())
    bar = Scale(0, most, count_bottom, count_top)
    curve = Curve(
        data.mean_probability.tolist(),
        data.rate.tolist(),
        data.rate_low.tolist(),
        data.rate_high.tolist(),
        data.n.tolist(),
    )
    out += curve_elements(x, y, curve, css, "flights")
    for n, edge, said in zip(data.n.tolist(), data.lower_edge.tolist(), curve.said("flights"), strict=True):
        left, right = x(edge) + 1, x(edge + 1 / RELIABILITY_BINS) - 1
        out.append(
            element(
                "rect",
                f"bar {css}",
                title=said,
                x=left,
                y=bar(n),
                width=right - left,
                height=max(count_bottom - bar(n), 0.8),
            )
        )
    out.append(element("line", "axis", x1=x(0), x2=x(1), y1=count_bottom, y2=count_bottom))
    out.append(element("text", "tick end", x=_LEFT - 8, y=count_top + 8, text=short_count(most)))
    out.append(element("text", "tick end", x=_LEFT - 8, y=count_bottom, text="0"))
    for t, label in zip(ticks, labels, strict=True):
        out.append(element("text", "tick middle", x=x(t), y=count_bottom + 17, text=label))
    out.append(element("text", "axis-name middle", x=(x(0) + x(1)) / 2, y=height - 8, text=f"{name}: what was said"))
    out.append(element("text", "axis-name", x=x(0) + 8, y=y(1) + 16, text="what came true"))
    out.append(element("text", "axis-name end", x=x(1), y=count_top + 8, text="flights"))
    return drawing(width, height, f"Reliability diagram of {name}", out)


def group_chart(groups: Sequence[GroupResidual]) -> str:
    """For each group how far the mean probability is off, raw and calibrated, in percentage points."""
    rows = [ResidualRow(g.family, g.name, g.n, g.rate, g.raw, g.calibrated) for g in groups]
    return residual_chart(rows, ("raw", "calibrated"), "flights")
