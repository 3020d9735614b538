"""A report's input with made-up numbers of realistic shape, on the real flights."""

from __future__ import annotations

import numpy as np

from stream_calib.alerts.model import SEVERITY, AlertKind
from stream_calib.demo.figures import DemoFigures, LabelFigures, Quality, RefitFigures
from stream_calib.demo.flights import DAY_MS, load_flights
from stream_calib.demo.report_data import (
    AlertEntry,
    PsiSeries,
    RefitEntry,
    ReportData,
    daily_log_loss,
    group_residuals,
    reliability,
)

HOUR_MS = 3_600_000
ALERTS: list[tuple[int, int, AlertKind]] = [
    (60, 3, "psi"),
    (121, 9, "psi"),
    (130, 2, "refit_refused"),
    (200, 1, "label_outage"),
    (290, 0, "psi"),
]
"""Day, days open (0: to the end), kind."""


def report_data(alert_message: str = "PSI .31 over .10; residuals flat") -> ReportData:
    """The calibrated column is made by hand with knowledge of the outcomes; only its shape is meant to be realistic."""
    random = np.random.default_rng(11)
    flights = load_flights()
    days = flights.days()
    rows = flights.label_row
    label, raw, time_ms = flights.label, flights.score[rows], flights.score_time_ms[rows]
    carrier, origin = flights.carrier[rows], flights.origin[rows]
    month = (time_ms - time_ms[0]) // (30 * DAY_MS)
    shift = np.zeros(len(rows))
    for m in range(int(month.max()) + 1):
        for c in range(len(flights.carriers)):
            cell = (month == m) & (carrier == c)
            if cell.any():
                rate, mean = label[cell].mean() + 0.01, raw[cell].mean()
                shift[cell] = np.log(rate / (1 - rate)) - np.log(mean / (1 - mean))
    log_odds = np.log(raw) - np.log1p(-raw)
    calibrated = 1 / (1 + np.exp(-(0.8 * (log_odds + 1.2) - 1.2 + 0.8 * shift)))
    calibrated[time_ms < days[3].start_ms] = raw[time_ms < days[3].start_ms]
    evaluated = time_ms >= days[14].start_ms

    psi_time = np.arange(days[1].start_ms, days[-1].start_ms, HOUR_MS)
    wave = 0.12 + 0.1 * np.sin(np.arange(len(psi_time)) / 170)
    psi = wave * np.exp(0.5 * random.normal(size=len(psi_time)).cumsum() / np.sqrt(24 + np.arange(len(psi_time))))
    psi[:40] = np.nan
    refits = []
    for number, day in enumerate(days[3:-1]):
        published = number == 0 or random.random() < 0.55
        version = f"{number + 1:06d}-{random.integers(16**12):012x}" if published else ""
        gain = abs(random.normal(0.002, 0.001)) * (1 if published else -1)
        refits.append(
            RefitEntry(
                time_ms=day.start_ms,
                kind="structure",
                reason="bootstrap" if number == 0 else "psi" if random.random() < 0.05 else "age",
                outcome="published" if published else "refused",
                version=version,
                detail="the gate passed" if published else f"the mean gain {gain:.6f} is not above 0",
                refused_for=() if published else ("no_gain",) if number % 9 else ("no_gain", "auc_drop"),
                gain=gain,
                gain_lower=gain - 0.004,
            )
        )
    alerts = [
        AlertEntry(days[d].start_ms, days[d + n].start_ms if n else None, kind, SEVERITY[kind], alert_message)
        for d, n, kind in ALERTS
    ]
    published_count = sum(r.outcome == "published" for r in refits)
    figures = DemoFigures(
        scores=len(flights.event_id),
        duplicate_scores=0,
        labels=LabelFigures(joined=len(label), late=0, unmatched=0),
        unlabelled=len(flights.event_id) - len(label),
        raw=Quality(log_loss=0.5239, brier=0.1694, ece=0.0336, auc=0.6712, worst_group_error=13.1),
        calibrated=Quality(log_loss=0.5037, brier=0.1642, ece=0.0051, auc=0.6899, worst_group_error=2.0),
        refits=RefitFigures(requested=len(refits), published=published_count, refused=len(refits) - published_count),
        alerts=len(alerts),
        seconds=87.4,
    )
    carrier_groups = group_residuals(
        "carrier", carrier[evaluated], flights.carriers, label[evaluated], raw[evaluated], calibrated[evaluated]
    )
    origin_groups = group_residuals(
        "origin", origin[evaluated], flights.origins, label[evaluated], raw[evaluated], calibrated[evaluated]
    )
    return ReportData(
        model="flight-delay/1",
        figures=figures,
        first_ms=int(flights.score_time_ms[0]),
        last_ms=int(flights.score_time_ms[-1]),
        evaluated_from_ms=days[14].start_ms,
        evaluated_rows=int(evaluated.sum()),
        raw_reliability=reliability(raw[evaluated], label[evaluated]),
        calibrated_reliability=reliability(calibrated[evaluated], label[evaluated]),
        daily=daily_log_loss(time_ms, label, raw, calibrated),
        groups=[*carrier_groups, *origin_groups],
        psi=PsiSeries(psi_time, psi, np.full(len(psi_time), 0.012)),
        psi_threshold=0.1,
        refits=refits,
        alerts=alerts,
        score_classes={"accepted": len(flights.event_id), "duplicate": 0, "late": 0, "skewed": 0},
        label_classes={"joined": len(label), "unmatched": 0, "late": 0, "skewed": 0, "after mature": 0},
        snapshot=next(r.version for r in reversed(refits) if r.version),
    )
