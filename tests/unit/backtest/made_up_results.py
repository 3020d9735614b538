"""Results of backtests with made-up numbers of realistic shape: days with shocks, a raw score that drifts, policies
that follow it more or less well."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.backtest.document import BacktestDocument, Detection, Interval, Optimism, PolicyFigures
from stream_calib.backtest.outcome import (
    RELIABILITY_BINS,
    AlarmFigures,
    AlertState,
    DayFigures,
    GroupFigures,
    PolicyOutcome,
    RefitFigures,
    Sums,
)

FIRST_DAY = 15_706
"""2013-01-01."""
WARM_UP_DAYS = 14
PANE_MS = 3_600_000
_A_DAY = 24
CENTRES = (np.arange(RELIABILITY_BINS) + 0.5) / RELIABILITY_BINS
SHARES = np.exp(-4 * CENTRES) / np.exp(-4 * CENTRES).sum()

Column = NDArray[np.float64]


def _sums(n: Column, positives: Column, said: Column) -> Sums:
    return Sums(
        float(n.sum()),
        float(positives.sum()),
        float((n * said).sum()),
        float(-(positives * np.log(said) + (n - positives) * np.log1p(-said)).sum()),
        float((positives * (1 - said) ** 2 + (n - positives) * said**2).sum()),
    )


def _bins(n: Column, positives: Column, said: Column) -> list[tuple[float, float, float]]:
    at = np.minimum((said * RELIABILITY_BINS).astype(np.intp), RELIABILITY_BINS - 1)
    table = np.stack([np.bincount(at, values, RELIABILITY_BINS) for values in (n, positives, n * said)], axis=1)
    return [(a, b, c) for a, b, c in table.tolist()]


def outcome(
    policy: str = "current", *, days: int = 306, error: float = 0.08, groups: Sequence[str] = (), seed: int = 1
) -> PolicyOutcome:
    """Of the same history for the same `days`; `error`: by how much, in log-odds, the policy misses the truth."""
    world, random = np.random.default_rng(5), np.random.default_rng(seed)
    made = []
    for place in range(days):
        drift = 0.35 * math.sin(place / 50) - 0.15
        n = world.poisson(900 * SHARES).astype(np.float64)
        truth = expit(0.8 * logit(CENTRES) + drift + world.normal(0, 0.25))
        positives = world.binomial(n.astype(np.int64), truth).astype(np.float64)
        served = expit(0.8 * logit(CENTRES) + drift + random.normal(0, error))
        if place < 3:
            served = CENTRES
        labelled = float(n.sum())
        made.append(
            DayFigures(
                day=FIRST_DAY + place,
                scored=int(labelled * 1.03),
                unlabelled=int(labelled * 0.03),
                identity=int(labelled) if place < 3 else 0,
                raw=_sums(n, positives, CENTRES),
                served=_sums(n, positives, served),
                bins=_bins(n, positives, served),
                raw_bins=_bins(n, positives, CENTRES),
                staleness_ms=labelled * 30 * PANE_MS,
                psi=None if place < 3 else abs(0.03 * math.sin(place / 30)) + float(world.gamma(2, 0.01)),
            )
        )
    scored_from = FIRST_DAY + min(WARM_UP_DAYS, days - 1)
    counted = [day for day in made if day.day >= scored_from]
    return PolicyOutcome(
        policy=policy,
        overrides={} if policy == "current" else {"refit.max_age": "12h", "drift.psi_threshold": str(seed / 100)},
        config_hash=f"{seed:012x}",
        history_sha256="ab" * 32,
        start="exact",
        scored_from_day=scored_from,
        days=made,
        groups=_groups(counted, groups),
        alarms=_alarms(days, seed),
        refits=_refits(days, seed),
        worst_group_error_percent=3.0 + error,
        raw_worst_group_error_percent=13.0,
        auc=0.69,
        raw_auc=0.67,
        tip="cd" * 32,
        outbox_sha256="ef" * 32,
        cpu_seconds=12.5,
    )


def _groups(days: Sequence[DayFigures], names: Sequence[str]) -> list[GroupFigures]:
    out = []
    for place, name in enumerate(["all", *names]):
        share = 1.0 if name == "all" else 0.6 / (place + 1)
        off = 1.0 if name == "all" else 1 + 0.3 * math.sin(7 * place)
        months: dict[str, tuple[float, float, float]] = {}
        served, raw = Sums(0, 0, 0, 0, 0), Sums(0, 0, 0, 0, 0)
        for day in days:
            month = str(np.datetime64(day.day, "D"))[:7]
            part = [_share(day.served, share, off), _share(day.raw, share, off)]
            served, raw = _plus(served, part[0]), _plus(raw, part[1])
            a, b, c = months.get(month, (0.0, 0.0, 0.0))
            months[month] = a + part[0].labelled, b + part[0].positives, c + part[0].probability
        family = "all" if name == "all" else "carrier" if place % 2 else "carrier x origin"
        out.append(GroupFigures(family, name, raw, served, months))
    return out


def _share(sums: Sums, share: float, off: float) -> Sums:
    values = (sums.labelled, sums.positives * off, sums.probability, sums.log_loss, sums.squared_error)
    return Sums(*(share * value for value in values))


def _plus(one: Sums, other: Sums) -> Sums:
    return Sums(
        one.labelled + other.labelled,
        one.positives + other.positives,
        one.probability + other.probability,
        one.log_loss + other.log_loss,
        one.squared_error + other.squared_error,
    )


def _refits(days: int, seed: int) -> list[RefitFigures]:
    out = []
    for day in range(2, days):
        published = (day * 7 + seed) % 5 > 1 or day == 2
        out.append(
            RefitFigures(
                pane=(FIRST_DAY + day) * _A_DAY + 9,
                kind="structure",
                reason="bootstrap" if day == 2 else "age" if day % 11 else "psi",
                outcome="published" if published else "refused",
                version=f"{day:06d}-0123456789ab" if published else None,
                codes=[] if published else ["no_gain", "auc_drop"][: 1 + day % 2],
                gain=None if day == 2 else 0.0004 if published else -0.0002,
                gain_lower=None if day == 2 else -0.0001,
                level=0.04 if published else None,
                rung="girb" if published else None,
                changed="mean probability 23.1 % to 23.4 %; carrier=EV +0.12" if published else "",
            )
        )
    return out


def _alarms(days: int, seed: int, what: str = "PSI 0.31 over 0.10; residuals flat") -> list[AlarmFigures]:
    kinds = (("psi", 60 + seed % 7, 3), ("psi", 121, 9), ("label_outage", 200, 1), ("residual", 290, 0))
    out = []
    states: tuple[AlertState, ...] = ("open", "close")
    for kind, first, lasts in kinds:
        for state, day in zip(states[: 2 if lasts else 1], (first, first + lasts), strict=False):
            if day < days:
                pane = (FIRST_DAY + day) * _A_DAY
                out.append(AlarmFigures(f"{kind}{day}", kind, state, pane, pane * PANE_MS - 7_200_000, what))
    return sorted(out, key=lambda alarm: alarm.pane)


def figures(one: PolicyOutcome, current: PolicyOutcome | None, raw: bool = False) -> PolicyFigures:
    """With intervals of a day's standard error, good enough to be drawn."""
    days = [day for day in one.days if day.day >= one.scored_from_day]
    sums = [day.raw if raw else day.served for day in days]
    n = np.array([s.labelled for s in sums])

    def interval(values: Column) -> Interval:
        value = float(values.sum() / n.sum())
        error = 1.96 * float(np.sqrt(((values - n * value) ** 2).sum()) / n.sum())
        few = len(days) < 2
        return Interval(value, None if few else value - error, None if few else value + error)

    losses, squares = (np.array([getattr(s, name) for s in sums]) for name in ("log_loss", "squared_error"))
    difference: list[Interval | None] = [None, None]
    if current is not None:
        base = [day.served for day in current.days if day.day >= current.scored_from_day]
        difference = [
            interval(column - np.array([getattr(s, name) for s in base]))
            for name, column in (("log_loss", losses), ("squared_error", squares))
        ]
    return PolicyFigures(
        policy="raw" if raw else one.policy,
        log_loss=interval(losses),
        brier=interval(squares),
        debiased_ece=Interval(0.081 if raw else 0.012, 0.07 if raw else 0.009, 0.09 if raw else 0.016),
        worst_group_error_percent=one.raw_worst_group_error_percent if raw else one.worst_group_error_percent,
        alarms=0 if raw else sum(alarm.state == "open" for alarm in one.alarms),
        refits=0 if raw else len(one.refits),
        published=0 if raw else sum(refit.outcome == "published" for refit in one.refits),
        staleness_hours=0.0 if raw else 30.0,
        coverage=0.97,
        log_loss_difference=difference[0],
        brier_difference=difference[1],
    )


