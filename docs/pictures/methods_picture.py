"""What each method does for the flights: log-loss saved, and the worst group error, beside what noise alone shows."""

from __future__ import annotations

import numpy as np
from flight_weeks import Column, LabelledFlights
from svg_page import svg_page

from stream_calib.calibration.metrics import log_loss_sums, worst_group_error
from stream_calib.pages.svg import Scale, element

_ROW, _TOP, _LEFT = 44.0, 72.0, 150.0
_DRAWS = 1_000
_NOISE_DRAWS = 20
_COLOURS = ("raw", "other", "other", "fourth", "calibrated")


def methods_picture(flights: LabelledFlights, probabilities: dict[str, Column]) -> str:
    """One line a method; log-loss with intervals by bootstrap of days."""
    rng = np.random.default_rng(3)
    days = len(np.unique(flights.day))
    _, day = np.unique(flights.day, return_inverse=True)
    one = np.ones(len(day))
    of_day = {
        name: np.bincount(day, log_loss_sums(p, one, flights.label.astype(np.float64)))
        for name, p in probabilities.items()
    }
    rows = np.bincount(day)
    drawn = rng.multinomial(days, np.full(days, 1 / days), _DRAWS)
    best = probabilities["Multicalibrator"]
    groups = flights.groups()
    noise = np.array([worst_group_error(rng.random(len(best)) < best, best, groups) for _ in range(_NOISE_DRAWS)])
    height = _TOP + _ROW * len(probabilities)
    saved, error = Scale(-1, 16, 160, 470), Scale(0, 14, 516, 820)
    out = [
        element("text", "panel-name", x=saved.start, y=_TOP - 40, text="Log-loss saved, 1/1,000"),
        element("text", "tick", x=saved.start, y=_TOP - 20, text="95 % by bootstrap of days"),
        element("text", "panel-name", x=error.start, y=_TOP - 40, text="Worst group error, %"),
        element("text", "tick", x=error.start, y=_TOP - 20, text="grey: were every probability true"),
    ]
    for scale, ticks in ((saved, [0.0, 5.0, 10.0, 15.0]), (error, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0])):
        for tick in ticks:
            css = "axis" if tick == 0 else "grid"
            out.append(element("line", css, x1=scale(tick), x2=scale(tick), y1=_TOP, y2=height))
            out.append(element("text", "tick middle", x=scale(tick), y=height + 20, text=f"{tick:g}"))
    low, high = float(noise.min()), float(noise.max())
    out.append(element("rect", "area", x=error(low), width=error(high) - error(low), y=_TOP, height=height - _TOP))
    for place, ((name, p), css) in enumerate(zip(probabilities.items(), _COLOURS, strict=True)):
        middle = _TOP + _ROW * (place + 0.5)
        out.append(element("text", "strong end", x=_LEFT - 10, y=middle + 4, text=name))
        gain = of_day["raw scores"] - of_day[name]
        mean = 1e3 * float(gain.sum() / rows.sum())
        bounds = 1e3 * np.quantile((drawn * gain).sum(axis=1) / (drawn * rows).sum(axis=1), [0.025, 0.975])
        ends = [saved(float(bound)) for bound in bounds]
        out.append(element("line", f"interval {css}", x1=ends[0], x2=ends[1], y1=middle, y2=middle))
        out.append(element("circle", f"dot {css}", title=f"{mean:.2f}", cx=saved(mean), cy=middle, r=5))
        worst = worst_group_error(flights.label, p, groups)
        out.append(element("rect", f"bar {css}", x=error(0), y=middle - 9, width=error(worst) - error(0), height=18))
        out.append(element("text", "tick", x=error(worst) + 6, y=middle + 4, text=f"{worst:.1f}"))
    return svg_page(850, height + 40, "Log-loss saved and worst group error by method", out)
