"""One policy over a history of cells: what it would have done, and how its probabilities would have fared."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stream_calib.alerts.model import Alert
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.outcome import AlarmFigures, PolicyOutcome
from stream_calib.backtest.policies.run_figures import Fared
from stream_calib.backtest.policies.run_refits import refit_figures
from stream_calib.backtest.policies.run_served import Served, fared
from stream_calib.backtest.policies.shared_fits import SharedFits
from stream_calib.backtest.policies.stepping import Stepper
from stream_calib.config import Config
from stream_calib.refit.groups import family_rules
from stream_calib.refit.settings import DAY_MS, config_hash
from stream_calib.windows.state_store import StateStore

WARM_UP_DAYS = 14
"""Days before what a policy does counts: it has no snapshot at first, and that of few labels is poor."""
_TOLD_AS_REFITS = ("refit_asked", "refit_published")
"""Kinds of alerts that say no more than the refits themselves."""


def run_policy(
    history: CellHistory,
    config: Config,
    *,
    name: str,
    overrides: Mapping[str, str] | None = None,
    warm_up_days: int = WARM_UP_DAYS,
    label_delay_panes: int = 0,
    shared: SharedFits | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> PolicyOutcome:
    """Steps the policy `config` through the history and measures what it serves.

    Probabilities are taken at the centres of the grid bins, from the cells of all unit buckets, under the snapshot that
    served each pane. `overrides`: how `config` differs from the configuration that the others are compared with.
    `label_delay_panes`: labels come so many panes later than they need to; nothing is decided otherwise, all later.
    `shared`: what other policies over the same history have made already, and this one adds to; the outcome is the same
    without. `on_progress`: called with the panes done and those in all, some hundred times.

    Raises HistoryError where history and configuration do not fit, StateError where cells are damaged.
    """
    began = time.process_time()
    shared = SharedFits(history) if shared is None else shared
    stepper = Stepper(history, config, shared=shared)
    group = shared.group(config)
    # Of all scores, by the pane that the window ends with.
    psi = np.full(len(history.panes), np.nan)
    panes = range(history.first_pane, stepper.last_pane + 1)
    for done, pane in enumerate(panes):
        if done % (len(panes) // 100 + 1) == 0:
            on_progress(done, len(panes))
        stepper.step(pane)
        if (facts := stepper.psi_facts) is not None:
            psi[facts.newest - history.first_pane] = group.psi.psi_of_all(facts)
    on_progress(len(panes), len(panes))
    first_day = history.first_pane * history.pane_ms // DAY_MS
    scored_from_day = first_day + warm_up_days
    served = [Served.of(publication, stepper.store) for publication in stepper.publications(label_delay_panes)]

    def how_fared() -> Fared:
        maps = [group.map_of(stepper.store.load(one.version)) for one in served]
        return fared(shared.columns(config), served, maps, psi, family_rules(config), history, scored_from_day)

    found = group.fared_of((scored_from_day, *(one.without_version() for one in served)), how_fared)
    return PolicyOutcome(
        policy=name,
        overrides=dict(overrides or {}),
        config_hash=config_hash(config),
        history_sha256=history.content_sha256(),
        start=history.start,
        scored_from_day=scored_from_day,
        days=found.days,
        groups=found.groups,
        alarms=alarm_figures(stepper.state),
        refits=refit_figures(stepper.reports, stepper.store, group.changes),
        worst_group_error_percent=found.worst_group_error_percent,
        raw_worst_group_error_percent=found.raw_worst_group_error_percent,
        auc=found.auc,
        raw_auc=found.raw_auc,
        tip=stepper.log().tip,
        outbox_sha256=_sha256(stepper.state.entries("outbox", 0)),
        cpu_seconds=time.process_time() - began,
    )


def alarm_figures(state: StateStore) -> list[AlarmFigures]:
    """Every event of an alert in the outbox, in order, but for those that say what the refits say."""
    alerts = [Alert.decode(raw) for raw in state.entries("outbox", 0)]
    return [
        AlarmFigures(
            id=alert.id,
            kind=alert.kind,
            state=alert.state,
            pane=alert.pane,
            since_ms=alert.since_ms,
            what=alert.diagnosis,
            groups=list(alert.evidence.get("cells", alert.evidence.get("groups", {}))),
        )
        for alert in alerts
        if alert.kind not in _TOLD_AS_REFITS
    ]


def _sha256(entries: Sequence[bytes]) -> str:
    """Of a list's entries, each with its length before it."""
    made = hashlib.sha256()
    for entry in entries:
        made.update(len(entry).to_bytes(8, "big"))
        made.update(entry)
    return made.hexdigest()
