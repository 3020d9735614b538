"""The configuration of one deployment: one TOML file, checked as a whole, unknown keys refused.

Durations are written as text with a unit (`"5m"`, `"24h"`, `"500ms"`) and held in milliseconds.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def _duration_ms(value: Any) -> Any:
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError(f'{value!r} is not a duration; write a number and a unit, as "500ms", "30s", "5m", "1h", "7d"')
        return round(float(match[1]) * _UNITS_MS[match[2]])
    raise ValueError(f'{value!r} has no unit; write a duration as text, as "5m" or "24h"')


DurationMs = Annotated[int, BeforeValidator(_duration_ms), Field(ge=0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)


class ModelSection(Section):
    """Whose scores these are."""

    name: str = Field(description="Name of the model; 1-64 characters of A-Z a-z 0-9 . _ -")
    version: str = Field("1", description="Version of the model; snapshots and counts belong to (name, version)")


class TopicsSection(Section):
    """Names of the topics."""

    scores: str = "scores"
    labels: str = "labels"
    calibrated: str = "calibrated"
    blocks: str = Field("blocks", description="Internal: packed rows from calibrate to monitor")
    dead_letters: str = "dead-letters"
    alerts: str = "alerts"


class LogSection(Section):
    """The log that the roles read and write."""

    kind: Literal["embedded"] = Field("embedded", description="`embedded`: streams in a Redis-compatible server")
    url: str = Field("redis://127.0.0.1:6379/0", description="Where the embedded log lives (secret parts from the environment)")
    score_partitions: int = Field(4, ge=1, le=4096, description="Used when topics are created")
    label_partitions: int = Field(4, ge=1, le=4096, description="Used when topics are created")
    session_timeout_ms: DurationMs = Field(10_000, alias="session_timeout", description="A silent member loses its partitions")


class RedisSection(Section):
    """The state: join, counts, snapshots, decision log."""

    url: str = Field("redis://127.0.0.1:6379/0", description="Redis or Valkey, 6.2 or later")


class TimeSection(Section):
    path: str | None = Field(None, description="Path of the event time; without one the log's append time is used")
    unit: Literal["ms", "s", "us", "iso8601"] = Field("ms", description="Unit of the event time; never guessed")


class ScoresSection(Section):
    """How to read a score event. Paths are dotted: `prediction.p_default`."""

    id: str = Field("event_id", description="Path of the event id")
    score: str = Field("score", description="Path of the raw score")
    scale: Literal["probability", "logit", "percent"] = Field("probability", description="Scale of the raw score; never guessed")
    time: TimeSection = TimeSection()
    unit: str | None = Field(None, description="Attribute path of what is independent of the others; default: the event id")
    attributes: dict[str, str] = Field(default_factory=dict, description="Attribute name -> path")
    intersections: list[list[str]] = Field(default_factory=list, description="Attribute lists whose combinations are groups too")
    max_value_bytes: int = Field(128, ge=1, description="A longer attribute value becomes `__missing__`")


class LabelsSection(Section):
    """How to read a label event."""

    id: str = Field("event_id", description="Path of the event id")
    label: str = Field("label", description="Path of the outcome: 0/1, true/false, \"0\"/\"1\"; null withdraws")
    time: TimeSection = TimeSection()
    time_granularity_ms: DurationMs = Field(1, alias="time_granularity", description="`1d` for date-only label times")


class RecordsSection(Section):
    """What holds for every record."""

    max_record_bytes: int = Field(1_000_000, ge=100, description="A larger record is a reject")
    max_depth: int = Field(32, ge=1, le=200, description="Deeper nested JSON is a reject")
    on_reject: Literal["dead_letter", "passthrough"] = Field(
        "dead_letter", description="`passthrough`: the original also goes to `calibrated`, marked"
    )


class ServingSection(Section):
    """How calibrate serves."""

    output: Literal["compact", "enrich"] = "compact"
    bootstrap: Literal["identity", "wait"] = Field("identity", description="What is served before the first snapshot")
    snapshot_poll_ms: DurationMs = Field(1_000, alias="snapshot_poll")
    max_snapshot_staleness_ms: DurationMs = Field(
        7 * 86_400_000, alias="max_snapshot_staleness", description="With the state away for longer, calibrate stops"
    )
    clock_records: Literal["wall", "off"] = Field(
        "wall", description="`wall`: a clock record a second while the input is at its end; `off` where records are historical"
    )
    max_batch_records: int = Field(5_000, ge=1, le=100_000)
    p_min: float = Field(1e-6, gt=0, lt=0.1, description="Outputs lie within [p_min, 1 - p_min]")


class WindowsSection(Section):
    """Clocks, join and panes."""

    horizon_ms: DurationMs = Field(alias="horizon", gt=0, le=45 * 86_400_000, description="How long after a score its label may be dated")
    pane_ms: DurationMs = Field(3_600_000, alias="pane", ge=1_000, le=7 * 86_400_000)
    score_lateness_ms: DurationMs = Field(300_000, alias="score_lateness")
    label_lateness_ms: DurationMs = Field(3_600_000, alias="label_lateness")
    max_clock_skew_ms: DurationMs | None = Field(
        300_000, alias="max_clock_skew", description="An event further ahead of its record is not counted; \"off\" for historical records"
    )
    max_input_skew_ms: DurationMs = Field(6 * 3_600_000, alias="max_input_skew")
    idle_timeout_ms: DurationMs | None = Field(60_000, alias="idle_timeout", description="\"off\" where records are historical")
    keep_panes: int = Field(2, ge=1, le=100)
    settle_panes: int = Field(6, ge=1, description="A request unanswered for so many panes, and as much wall time, expires")
    expire_requests: bool = Field(True, description="Off in lock-step replay")
    shards: int = Field(16, ge=1, le=1024)
    missing_label: Literal["ignore", "negative_at_horizon"] = "ignore"


class CalibrationSection(Section):
    """The map."""

    score_groups: int = Field(100, ge=2, le=400)
    prior_strength: float = Field(30.0, ge=0, description="Rows that the Platt prior counts for, in each score group")
    offset_ridge: float = Field(20.0, gt=0, description="lambda of the group offsets")
    level_prior: float = Field(300.0, gt=0, description="Prior of the common level offset")
    structure_half_life_ms: DurationMs = Field(20 * 86_400_000, alias="structure_half_life", gt=0)
    level_half_life_ms: DurationMs = Field(3 * 86_400_000, alias="level_half_life", gt=0)


class RefitSection(Section):
    """When to refit, and what a candidate must show."""

    max_age_ms: DurationMs = Field(86_400_000, alias="max_age")
    level_cadence_ms: DurationMs | None = Field(None, alias="level_cadence", description="Off by default")
    cooldown_ms: DurationMs = Field(6 * 3_600_000, alias="cooldown")
    min_new_labels: int = Field(1_000, ge=0, description="New mature labels before a drift refit")
    min_rows: int = Field(2_000, ge=2, description="Labelled rows needed to fit")
    min_positives: int = Field(50, ge=1)
    gate_window_ms: DurationMs = Field(7 * 86_400_000, alias="gate_window", gt=0)
    gate_margin: float = Field(0.02, ge=0, description="Share of the loss by which the lower bound may fall below no gain")
    gate_min_rows: int = Field(100, ge=1, description="Labelled rows that the gate needs")
    max_auc_drop: float = Field(0.002, ge=0)


class DriftSection(Section):
    """What counts as drift."""

    psi_window_ms: DurationMs = Field(86_400_000, alias="psi_window", gt=0, description="Whole seasons")
    psi_threshold: float = Field(0.1, gt=0, description="psi0: excess below it is never drift")
    psi_bins: int = Field(10, ge=2, le=100)
    min_mass: float = Field(0.01, gt=0, lt=1, description="gamma: groups of smaller mass are not watched on their own")
    false_alarm_days: float = Field(30, gt=0, description="At most one false refit alarm in so many days")


class Config(Section):
    """A whole deployment."""

    model: ModelSection
    topics: TopicsSection = TopicsSection()
    log: LogSection = LogSection()
    redis: RedisSection = RedisSection()
    records: RecordsSection = RecordsSection()
    scores: ScoresSection = ScoresSection()
    labels: LabelsSection = LabelsSection()
    serving: ServingSection = ServingSection()
    windows: WindowsSection
    calibration: CalibrationSection = CalibrationSection()
    refit: RefitSection = RefitSection()
    drift: DriftSection = DriftSection()
