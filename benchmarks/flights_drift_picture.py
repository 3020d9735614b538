"""Alarms of residual detectors on the flights as one SVG: a lane for each way of reckoning, a stroke for each day."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from stream_calib.pages.svg import Scale, drawing, element

_STYLE = (
    ".chart{font:13px system-ui,sans-serif;background:#fff}.grid{stroke:#ddd}.axis{stroke:#57606a}"
    "text{fill:#1b1f24}.tick{fill:#57606a}.end{text-anchor:end}.middle{text-anchor:middle}"
    ".panel-name{font-weight:600}.bar{fill:#b3261e}"
)
_LEFT, _RIGHT, _TOP, _LANE = 220.0, 960.0, 44.0, 64.0
_MONTHS = ("Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH_DAYS = (31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def picture(days_by_name: Mapping[str, Sequence[int]], days: int) -> str:
    """A whole SVG file. `days_by_name`: name of a lane -> day of each alarm, from the first of March on."""
    x = Scale(0, days, _LEFT, _RIGHT)
    counts = {name: Counter(alarms) for name, alarms in days_by_name.items()}
    most = max((n for counter in counts.values() for n in counter.values()), default=1)
    bottom = _TOP + _LANE * len(counts)
    out = [element("text", "panel-name", x=_LEFT, y=20, text="Alarms of single cells, by day (log heights)")]
    start = 0
    for name, length in zip(_MONTHS, _MONTH_DAYS, strict=True):
        if start < days:
            out.append(element("line", "grid", x1=x(start), x2=x(start), y1=_TOP - 10, y2=bottom))
            out.append(element("text", "tick", x=x(start) + 4, y=bottom + 18, text=name))
        start += length
    width = max((x.stop - x.start) / days * 0.8, 1.0)
    for i, (name, counter) in enumerate(counts.items()):
        base = _TOP + _LANE * (i + 1) - 8
        y = Scale(0, math.log1p(most), base, base - _LANE + 16)
        out.append(element("line", "axis", x1=x.start, x2=x.stop, y1=base, y2=base))
        out.append(element("text", "end", x=_LEFT - 10, y=base - 14, text=name))
        total = f"{sum(counter.values())} in all, at most {max(counter.values(), default=0)} a day"
        out.append(element("text", "tick end", x=_LEFT - 10, y=base + 2, text=total))
        for day, n in sorted(counter.items()):
            said = f"day {day}: {n}"
            top = y(math.log1p(n))
            out.append(element("rect", "bar", title=said, x=x(day), y=top, width=width, height=base - top))
    drawn = drawing(_RIGHT + 20, bottom + 30, "Alarms of residual detectors on the flights, day by day", out)
    head = '<svg xmlns="http://www.w3.org/2000/svg" '
    return drawn.replace("<svg ", head, 1).replace(">", f"><style>{_STYLE}</style>", 1) + "\n"
