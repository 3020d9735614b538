"""What of the configuration determines requests and fits, in panes, and its hash."""

from __future__ import annotations

from typing import Any

from stream_calib.config import CANDIDATE_RUNGS, Config
from stream_calib.config_refits import REFIT_TRIGGERS
from stream_calib.drift.policy import TriggerConfig
from stream_calib.drift.step import StepConfig
from stream_calib.snapshot.canonical import canonical_json, sha256_hex

DAY_MS = 86_400_000


def panes_of(duration_ms: int, pane_ms: int) -> int:
    """Whole panes that cover the duration, at least one."""
    return max(1, -(-duration_ms // pane_ms))


def step_config(config: Config) -> StepConfig:
    """The step's limits, in panes."""
    pane_ms, refit, drift = config.windows.pane_ms, config.refit, config.drift
    cadence = refit.level_cadence_ms
    return StepConfig(
        trigger=TriggerConfig(
            max_age_panes=panes_of(refit.max_age_ms, pane_ms),
            level_cadence_panes=None if cadence is None else panes_of(cadence, pane_ms),
            cooldown_panes=panes_of(refit.cooldown_ms, pane_ms),
            min_new_labels=refit.min_new_labels,
            min_rows=refit.min_rows,
            min_positives=refit.min_positives,
            triggers=frozenset(refit.triggers),
        ),
        horizon_panes=config.windows.horizon_ms // pane_ms,
        psi_threshold=drift.psi_threshold,
        budget_panes=drift.false_alarm_days * DAY_MS / pane_ms,
        page_panes=drift.page_days * DAY_MS / pane_ms,
    )


def config_hash(config: Config) -> str:
    """Hash of everything that a snapshot depends on beside the cells; a request made under another one is not
    answered."""
    return sha256_hex(canonical_json(hashed_content(config)))


def hashed_content(config: Config) -> dict[str, Any]:
    """What `config_hash` is of, as plain JSON values."""
    document: dict[str, Any] = {
        "model": config.model.model_dump(mode="json", include={"name", "version"}),
        "attributes": list(config.scores.attributes),
        "intersections": config.scores.intersections,
        "predicates": config.scores.predicates,
        "derived": config.scores.derived,
        "zone": config.scores.zone if config.scores.derived else None,
        "unit": config.scores.unit,
        "pane_ms": config.windows.pane_ms,
        "horizon_ms": config.windows.horizon_ms,
        "missing_label": config.windows.missing_label,
        "p_min": config.serving.p_min,
        "calibration": config.calibration.model_dump(mode="json", exclude={"min_coverage", "rungs"}),
        "refit": config.refit.model_dump(mode="json", exclude={"publish", "max_decision_shift", "triggers"}),
        "drift": config.drift.model_dump(mode="json", exclude={"page_days", "tolerance"}),
    }
    # Named only where they are configured, so that requests of before they existed keep their hash.
    if config.calibration.min_coverage:
        document["min_coverage"] = config.calibration.min_coverage
    if config.calibration.rungs != list(CANDIDATE_RUNGS):
        document["calibration"]["rungs"] = config.calibration.rungs
    if config.refit.triggers != list(REFIT_TRIGGERS):
        document["refit"]["triggers"] = config.refit.triggers
    if config.drift.tolerance:
        document["tolerance"] = config.drift.tolerance
    if config.decisions:
        document["decisions"] = [config.refit.max_decision_shift, config.decisions]
    if config.scores.audit_only:
        document["audit_only"] = sorted(config.scores.audit_only)
    if config.scores.keep_rate is not None:
        document["keep_rate"] = True
    for name in ("keep_rate_positives", "keep_rate_negatives"):
        if getattr(config.labels, name) != 1.0:
            document[name] = getattr(config.labels, name)
    return document
