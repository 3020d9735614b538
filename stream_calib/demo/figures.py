"""The demo's figures: what `stream-calib demo` prints and what `--json FILE` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from rich.console import Group
from rich.table import Table

from stream_calib.calibration import metrics
from stream_calib.demo.flights import Flights, day_index
from stream_calib.pages.texts import in_words

EVALUATED_FROM_DAY = 14
"""The first day whose rows count; before it there is no calibrator, or hardly one."""


class _Figures(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Quality(_Figures):
    """How good probabilities are; all but AUC: the lower the better."""

    log_loss: float
    brier: float
    ece: float
    """Expected calibration error, plain, 15 bins."""
    auc: float
    worst_group_error: float
    """Percent; see `metrics.worst_group_error`."""


class LabelFigures(_Figures):
    """Label events by outcome class."""

    joined: int
    late: int
    unmatched: int


class RefitFigures(_Figures):
    """Settled refit requests."""

    requested: int
    published: int
    refused: int


class DemoFigures(_Figures):
    """Everything that two runs of the demo must agree on (but the seconds)."""

    scores: int
    duplicate_scores: int
    labels: LabelFigures
    unlabelled: int
    """Predictions whose horizon passed without a label."""
    raw: Quality
    calibrated: Quality
    refits: RefitFigures
    alerts: int
    """Alerts that were opened."""
    seconds: float
    """From the first event written to the last pane decided, wall time."""


def evaluated_rows(flights: Flights) -> NDArray[np.intp]:
    """Rows (k,) of `flights.label_row` that the figures count: labels of scores from day 14 on."""
    day = day_index(flights.score_time_ms) - day_index(flights.score_time_ms[:1])[0]
    return np.flatnonzero(day[flights.label_row] >= EVALUATED_FROM_DAY)


def quality(
    probability: NDArray[np.float64], label: NDArray[np.int8], groups: Sequence[NDArray[np.integer]]
) -> Quality:
    """Quality of n probabilities (n,) against labels (n,) 0/1; each family of `groups` is n group codes (n,)."""
    return Quality(
        log_loss=metrics.log_loss(label, probability),
        brier=metrics.brier(label, probability),
        ece=metrics.ece(label, probability),
        auc=metrics.auc(label, probability),
        worst_group_error=metrics.worst_group_error(label, probability, groups),
    )


def flight_families(flights: Flights, rows: NDArray[np.intp]) -> list[NDArray[np.int64]]:
    """Group codes (k,) of score rows (k,) in the families carrier, origin, carrier x origin."""
    carrier, origin = flights.carrier[rows].astype(np.int64), flights.origin[rows].astype(np.int64)
    return [carrier, origin, carrier * len(flights.origins) + origin]


def figures_table(figures: DemoFigures, refused_for: Mapping[str, int], alerts: Mapping[str, int]) -> Group:
    """The figures for a terminal; `refused_for`: code of the gate -> number of candidates that it refused for it;
    `alerts`: kind -> number opened."""
    quality_table = Table(title="Labelled flights from day 14 on", title_justify="left", title_style="bold")
    quality_table.add_column("")
    for name in ("log-loss", "Brier", "ECE", "AUC", "worst group error"):
        quality_table.add_column(name, justify="right")
    for name, q in (("raw scores", figures.raw), ("calibrated", figures.calibrated)):
        quality_table.add_row(
            name,
            f"{q.log_loss:.4f}",
            f"{q.brier:.4f}",
            f"{q.ece:.4f}",
            f"{q.auc:.4f}",
            f"{q.worst_group_error:.1f} %",
            style="bold" if q is figures.calibrated else None,
        )

    counts = Table(title="The whole stream", title_justify="left", title_style="bold", show_header=False)
    counts.add_column()
    counts.add_column(justify="right")
    counts.add_column(style="dim")
    labels, refits = figures.labels, figures.refits
    counts.add_row("scores", f"{figures.scores:,}", f"{figures.duplicate_scores:,} of them duplicates")
    counts.add_row("labels joined", f"{labels.joined:,}", f"{labels.late:,} late, {labels.unmatched:,} unmatched")
    counts.add_row("never labelled", f"{figures.unlabelled:,}", "cancelled or diverted flights")
    counts.add_row("refits asked for", f"{refits.requested:,}", "")
    counts.add_row("  published", f"{refits.published:,}", "")
    counts.add_row("  refused", f"{refits.refused:,}", counted(refused_for, refits.refused))
    counts.add_row("alerts", f"{figures.alerts:,}", counted(alerts, figures.alerts))
    counts.add_row("time", f"{figures.seconds:.0f} s", "")
    return Group(quality_table, counts)


def counted(codes: Mapping[str, int], total: int) -> str:
    """How many of `total` have which code, most frequent first; one may have several."""
    ordered = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{n:,} {in_words(code)}" for code, n in ordered)
    return f"{text} (they overlap)" if sum(codes.values()) > total else text
