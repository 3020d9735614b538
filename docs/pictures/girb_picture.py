"""GIRB's score groups and map, and the cross-validation by which their number and the prior's strength are chosen."""

from __future__ import annotations

import numpy as np
from flight_weeks import LabelledFlights
from scipy.special import logit
from svg_page import Panel, svg_page

from stream_calib.calibration import GIRB, GIRBCV
from stream_calib.pages.svg import Scale, element, polyline

_ROWS = 20_000
_TOP, _BOTTOM = 46.0, 400.0
_STRENGTHS = {0.0: "raw", 30.0: "fourth", 100.0: "calibrated"}
_CANDIDATES = (10, 15, 20, 30, 50, 70, 100, 140, 200)
_MOST = 8.0
"""Held-out log-loss above the best one, in 1/10,000, up to which it is drawn."""
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


def girb_picture(flights: LabelledFlights) -> str:
    """From rows drawn at random: on all of them the noise would be too small to see."""
    few = flights.rows(np.sort(np.random.default_rng(7).choice(len(flights.score), _ROWS, replace=False)))
    fitted = GIRBCV(n_groups=_CANDIDATES, prior_strength=tuple(_STRENGTHS)).fit(few.score, few.label)
    label = "GIRB's groups and map, and its cross-validation curve"
    return svg_page(840, 454, label, [*_map(fitted, few), *_curve(fitted)])


def _map(fitted: GIRBCV, few: LabelledFlights) -> list[str]:
    ends = float(logit(0.015)), float(logit(0.85))
    panel = Panel(Scale(*ends, 56, 396), Scale(*ends, _BOTTOM, _TOP))
    x, y = panel.x, panel.y
    ticks = [(float(logit(share)), f"{100 * share:g} %") for share in _SHARES]
    out = panel.frame(f"Share that came late, {_ROWS:,} flights", "raw score", ticks, ticks)
    out.append(element("line", "perfect", x1=x(ends[0]), y1=y(ends[0]), x2=x(ends[1]), y2=y(ends[1])))
    plain = GIRB(n_groups=100, prior_centre=None, strict=False).fit(few.score, few.label)
    groups = plain.groups_
    for at, n, k in zip(*(of.tolist() for of in (groups.log_odds, groups.labelled, groups.positives)), strict=True):
        if ends[0] < logit(k / n) < ends[1]:
            out.append(panel.dot(at, float(logit(k / n)), "floor", f"{k:.0f} of {n:.0f} flights", r=3))
    at = np.linspace(*ends, 400)
    score = 1 / (1 + np.exp(-at))
    name = f"chosen: {fitted.n_groups_} groups, a prior of {fitted.prior_strength_:g} rows"
    for line, (css, text, girb) in enumerate(
        (("raw", "100 groups, no prior", plain), ("calibrated", name, fitted.girb_))
    ):
        served = logit(girb.predict(score)).tolist()
        out.append(polyline(zip(map(x, at.tolist()), map(y, served), strict=True), f"line {css}"))
        out.append(element("text", css, x=x.start + 12, y=_TOP + 24 + 20 * line, text=text))
    out.append(element("text", "tick", x=x.start + 12, y=_TOP + 64, text="dots: the rate in each of 100 groups"))
    return out


def _curve(fitted: GIRBCV) -> list[str]:
    curve = fitted.curve_
    excess = (curve.mean - curve.mean[curve.best]) * 1e4
    error = curve.excess_standard_error * 1e4
    panel = Panel(Scale(float(np.log10(8)), float(np.log10(230)), 478, 818), Scale(-1, _MOST, _BOTTOM, _TOP))
    at = np.log10(curve.effective_groups)
    out = panel.frame(
        "Held-out log-loss above the best, 1/10,000",
        "effective number of groups",
        [(float(np.log10(n)), str(n)) for n in (10, 20, 50, 100, 200)],
        [(place, f"{place:g}") for place in (0.0, 2.0, 4.0, 6.0, 8.0)],
    )
    out.append(element("line", "perfect", x1=panel.x.start, x2=panel.x.stop, y1=panel.y(0), y2=panel.y(0)))
    for i, (strength, css) in enumerate(_STRENGTHS.items()):
        own = np.flatnonzero((curve.prior_strength == strength) & (excess <= _MOST))
        own = own[np.argsort(curve.n_groups[own])]
        places = [(float(at[j]), float(excess[j]), float(error[j])) for j in own]
        out += [panel.interval(x, y - e, y + e, css) for x, y, e in places]
        out.append(polyline([(panel.x(x), panel.y(y)) for x, y, _ in places], f"line faint {css}"))
        out += [
            panel.dot(x, y, css, f"{curve.n_groups[j]} groups, prior {strength:g}")
            for j, (x, y, _) in zip(own, places, strict=True)
        ]
        name = f"prior of {strength:g} rows" if strength else "no prior"
        out.append(element("text", f"end {css}", x=panel.x.stop - 8, y=_TOP + 24 + 20 * i, text=name))
    chosen = curve.chosen
    x, y = panel.x(float(at[chosen])), panel.y(float(excess[chosen]))
    out.append(element("circle", "chosen", r=9, cx=x, cy=y))
    out.append(element("text", "strong halo middle", x=x, y=_BOTTOM - 10, text="chosen"))
    return out
