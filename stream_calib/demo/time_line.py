"""The report's one time line, as SVG: log-loss, gain, PSI, refits and alerts over the same axis of event time."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
from numpy.typing import NDArray

from stream_calib.demo.flights import DAY_MS
from stream_calib.demo.report_data import AlertEntry, RefitEntry, ReportData
from stream_calib.pages.svg import Scale, drawing, element, horizontal_grid, month_starts, polyline, signed
from stream_calib.pages.texts import in_words, minute_text
from stream_calib.pages.trailing_mean import trailing_mean

_RIGHT = 14.0
_AVERAGE_DAYS = 7


def time_line(data: ReportData) -> str:
    """Daily log-loss, gain, PSI, snapshots, refused refits and alerts over one common axis of event time."""
    width = 1080.0
    left = 140.0
    x = Scale(data.first_ms, max(data.last_ms, data.first_ms + 1), left, width - _RIGHT)
    lanes = _lanes(data)
    loss_top, loss_bottom = 30.0, 230.0
    gain_top, gain_bottom = 262.0, 332.0
    psi_top, psi_bottom = 364.0, 464.0
    lane_top, lane_height = 496.0, 26.0
    bottom = lane_top + lane_height * len(lanes)
    months = [(x(start), name) for start, name in month_starts(data.first_ms, data.last_ms)]

    out = [element("line", "grid", x1=at, x2=at, y1=loss_top, y2=bottom) for at, _ in months]
    room = x.stop - 30
    out += [element("text", "tick", x=at + 4, y=bottom + 18, text=name) for at, name in months if at < room]
    out += _loss_panel(data, x, loss_top, loss_bottom)
    out += _gain_panel(data, x, gain_top, gain_bottom)
    out += _psi_panel(data, x, psi_top, psi_bottom)
    out.append(element("text", "panel-name", x=x.start, y=lane_top - 8, text="What happened"))
    for i, (name, marks) in enumerate(lanes):
        middle = lane_top + lane_height * (i + 0.5)
        out.append(element("line", "grid", x1=x.start, x2=x.stop, y1=middle, y2=middle))
        out.append(element("text", "tick end", x=x.start - 8, y=middle + 4, text=name))
        out += [mark(x, middle) for mark in marks]
    start = x(data.evaluated_from_ms)
    out.append(element("line", "evaluated", x1=start, x2=start, y1=loss_top - 6, y2=bottom))
    out.append(element("text", "axis-name", x=start + 5, y=loss_bottom - 6, text="figures count from here"))
    return drawing(width, bottom + 26, "Daily log-loss, PSI, snapshots, refits and alerts over time", out, "wide")


def _loss_panel(data: ReportData, x: Scale, top: float, bottom: float) -> list[str]:
    daily = data.daily
    both = np.concatenate([daily.raw_log_loss, daily.calibrated_log_loss])
    y = Scale(float(both.min()) * 0.95, float(both.max()) * 1.03, bottom, top)
    ticks = y.ticks(7)
    out = horizontal_grid(x, y, ticks, [f"{t:.1f}" for t in ticks])
    days = _middles(daily.day_start_ms)
    for css, values in (("raw", daily.raw_log_loss), ("calibrated", daily.calibrated_log_loss)):
        out.append(polyline([(x(d), y(v)) for d, v in zip(days, values.tolist(), strict=True)], f"thin {css}"))
    for css, values in (("raw", daily.raw_log_loss), ("calibrated", daily.calibrated_log_loss)):
        smooth = trailing_mean(values * daily.n, daily.n, _AVERAGE_DAYS).tolist()
        out.append(polyline([(x(d), y(v)) for d, v in zip(days, smooth, strict=True)], f"line {css}"))
    out.append(
        element("text", "panel-name", x=x.start, y=top - 10, text="Log-loss: each day (thin) and over 7 days (bold)")
    )
    return out


def _gain_panel(data: ReportData, x: Scale, top: float, bottom: float) -> list[str]:
    daily = data.daily
    gain = daily.raw_log_loss - daily.calibrated_log_loss
    reach = max(float(np.abs(gain).max()), 1e-6)
    y = Scale(min(float(gain.min()), -0.1 * reach), max(float(gain.max()), 0.1 * reach), bottom, top)
    ticks = y.ticks(4)
    out = horizontal_grid(x, y, ticks, [signed(t) for t in ticks])
    thickness = max((x.stop - x.start) / max(len(gain), 1) * 0.7, 1.0)
    for day, middle, g, n in zip(
        daily.day_start_ms.tolist(), _middles(daily.day_start_ms), gain.tolist(), daily.n.tolist(), strict=True
    ):
        out.append(
            element(
                "rect",
                "gain" if g >= 0 else "loss",
                title=f"{_date(day)}: {g:+.4f} a flight, {n:,} flights",
                x=x(middle) - thickness / 2,
                y=min(y(g), y(0)),
                width=thickness,
                height=abs(y(g) - y(0)),
            )
        )
    out.append(element("line", "axis", x1=x.start, x2=x.stop, y1=y(0), y2=y(0)))
    out.append(
        element(
            "text", "panel-name", x=x.start, y=top - 10, text="Log-loss saved by calibration, each day (up is better)"
        )
    )
    return out


def _psi_panel(data: ReportData, x: Scale, top: float, bottom: float) -> list[str]:
    psi = data.psi
    name = f"PSI of the scores (grey: its noise floor; dashed: {data.psi_threshold:g} above it; no alarm by itself)"
    out = [element("text", "panel-name", x=x.start, y=top - 10, text=name)]
    known = psi.psi[np.isfinite(psi.psi)]
    limit = psi.noise_floor + data.psi_threshold
    y = Scale(0, max(float(known.max(initial=0)), float(limit.max(initial=data.psi_threshold))) * 1.08, bottom, top)
    ticks = y.ticks(4)
    out += horizontal_grid(x, y, ticks, [f"{t:g}" for t in ticks])
    times = [x(t) for t in psi.time_ms.tolist()]
    out.append(polyline(zip(times, map(y, psi.noise_floor.tolist()), strict=True), "floor"))
    out.append(polyline(zip(times, map(y, psi.psi.tolist()), strict=True), "line psi"))
    out.append(polyline(zip(times, map(y, limit.tolist()), strict=True), "threshold"))
    return out


class _Tick:
    """A refit as an upright stroke."""

    def __init__(self, entry: RefitEntry) -> None:
        self._entry = entry

    def __call__(self, x: Scale, middle: float) -> str:
        e = self._entry
        said = f"{_when(e.time_ms)}: {e.kind} refit ({e.reason}) {e.outcome} {e.version or e.detail}"
        at = x(e.time_ms)
        return element("line", f"event {e.outcome}", title=said, x1=at, x2=at, y1=middle - 8, y2=middle + 8)


class _Span:
    """An alert as a bar from its opening to its closing; what is severe is drawn strongly."""

    def __init__(self, entry: AlertEntry, end_ms: int) -> None:
        self._entry, self._end_ms = entry, end_ms

    def __call__(self, x: Scale, middle: float) -> str:
        e = self._entry
        closed = self._end_ms if e.closed_ms is None else e.closed_ms
        until = "still open" if e.closed_ms is None else _when(e.closed_ms)
        said = f"{in_words(e.kind)} ({e.severity}): {_when(e.opened_ms)} to {until}. {e.message}"
        start = x(e.opened_ms)
        span = max(x(closed) - start, 3.0)
        css = f"event alert {e.severity}"
        return element("rect", css, title=said, x=start, y=middle - 6, width=span, height=12, rx=2)


def _lanes(data: ReportData) -> list[tuple[str, list[_Tick | _Span]]]:
    outcomes = ["published", "refused", *sorted({r.outcome for r in data.refits} - {"published", "refused"})]
    lanes: list[tuple[str, list[_Tick | _Span]]] = [
        (
            f"refits {outcome} {sum(r.outcome == outcome for r in data.refits)}",
            [_Tick(r) for r in data.refits if r.outcome == outcome],
        )
        for outcome in outcomes
    ]
    for kind in sorted({a.kind for a in data.alerts}):
        alerts = [a for a in data.alerts if a.kind == kind]
        lanes.append((f"alert {in_words(kind)} {len(alerts)}", [_Span(a, data.last_ms) for a in alerts]))
    return lanes


def _middles(day_start_ms: NDArray[np.int64]) -> list[float]:
    return [float(start + DAY_MS // 2) for start in day_start_ms.tolist()]


def _when(time_ms: int) -> str:
    return f"{minute_text(time_ms)} UTC"


def _date(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d}"