def document(policies: int = 4, days: int = 306, groups: int = 12) -> BacktestDocument:
    """The current policy, one that is better beyond chance, and others that are about as good or worse."""
    names = [f"carrier{place}" for place in range(groups)]
    current = outcome(days=days, groups=names)
    others = [
        outcome(
            f"max_age={12 * place}h psi_threshold=.{place % 100:02d}",
            days=days,
            error=0.02 if place == 1 else 0.12 + 0.02 * (place % 9),
            groups=names,
            seed=place + 1,
        )
        for place in range(1, policies)
    ]
    table = [figures(current, None), *(figures(other, current) for other in others)]
    best = min(table, key=lambda line: line.log_loss.value)
    optimism = Optimism(policies, best.policy, best.log_loss.value, best.log_loss.value + 0.0003, 0.0003, None, 0.01)
    start = FIRST_DAY * 86_400_000
    return BacktestDocument(
        model="flights",
        model_version="2",
        source="files scores.parquet, labels.csv",
        start="exact",
        pane_ms=PANE_MS,
        first_pane=FIRST_DAY * _A_DAY,
        last_pane=(FIRST_DAY + days) * _A_DAY - 1,
        counts={"accepted": 283_000, "score_late": 12, "labels": 277_000, "unmatched": 3},
        current="current",
        outcomes=[current, *others],
        table=table,
        raw=figures(current, current, raw=True),
        optimism=optimism if policies > 1 else None,
        detections=[
            Detection(
                "shift of carrier=UA by +.5 in log-odds from 2013-06-01",
                start + 151 * 86_400_000,
                start + 158 * 86_400_000,
                "residual: carrier=UA says too little by 9 points",
                None,
                0.502,
                0.511,
                ["of its 100 outcomes 20.0% were positive, and with it 31.0% are"],
            )
        ],
        warnings=["14 days warm up and do not count"],
    )
