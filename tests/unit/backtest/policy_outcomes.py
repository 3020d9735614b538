"""Outcomes of made-up policies, by day, for what compares them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.outcome import (
    RELIABILITY_BINS,
    AlarmFigures,
    DayFigures,
    PolicyOutcome,
    RefitFigures,
    Sums,
)

FIRST_DAY = 15_000
PANE_MS = 3_600_000
PANES_A_DAY = 24


def sums(labelled: float, positives: float, probability: float, loss: float, squared: float) -> Sums:
    return Sums(labelled=labelled, positives=positives, probability=probability, log_loss=loss, squared_error=squared)


def outcome(
    policy: str,
    losses: Sequence[float] | NDArray[np.float64],
    *,
    labelled: int = 100,
    raw_loss: float = 60.0,
    unlabelled: int = 0,
    scored_from_day: int = FIRST_DAY,
    alarms: Sequence[AlarmFigures] = (),
    refits: Sequence[RefitFigures] = (),
    history: str = "h",
) -> PolicyOutcome:
    """Sums of log-loss by day, from FIRST_DAY on; 30 % of the outcomes are positive, and so said; raw says 40 %."""
    days = []
    for place, loss in enumerate(np.asarray(losses, dtype=np.float64).tolist()):
        positives = 0.3 * labelled
        bins, raw_bins = ([(0.0, 0.0, 0.0)] * RELIABILITY_BINS for _ in range(2))
        bins[6] = (float(labelled), positives, 0.3 * labelled)
        raw_bins[8] = (float(labelled), positives, 0.4 * labelled)
        days.append(
            DayFigures(
                day=FIRST_DAY + place,
                scored=labelled + unlabelled,
                unlabelled=unlabelled,
                identity=0,
                raw=sums(labelled, positives, 0.4 * labelled, raw_loss, 0.22 * labelled),
                served=sums(labelled, positives, 0.3 * labelled, loss, 0.2 * labelled),
                bins=bins,
                raw_bins=raw_bins,
                staleness_ms=36 * 3_600_000.0 * (labelled + unlabelled),
                psi=0.01,
            )
        )
    return PolicyOutcome(
        policy=policy,
        overrides={},
        config_hash="c",
        history_sha256=history,
        start="exact",
        scored_from_day=scored_from_day,
        days=days,
        groups=[],
        alarms=list(alarms),
        refits=list(refits),
        worst_group_error_percent=2.5,
        raw_worst_group_error_percent=9.5,
        auc=0.7,
        raw_auc=0.69,
        tip=None,
        outbox_sha256="o",
        cpu_seconds=1.0,
    )


def alarm(kind: str, day: int, state: str = "open") -> AlarmFigures:
    """On a day counted from FIRST_DAY."""
    pane = (FIRST_DAY + day) * PANES_A_DAY
    return AlarmFigures(
        id=f"{kind} {day} {state}",
        kind=kind,
        state="open" if state == "open" else "close",
        pane=pane,
        since_ms=pane * PANE_MS,
        what="it is off",
    )


def refit(day: int, result: str = "published") -> RefitFigures:
    """On a day counted from FIRST_DAY."""
    return RefitFigures(
        pane=(FIRST_DAY + day) * PANES_A_DAY,
        kind="structure",
        reason="age",
        outcome=result,
        version="000001-0123456789ab" if result == "published" else None,
        codes=[],
        gain=None,
        gain_lower=None,
        level=None,
        rung=None,
        changed="",
    )
