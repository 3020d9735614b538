"""The samples of `soak.py` as one SVG: memory of each process, lag, latency, over the time of the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from benchmarks.soak_figures import Sample
from stream_calib.pages.svg import Scale, drawing, element, horizontal_grid, number, polyline

_COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#d98c00", "#555")
_STYLE = (
    ".chart{font:12px system-ui,sans-serif;background:#fff}.grid{stroke:#ddd}.tick{fill:#555}.end{text-anchor:end}"
    ".panel-name{font-weight:600;fill:#222}.swap{stroke:#bbb;stroke-dasharray:2 3}path{fill:none;stroke-width:1.5}"
    + "".join(f".line{i}{{stroke:{colour}}}.name{i}{{fill:{colour}}}" for i, colour in enumerate(_COLOURS))
)
_LEFT, _RIGHT, _PANEL, _GAP = 90.0, 900.0, 170.0, 50.0

Lines = dict[str, list[float]]


def picture(samples: Sequence[Sample]) -> str:
    """A whole SVG file."""
    minutes = [s.seconds / 60 for s in samples]
    x = Scale(0, max(minutes[-1], 1e-9), _LEFT, _RIGHT)
    processes = list(samples[0].resident_bytes)
    panels: list[tuple[str, Lines]] = [
        ("Resident memory, MB", {p: [s.resident_bytes[p] / 1e6 for s in samples] for p in processes}),
        ("Lag, offsets", {of: [float(s.lags[of]) for s in samples] for of in samples[0].lags}),
        (
            "From writing a score to its committed output, ms",
            {"median": [s.latency_p50_ms for s in samples], "99 %": [s.latency_p99_ms for s in samples]},
        ),
    ]
    bottom = 30 + len(panels) * (_PANEL + _GAP)
    out = [
        element("line", "swap", x1=x(after.seconds / 60), x2=x(after.seconds / 60), y1=30, y2=bottom - _GAP)
        for before, after in pairwise(samples)
        if before.snapshot != after.snapshot
    ]
    for i, (name, lines) in enumerate(panels):
        out += _panel(name, lines, minutes, x, 30 + i * (_PANEL + _GAP))
    out += [element("text", "tick", x=x(at), y=bottom - 30, text=f"{number(at)} min") for at in x.ticks(8)]
    out.append(element("text", "tick", x=_LEFT, y=bottom - 10, text="Dotted: another snapshot was current."))
    drawn = drawing(_RIGHT + 170, bottom, "Memory, lag and latency over the time of the run", out)
    head = '<svg xmlns="http://www.w3.org/2000/svg" '
    return drawn.replace("<svg ", head, 1).replace(">", f"><style>{_STYLE}</style>", 1) + "\n"


def _panel(name: str, lines: Lines, minutes: Sequence[float], x: Scale, top: float) -> list[str]:
    known = [value for values in lines.values() for value in values if not math.isnan(value)]
    y = Scale(0, max(known, default=1.0) * 1.05 or 1.0, top + _PANEL, top)
    ticks = y.ticks(4)
    out = [element("text", "panel-name", x=_LEFT, y=top - 10, text=name)]
    out += horizontal_grid(x, y, ticks, [f"{tick:,g}" for tick in ticks])
    for i, (label, values) in enumerate(lines.items()):
        out.append(polyline([(x(m), y(v)) for m, v in zip(minutes, values, strict=True)], f"line{i % len(_COLOURS)}"))
        out.append(element("text", f"name{i % len(_COLOURS)}", x=_RIGHT + 10, y=top + 14 + 18 * i, text=label))
    return out
