"""The report's one time line: loss, gains, PSI, swaps and alarms over the same axis of event time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from stream_calib.backtest.comparison.figures import scored_days
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.backtest.report.alarms import AlarmSpan, alarm_spans
from stream_calib.backtest.report.series import DAY_MS, Column, PeriodSeries, period_series
from stream_calib.pages.svg import Drawing, Scale, element, horizontal_grid, polyline, signed, time_ticks
from stream_calib.pages.texts import in_words, minute_text, shortened, signed_text
from stream_calib.pages.trailing_mean import trailing_mean

_WIDTH, _LEFT, _RIGHT = 1080.0, 160.0, 66.0
_LANE = 24.0
_COLUMN = 2.0
"""Width of what marks share that lie too close to be told apart."""

_Panel: TypeAlias = Callable[[Scale, float, float], list[str]]
"""Draws on the axis of time between two heights."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Something at a moment, or from one to another."""

    start_ms: int
    stop_ms: int
    said: str


@dataclass(frozen=True, slots=True)
class _Lane:
    name: str
    css: str
    marks: Sequence[_Mark]
    spans: bool


def time_line(current: PolicyOutcome, best: PolicyOutcome | None, pane_ms: int) -> Drawing:
    """Of the current policy beside the raw score, and of the best one where it is given."""
    series = period_series(current)
    better = None if best is None else period_series(best)
    first = int(series.start_ms[0])
    last = first + len(series.start_ms) * series.days * DAY_MS
    x = Scale(first, last, _LEFT, _WIDTH - _RIGHT)
    lanes = _lanes(current, best, pane_ms)
    panels: list[tuple[float, _Panel]] = [
        (200.0, partial(_losses, series, better)),
        (64.0, partial(_gain, series, series.raw_loss, series.served_loss, "raw")),
    ]
    if better is not None:
        panels.append((64.0, partial(_gain, series, series.served_loss, better.served_loss, "current")))
    panels.append((80.0, partial(_psi, series)))

    drawn: list[str] = []
    top = 30.0
    for height, panel in panels:
        drawn += panel(x, top, top + height)
        top += height + 36
    drawn.append(element("text", "panel-name", x=x.start, y=top - 12, text="What happened"))
    bottom = top + _LANE * len(lanes)
    for lane in lanes:
        drawn += _lane(lane, x, top + _LANE / 2)
        top += _LANE
    ticks = [(x(start), name) for start, name in time_ticks(first, last)]
    out = [element("line", "grid", x1=at, x2=at, y1=30, y2=bottom) for at, _ in ticks]
    out += [element("text", "tick", x=at + 4, y=bottom + 18, text=name) for at, name in ticks if at < x.stop - 30]
    out += drawn
    evaluated = scored_days(current)[0].day * DAY_MS
    if first < evaluated < last:
        at = x(evaluated)
        out.append(element("line", "evaluated", x1=at, x2=at, y1=24, y2=bottom))
        out.append(element("text", "axis-name", x=at + 5, y=224, text="figures count from here"))
    label = "Log-loss, what calibration saved, PSI, swaps and alarms over time"
    return Drawing(_WIDTH, bottom + 26, label, out)


