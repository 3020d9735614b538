"""From a finished demo run to its figures and its report: what was served, what the state says, what the files know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys
from stream_calib.demo.figures import (
    DemoFigures,
    LabelFigures,
    RefitFigures,
    evaluated_rows,
    flight_families,
    quality,
)
from stream_calib.demo.flights import Flights
from stream_calib.demo.report_data import (
    AlertEntry,
    PsiSeries,
    RefitEntry,
    ReportData,
    daily_log_loss,
    group_residuals,
    reliability,
)
from stream_calib.drift.psi import look
from stream_calib.drift.psi_window import PsiWindow
from stream_calib.refit.settings import panes_of
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.cells import ScoredCells
from stream_calib.windows.pane_record import PaneNames
from workers.demo import DemoError, refit_outcomes
from workers.deployment import State
from workers.totals import outcome_totals

_RECORDS_A_READ = 10_000
_NOT_SHOWN = ("refit_asked", "refit_published")
"""Alerts that say what the table of refits shows."""


class _Output(msgspec.Struct):
    event_id: str
    stream_calib: dict[str, dict[str, Any]]


def served_probabilities(log: Log, config: Config, flights: Flights, scores: int) -> NDArray[np.float64]:
    """(scores,) what was served for the first so many score events, by their row. Raises DemoError unless each has
    exactly one output."""
    row_of = {event_id: row for row, event_id in enumerate(flights.event_id[:scores])}
    (key,) = configured_keys(config)
    served = np.full(scores, np.nan)
    outputs = 0
    for value in _values(log, config.topics.calibrated):
        output = msgspec.json.decode(value, type=_Output)
        served[row_of[output.event_id]] = output.stream_calib[key.model]["calibrated"]
        outputs += 1
    if outputs != scores or np.isnan(served).any():
        raise DemoError(f"{outputs} outputs for {scores} scores; {int(np.isnan(served).sum())} scores have none")
    return served


def _values(log: Log, topic: str) -> Iterator[bytes]:
    for partition in range(log.partitions(topic)):
        source, offset = TopicPartition(topic, partition), 0
        while records := log.read(source, offset, _RECORDS_A_READ):
            yield from (record.value or b"" for record in records)
            offset = records[-1].offset + 1


def collect(log: Log, state: State, config: Config, flights: Flights, days: int, seconds: float) -> ReportData:
    """Everything that the run showed over the first `days` days. Raises DemoError where outputs are missing."""
    used = flights.days()[:days]
    scores, labels = used[-1].scores.stop, used[-1].labels.stop
    served = served_probabilities(log, config, flights, scores)
    rows = evaluated_rows(flights)
    rows = rows[rows < labels]
    score_row, label = flights.label_row[rows], flights.label[rows]
    raw, calibrated = flights.score[score_row], served[score_row]
    families = flight_families(flights, score_row)
    totals = outcome_totals(state.store, state.shards)
    outcomes, _ = refit_outcomes(state)
    alerts = _alerts(state)
    figures = DemoFigures(
        scores=totals["accepted"],
        duplicate_scores=totals["accepted"] - totals["winners"],
        labels=LabelFigures(
            joined=totals["matched"], late=totals["label_late"], unmatched=totals["labels"] - totals["matched"]
        ),
        unlabelled=totals["unlabelled"],
        raw=quality(raw, label, families),
        calibrated=quality(calibrated, label, families),
        refits=RefitFigures(
            requested=sum(outcomes.values()), published=outcomes["published"], refused=outcomes["refused"]
        ),
        alerts=len(alerts),
        seconds=round(seconds, 1),
    )
    everything = flights.label_row[:labels]
    groups = [
        residual
        for family, codes, names in (
            ("carrier", flights.carrier, flights.carriers),
            ("origin", flights.origin, flights.origins),
        )
        for residual in group_residuals(family, codes[score_row], names, label, raw, calibrated)
    ]
    return ReportData(
        model=str(state.model_key),
        figures=figures,
        first_ms=int(flights.score_time_ms[0]),
        last_ms=int(flights.score_time_ms[scores - 1]),
        evaluated_from_ms=used[min(14, len(used) - 1)].start_ms,
        evaluated_rows=len(rows),
        raw_reliability=reliability(raw, label),
        calibrated_reliability=reliability(calibrated, label),
        daily=daily_log_loss(
            flights.score_time_ms[everything], flights.label[:labels], flights.score[everything], served[everything]
        ),
        groups=groups,
        psi=_psi(state, config),
        psi_threshold=config.drift.psi_threshold,
        refits=_refits(state, config),
        alerts=alerts,
        score_classes={
            "counted": totals["winners"],
            "duplicate": totals["accepted"] - totals["winners"],
            "late": totals["score_late"],
            "skewed": totals["score_skewed"],
        },
        label_classes={
            "joined": totals["matched"],
            "unmatched": totals["labels"] - totals["matched"],
            "late": totals["label_late"],
            "skewed": totals["label_skewed"],
        },
        snapshot=state.snapshots.current() or "",
    )


def _refits(state: State, config: Config) -> list[RefitEntry]:
    return [
        RefitEntry(
            time_ms=(report.pane + 1) * config.windows.pane_ms,
            kind=report.kind,
            reason=report.reason,
            outcome=report.outcome,
            version=report.version or "",
            detail=report.detail,
            refused_for=report.refused_for,
            gain=None if report.gate is None else report.gate.gain,
            gain_lower=None if report.gate is None else report.gate.gain_lower,
        )
        for report in state.snapshots.reports()
    ]


def _alerts(state: State) -> list[AlertEntry]:
    """Alerts by their opening, with the time of their closing."""
    opened: dict[str, AlertEntry] = {}
    done: list[AlertEntry] = []
    pane_ms = state.shards.settings.pane_ms
    for raw in state.store.entries("outbox", 0):
        alert = Alert.decode(raw)
        if alert.kind in _NOT_SHOWN:
            continue
        if alert.state == "open":
            opened[alert.dedup_key] = AlertEntry(alert.since_ms, None, alert.kind, alert.severity, alert.diagnosis)
        elif alert.state == "close":
            entry = opened.pop(alert.dedup_key)
            closed_ms = (alert.pane + 1) * pane_ms
            done.append(AlertEntry(entry.opened_ms, closed_ms, entry.kind, entry.severity, entry.message))
    return sorted([*done, *opened.values()], key=lambda entry: (entry.opened_ms, entry.kind))


def _psi(state: State, config: Config) -> PsiSeries:
    """PSI of all scores, window by window, against the snapshot that was current when each was decided."""
    log = state.snapshots.log()
    found = state.store.read(("first_pane", "closed"))
    first, last = int(found["first_pane"] or 0), int(found["closed"] or -1)
    pane_ms = config.windows.pane_ms
    horizon = config.windows.horizon_ms // pane_ms
    panes = panes_of(config.drift.psi_window_ms, pane_ms)
    window = PsiWindow(panes, list(config.scores.attributes), state.store.signatures)
    times, values, floors = [], [], []
    for pane in range(first, last + 1):
        (blob,) = state.store.blobs([PaneNames.of(pane).scored])
        if blob is None:
            raise DemoError(f"scored cells of pane {pane} are missing")
        cells = ScoredCells.unpack(blob)
        window.push(pane, cells.signature, cells.grid_bin, cells.n)
        version = log.current_at(pane - horizon)
        if version is None or (pane - first) % panes:
            continue
        reference = state.snapshots.reference(version)
        window.use(reference)
        counts = window.counts
        assert counts is not None
        result = look(reference, counts, config.drift.psi_threshold, 0.0)
        everything = next(i for i, group in enumerate(reference.groups) if group.attribute is None)
        times.append((pane + 1) * pane_ms)
        values.append(float(result.psi[everything]))
        floors.append(float(result.floor[everything]))
    return PsiSeries(np.array(times, dtype=np.int64), np.array(values), np.array(floors))
