"""How far groups are off, before and after, as SVG: two marks a group on one scale of percentage points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_calib.pages.svg import Scale, drawing, element, signed

_WIDTH, _RIGHT, _ROW, _TOP = 660.0, 14.0, 20.0, 20.0
_LETTER = 7.3
"""Width of one."""


@dataclass(frozen=True, slots=True)
class ResidualRow:
    """One group."""

    family: str
    """Groups of one family stand together, under its name."""
    name: str
    n: int
    rate: float
    """Share of positives."""
    before: float
    """Mean probability minus rate; so the next."""
    after: float
    rate_interval: tuple[float, float] | None = None
    """Of the true rate; drawn around `after`, as far as the scale goes."""


def residual_chart(rows: Sequence[ResidualRow], names: tuple[str, str], noun: str) -> str:
    """Groups in the order given. `names`: of what was before and after; `noun`: what the rows are called."""
    longest = max((len(row.name) for row in rows), default=0)
    left = max(96.0, min(longest, 40) * _LETTER + 70)
    families = list(dict.fromkeys(row.family for row in rows))
    headed = sum(bool(family) for family in families)
    bottom = _TOP + _ROW * (len(rows) + 1.4 * headed) + 4
    reach = max((abs(v) for row in rows for v in (row.before, row.after)), default=0.0) * 100 or 1.0
    x = Scale(-reach * 1.08, reach * 1.08, left, _WIDTH - _RIGHT)
    out = []
    for tick in x.ticks(9 if left < 200 else 5):
        css = "axis" if tick == 0 else "grid"
        out.append(element("line", css, x1=x(tick), x2=x(tick), y1=_TOP, y2=bottom))
        out.append(element("text", "tick middle", x=x(tick), y=bottom + 18, text=signed(tick)))
    out.append(element("text", "axis-name end", x=x(0) - 8, y=12, text="\N{LEFTWARDS ARROW} says too little"))
    out.append(element("text", "axis-name", x=x(0) + 8, y=12, text="says too much \N{RIGHTWARDS ARROW}"))
    out.append(element("text", "axis-name end", x=_WIDTH - _RIGHT, y=bottom + 36, text="percentage points"))
    out.append(element("text", "axis-name end", x=left - 10, y=12, text=noun))
    y = _TOP
    for family in families:
        if family:
            y += 1.4 * _ROW
            out.append(element("text", "panel-name", x=0, y=y - 3, text=family))
        for row in (row for row in rows if row.family == family):
            y += _ROW
            out += _row(row, x, y - _ROW / 2, left, names, noun)
    label = f"Mean residual by group, {names[0]} and {names[1]}"
    return drawing(_WIDTH, bottom + 42, label, out, "groups")


def _row(row: ResidualRow, x: Scale, centre: float, left: float, names: tuple[str, str], noun: str) -> list[str]:
    before, after = x(100 * row.before), x(100 * row.after)
    interval: list[str] = []
    if row.rate_interval is not None:
        probability = row.rate + row.after
        ends = [x(min(max(100 * (probability - bound), x.low), x.high)) for bound in row.rate_interval]
        interval = [element("line", "interval calibrated", x1=ends[1], x2=ends[0], y1=centre, y2=centre)]
    said = f"{row.name}: {row.n:,} {noun}, {row.rate:.1%} came true; mean of"
    before_said, after_said = (
        f"{said} {name} {row.rate + v:.1%}" for name, v in zip(names, (row.before, row.after), strict=True)
    )
    shown = row.name if len(row.name) <= 40 else row.name[:39] + "\N{HORIZONTAL ELLIPSIS}"
    return [
        element("text", "tick group-name", x=12, y=centre + 4, text=shown),
        element("text", "tick end", x=left - 10, y=centre + 4, text=short_count(row.n)),
        *interval,
        element("line", "link", x1=before, x2=after, y1=centre, y2=centre),
        element("rect", "mark raw", title=before_said, x=before - 4, y=centre - 4, width=8, height=8),
        element("circle", "mark calibrated", title=after_said, cx=after, cy=centre, r=5),
    ]


def short_count(n: int) -> str:
    """As 950, 1.2k, 34k."""
    return f"{n / 1000:.1f}k" if 1_000 <= n < 10_000 else f"{n / 1000:.0f}k" if n >= 10_000 else str(n)