def _losses(series: PeriodSeries, better: PeriodSeries | None, x: Scale, top: float, bottom: float) -> list[str]:
    lines = [("raw", series, series.raw_loss), ("calibrated", series, series.served_loss)]
    if better is not None:
        lines.append(("best", better, better.served_loss))
    bold = series.days == 1
    smooth = [trailing_mean(sums, one.labelled, 7 if bold else 1) for _, one, sums in lines]
    thin = [one.mean(sums) for _, one, sums in lines]
    low, high = _range(smooth, thin)
    y = Scale(low, high, bottom, top)
    ticks = y.ticks(6)
    out = horizontal_grid(x, y, ticks, [f"{tick:g}" for tick in ticks])
    cut = any(bool(np.any((values < low) | (values > high))) for values in thin)
    names = {"raw": "raw", "calibrated": "current", "best": "best"}
    if bold:
        for (css, one, _), values in zip(lines[:2], thin, strict=False):
            out.append(_line(one, values, x, y, f"thin {css}"))
    ends = []
    for (css, one, _), values in zip(lines, smooth, strict=True):
        out.append(_line(one, values, x, y, f"line {css}"))
        known = values[np.isfinite(values)]
        if len(known):
            ends.append((y(min(max(float(known[-1]), low), high)), names[css], css))
    # Names at the ends of the lines, moved apart where they would cover each other.
    at = -np.inf
    for place, name, css in sorted(ends):
        at = max(place, at + 14)
        out.append(element("text", f"series-name {css}", x=x.stop + 8, y=at + 4, text=name))
    name = "Log-loss: each day (thin) and over 7 days (bold)" if bold else f"Log-loss, each {_period(series.days)}"
    name += "; what is beyond the scale is drawn at its edge" if cut else ""
    return [*out, element("text", "panel-name", x=x.start, y=top - 10, text=name)]


def _range(smooth: Sequence[Column], thin: Sequence[Column]) -> tuple[float, float]:
    """All of the smooth lines, and nearly all of the thin ones."""
    bold, fine = np.concatenate(smooth), np.concatenate(thin)
    if not np.isfinite(bold).any():
        return 0.0, 1.0
    quantiles = np.nanquantile(fine, [0.01, 0.99])
    low, high = min(float(np.nanmin(bold)), float(quantiles[0])), max(float(np.nanmax(bold)), float(quantiles[1]))
    room = max(0.06 * (high - low), 1e-6)
    return max(low - room, 0.0), high + room


def _line(series: PeriodSeries, values: Column, x: Scale, y: Scale, css: str) -> str:
    low, high = sorted((y.low, y.high))
    places = zip(series.middle_ms, np.clip(values, low, high).tolist(), strict=True)
    return polyline([(x(at), y(value)) for at, value in places], css)


def _gain(
    series: PeriodSeries, before: Column, after: Column, against: str, x: Scale, top: float, bottom: float
) -> list[str]:
    """Bars of what a labelled row saved from `before` to `after`."""
    gain = series.mean(before - after)
    known = gain[np.isfinite(gain)]
    # One wild day must not flatten all others.
    reach = max(float(np.quantile(np.abs(known), 0.99)) * 1.3 if len(known) else 0.0, 1e-6)
    low, high = float(known.min(initial=0.0)), float(known.max(initial=0.0))
    y = Scale(max(min(low, -0.15 * reach), -reach), min(max(high, 0.15 * reach), reach), bottom, top)
    ticks = y.ticks(3)
    out = horizontal_grid(x, y, ticks, [signed(tick) for tick in ticks])
    width = max((x.stop - x.start) / max(len(gain), 1) * 0.7, 1.0)
    for start, middle, value in zip(series.start_ms.tolist(), series.middle_ms, gain.tolist(), strict=True):
        if not np.isfinite(value):
            continue
        ends = sorted((y(0), y(min(max(value, y.low), y.high))))
        css = ("gain" if value >= 0 else "loss") + (" best" if against == "current" else "")
        said = f"{minute_text(start)[:10]}: {signed_text(value)} a row"
        left = x(middle) - width / 2
        out.append(element("rect", css, title=said, x=left, y=ends[0], width=width, height=ends[1] - ends[0]))
    out.append(element("line", "axis", x1=x.start, x2=x.stop, y1=y(0), y2=y(0)))
    saved = "the current policy against the raw score" if against == "raw" else "the best policy against the current"
    name = f"Log-loss saved by {saved} (up is better)"
    return [*out, element("text", "panel-name", x=x.start, y=top - 10, text=name)]


