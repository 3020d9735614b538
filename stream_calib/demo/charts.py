"""The report's charts of probabilities against outcomes, as SVG: reliability, and residuals of groups."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.demo.report_data import RELIABILITY_BINS, GroupResidual, Reliability
from stream_calib.demo.svg import Scale, drawing, element, horizontal_grid, polyline, signed

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
    points = list(zip(data.mean_probability.tolist(), data.rate.tolist(), strict=True))
    out.append(polyline([(x(p), y(r)) for p, r in points], f"line {css}"))
    for (p, r), low, high, n, edge in zip(
        points, data.rate_low.tolist(), data.rate_high.tolist(), data.n.tolist(), data.lower_edge.tolist(), strict=True
    ):
        said = f"{n:,} flights: said {p:.1%}, came true {r:.1%} (interval {low:.1%} to {high:.1%})"
        out.append(element("line", f"interval {css}", x1=x(p), x2=x(p), y1=y(low), y2=y(high)))
        out.append(element("circle", f"dot {css}", title=said, cx=x(p), cy=y(r), r=4.5))
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
    out.append(element("text", "tick end", x=_LEFT - 8, y=count_top + 8, text=_short(most)))
    out.append(element("text", "tick end", x=_LEFT - 8, y=count_bottom, text="0"))
    for t, label in zip(ticks, labels, strict=True):
        out.append(element("text", "tick middle", x=x(t), y=count_bottom + 17, text=label))
    out.append(element("text", "axis-name middle", x=(x(0) + x(1)) / 2, y=height - 8, text=f"{name}: what was said"))
    out.append(element("text", "axis-name", x=x(0) + 8, y=y(1) + 16, text="what came true"))
    out.append(element("text", "axis-name end", x=x(1), y=count_top + 8, text="flights"))
    return drawing(width, height, f"Reliability diagram of {name}", out)


def group_chart(groups: Sequence[GroupResidual]) -> str:
    """For each group how far the mean probability is off, raw and calibrated, in percentage points.

    Groups of one family stand together, in the order given.
    """
    row, top, left, width = 20.0, 20.0, 96.0, 660.0
    families = list(dict.fromkeys(g.family for g in groups))
    bottom = top + row * (len(groups) + 1.4 * len(families)) + 4
    reach = max(abs(v) for g in groups for v in (g.raw, g.calibrated)) * 100
    x = Scale(-reach * 1.08, reach * 1.08, left, width - _RIGHT)
    out = []
    for t in x.ticks(9):
        css = "axis" if t == 0 else "grid"
        out.append(element("line", css, x1=x(t), x2=x(t), y1=top, y2=bottom))
        out.append(element("text", "tick middle", x=x(t), y=bottom + 18, text=signed(t)))
    out.append(element("text", "axis-name end", x=x(0) - 8, y=12, text="\N{LEFTWARDS ARROW} says too little"))
    out.append(element("text", "axis-name", x=x(0) + 8, y=12, text="says too much \N{RIGHTWARDS ARROW}"))
    out.append(element("text", "axis-name end", x=width - _RIGHT, y=12, text="percentage points"))
    out.append(element("text", "axis-name end", x=left - 10, y=12, text="flights"))
    y = top
    for family in families:
        y += 1.4 * row
        out.append(element("text", "panel-name", x=0, y=y - 3, text=family))
        for group in (g for g in groups if g.family == family):
            y += row
            out += _group_row(group, x, y - row / 2, left)
    return drawing(width, bottom + 26, "Mean residual by group, raw and calibrated", out, "groups")


def _group_row(g: GroupResidual, x: Scale, centre: float, left: float) -> list[str]:
    raw, calibrated = x(100 * g.raw), x(100 * g.calibrated)
    said = f"{g.name}: {g.n:,} flights, {g.rate:.1%} came true; mean of"
    raw_said, calibrated_said = (
        f"{said} {name} {g.rate + v:.1%}" for name, v in (("raw", g.raw), ("calibrated", g.calibrated))
    )
    return [
        element("text", "tick group-name", x=12, y=centre + 4, text=g.name),
        element("text", "tick end", x=left - 10, y=centre + 4, text=_short(g.n)),
        element("line", "link", x1=raw, x2=calibrated, y1=centre, y2=centre),
        element("rect", "mark raw", title=raw_said, x=raw - 4, y=centre - 4, width=8, height=8),
        element("circle", "mark calibrated", title=calibrated_said, cx=calibrated, cy=centre, r=5),
    ]


def _short(n: int) -> str:
    return f"{n / 1000:.1f}k" if 1_000 <= n < 10_000 else f"{n / 1000:.0f}k" if n >= 10_000 else str(n)