def _psi(series: PeriodSeries, x: Scale, top: float, bottom: float) -> list[str]:
    known = series.psi[np.isfinite(series.psi)]
    name = f"PSI of all scores, the largest of each {_period(series.days)}" + ("" if len(known) else ": none reported")
    y = Scale(0, max(float(known.max(initial=0.0)) * 1.08, 0.02), bottom, top)
    ticks = y.ticks(3)
    out = horizontal_grid(x, y, ticks, [f"{tick:g}" for tick in ticks])
    out.append(_line(series, series.psi, x, y, "line psi"))
    return [*out, element("text", "panel-name", x=x.start, y=top - 10, text=name)]


def _period(days: int) -> str:
    return "day" if days == 1 else "week" if days == 7 else f"{days} days"


def _lanes(current: PolicyOutcome, best: PolicyOutcome | None, pane_ms: int) -> list[_Lane]:
    out = _refit_lanes(current, pane_ms, "")
    spans = alarm_spans(current, pane_ms)
    for kind in sorted({span.kind for span in spans}):
        marks = [_span_mark(span, current, pane_ms) for span in spans if span.kind == kind]
        out.append(_Lane(shortened(f"alarm {in_words(kind)}", 22), "event alarm", marks, spans=True))
    if best is not None:
        out += _refit_lanes(best, pane_ms, "best: ")
        marks = [_span_mark(span, best, pane_ms) for span in alarm_spans(best, pane_ms)]
        out.append(_Lane("best: alarms", "event alarm", marks, spans=True))
    return out


def _refit_lanes(outcome: PolicyOutcome, pane_ms: int, prefix: str) -> list[_Lane]:
    """A swap is drawn where the pane was decided that asked for it."""
    others = sorted({refit.outcome for refit in outcome.refits} - {"published", "refused"})
    out = []
    for answer in ("published", "refused", *others):
        marks = []
        for refit in (refit for refit in outcome.refits if refit.outcome == answer):
            at = (refit.pane + 1) * pane_ms
            gain = "" if refit.gain is None else f", gain {signed_text(refit.gain, 5)}"
            said = f"{minute_text(at)} UTC: {refit.kind} refit ({refit.reason}) {answer}{gain}"
            marks.append(_Mark(at, at, said))
        name = "swaps" if answer == "published" else f"refits {answer}"
        css = f"event {answer}" if answer in ("published", "refused") else "event"
        out.append(_Lane(shortened(prefix + name, 22), css, marks, spans=False))
    return out


def _span_mark(span: AlarmSpan, outcome: PolicyOutcome, pane_ms: int) -> _Mark:
    ends = (outcome.days[-1].day + 1) * DAY_MS
    until = "still open at the end" if span.closed_ms is None else f"to {minute_text(span.closed_ms)}"
    said = f"{in_words(span.kind)}: {minute_text(span.opened_ms)} {until} UTC. {shortened(span.what, 200)}"
    return _Mark(span.opened_ms, max(ends if span.closed_ms is None else span.closed_ms, span.opened_ms), said)


def _lane(lane: _Lane, x: Scale, middle: float) -> list[str]:
    """Marks of one row; those that share a column of the drawing are one mark, so there are not more than columns."""
    out = [
        element("line", "grid", x1=x.start, x2=x.stop, y1=middle, y2=middle),
        element("text", "tick end", x=x.start - 8, y=middle + 4, text=f"{lane.name} {len(lane.marks):,}"),
    ]
    columns: dict[int, list[_Mark]] = {}
    for mark in lane.marks:
        place = min(max(x(mark.start_ms), x.start), x.stop)
        columns.setdefault(int(place / _COLUMN), []).append(mark)
    for marks in columns.values():
        said = marks[0].said + (f" (and {len(marks) - 1} more close by)" if len(marks) > 1 else "")
        start = min(max(x(marks[0].start_ms), x.start), x.stop)
        if lane.spans:
            stop = min(max(x(max(mark.stop_ms for mark in marks)), start), x.stop)
            width = max(stop - start, 3.0)
            out.append(element("rect", lane.css, title=said, x=start, y=middle - 6, width=width, height=12, rx=2))
        else:
            out.append(element("line", lane.css, title=said, x1=start, x2=start, y1=middle - 8, y2=middle + 8))
    return out
