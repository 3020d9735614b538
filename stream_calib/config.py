"""The configuration of one deployment: one TOML file, checked as a whole, unknown keys refused.

Durations are written as text with a unit (`"5m"`, `"24h"`, `"500ms"`) and held in milliseconds; in the file their keys
have no `_ms`. Loading, hashing and the reference page are modules of their own: config_file, config_identity,
config_reference.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, field_validator, model_validator

from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config_alerts import AlertsSection
from stream_calib.config_connections import HttpSection, LogSection, RedisSection, TelemetrySection
from stream_calib.config_fusion import Fusion, FusionSection, check_fusion, fusion_of
from stream_calib.config_models import ModelSection, ScoreModel, ScoreModelSection, check_models
from stream_calib.config_records import LabelsSection, RecordsSection, ScoresSection
from stream_calib.config_refits import DriftSection, RefitSection
from stream_calib.config_retention import KeptPanes, RetentionSection, kept_panes
from stream_calib.config_values import DurationMs, DurationMsOrOff, Section, TopicName, duration_text, in_order
from stream_calib.errors import ConfigurationError

_SCORE_PATH = "score"
MOST_HORIZON_MS = 45 * 86_400_000
"""Of horizon and lateness."""

Probability = Annotated[float, Field(gt=0, lt=1)]
CandidateRung: TypeAlias = Literal["platt", "beta", "isotonic", "girb"]
CANDIDATE_RUNGS: tuple[CandidateRung, ...] = get_args(CandidateRung)


class TopicsSection(Section):
    """Names of the topics."""

    scores: TopicName = Field(default="scores", description="Scores of the model; read")
    labels: TopicName = Field(default="labels", description="Outcomes; read")
    calibrated: TopicName = Field(default="calibrated", description="One output for each score; written")
    blocks: TopicName = Field(default="blocks", description="Internal: packed rows from calibrate to monitor")
    live_blocks: TopicName | None = Field(
        default=None,
        description="Internal: packed rows of services that calibrate in the request path, where there are any",
    )
    dead_letters: TopicName = Field(default="dead-letters", description="What was rejected, with the reason; written")
    alerts: TopicName = Field(default="alerts", description="Opened and closed alerts; written")

    @model_validator(mode="after")
    def _are_distinct(self) -> TopicsSection:
        used: dict[str, str] = {}
        for key, topic in self.model_dump(exclude_none=True).items():
            if topic in used:
                raise ValueError(f"{used[topic]} and {key} are both {topic!r}; each needs a topic of its own")
            used[topic] = key
        return self


class ServingSection(Section):
    """How calibrate serves."""

    output: Literal["compact", "enrich"] = Field(
        default="compact",
        description="`compact`: a fresh object; `enrich`: the original with the field `stream_calib` added",
    )
    bootstrap: Literal["identity", "wait", "previous_version"] = Field(
        default="identity",
        description="Before the first snapshot of a model key: serve the raw score, marked; wait; or serve by the"
        " snapshot of the model's version before, marked, and the raw score where there is none",
    )
    snapshot_poll_ms: DurationMs = Field(
        default=1_000, alias="snapshot_poll", description="At most so long until a new snapshot is seen"
    )
    max_snapshot_staleness_ms: DurationMs = Field(
        default=7 * 86_400_000,
        alias="max_snapshot_staleness",
        description="With the state away for longer, calibrate stops",
    )
    clock_records: Literal["wall", "off"] = Field(
        default="wall",
        description="`wall`: a clock record a second while the input is at its end; `off` for historical records",
    )
    max_batch_records: int = Field(default=5_000, ge=1, le=100_000, description="Records of one batch")
    batch_interval_ms: DurationMs = Field(
        default=0,
        alias="batch_interval",
        le=1_000,
        description="At least so long between two batches, but for full ones: fewer and larger transactions, and so"
        " much more latency",
    )
    p_min: float = Field(default=1e-6, gt=0, lt=0.1, description="Outputs lie within [p_min, 1 - p_min]")


class WindowsSection(Section):
    """Clocks, join and panes."""

    horizon_ms: DurationMs = Field(
        alias="horizon", gt=0, le=MOST_HORIZON_MS, description="How long after a score its label may be dated"
    )
    pane_ms: DurationMs = Field(
        default=3_600_000, alias="pane", ge=1_000, le=7 * 86_400_000, description="Length of the slices of event time"
    )
    score_lateness_ms: DurationMs = Field(
        default=300_000,
        alias="score_lateness",
        le=MOST_HORIZON_MS,
        description="A score older than its partition's clock by more is late",
    )
    label_lateness_ms: DurationMs = Field(
        default=3_600_000,
        alias="label_lateness",
        le=MOST_HORIZON_MS,
        description="A label older than its partition's clock by more is late",
    )
    max_clock_skew_ms: DurationMsOrOff = Field(
        default=300_000,
        alias="max_clock_skew",
        description='An event further ahead of its record is not counted; "off" for historical records, where one event'
        " dated in the future makes all that follows in its partition late",
    )
    max_input_skew_ms: DurationMs = Field(
        default=6 * 3_600_000, alias="max_input_skew", description="A partition further ahead of the slowest is paused"
    )
    idle_timeout_ms: DurationMsOrOff = Field(
        default=60_000,
        alias="idle_timeout",
        description='A label partition silent for so long holds nothing up; "off" for historical records',
    )
    keep_panes: int = Field(
        default=2, ge=1, le=100, description="Matured panes kept in the join before they are removed"
    )
    settle_panes: int = Field(
        default=6, ge=1, description="A request unanswered for so many panes, and as much wall time, expires"
    )
    expire_requests: bool = Field(default=True, description="Off in lock-step replay")
    shards: int = Field(default=16, ge=1, le=1024, description="Parts of the join; 1 is enough for a demo")
    missing_label: Literal["ignore", "negative_at_horizon"] = Field(
        default="ignore", description="What a score without a label at its horizon is: unlabelled, or a negative"
    )


class CalibrationSection(Section):
    """The map."""

    score_groups: int = Field(default=100, ge=2, le=400, description="Score groups of the base map")
    prior_strength: float = Field(
        default=30.0, ge=0, description="Rows that the Platt prior counts for, in each score group"
    )
    offset_ridge: float = Field(default=20.0, gt=0, description="lambda of the group offsets")
    level_prior: float = Field(default=300.0, gt=0, description="Prior of the common level offset")
    structure_half_life_ms: DurationMs = Field(
        default=20 * 86_400_000,
        alias="structure_half_life",
        gt=0,
        description="Age at which a row counts half in the map",
    )
    level_half_life_ms: DurationMs = Field(
        default=3 * 86_400_000, alias="level_half_life", gt=0, description="Age at which a row counts half in the level"
    )
    gamma: float = Field(
        default=0.01,
        gt=0,
        lt=1,
        description="Share of the rows from which on a group's range of probability is audited",
    )
    alpha_abs: float = Field(
        default=0.02, gt=0, le=1, description="How far off a group's range of probability may be, in probability"
    )
    alpha_rel: float = Field(
        default=0.1, ge=0, le=1, description="The same as a share of the range's middle; the larger of both counts"
    )
    delta: float = Field(
        default=0.05, gt=0, lt=1, description="Probability that a certificate, or the patches, claim too much"
    )
    kappa: float = Field(default=1e-6, gt=0, description="Fall of the mean squared error that patches must show")
    rungs: list[CandidateRung] = Field(
        default_factory=lambda: list(CANDIDATE_RUNGS),
        min_length=1,
        description="Base maps that may be chosen: `platt`, `beta`, `isotonic`, `girb`; the last of them, the richest,"
        " is taken before there are seven days of evidence",
    )
    min_coverage: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of a group's scores that must have a label for it to have an offset, slope or patch; 0: any",
    )

    @field_validator("rungs")
    @classmethod
    def _rungs_are_in_order(cls, given: list[CandidateRung]) -> list[CandidateRung]:
        return in_order(given, CANDIDATE_RUNGS)


class Config(Section):
    """A whole deployment."""

    model: ModelSection = ModelSection()
    models: list[ScoreModelSection] = Field(
        default_factory=list, description="Several models whose scores are in one record"
    )
    fusion: FusionSection = FusionSection()
    topics: TopicsSection = TopicsSection()
    log: LogSection = LogSection()
    redis: RedisSection = RedisSection()
    http: HttpSection = HttpSection()
    telemetry: TelemetrySection = TelemetrySection()
    records: RecordsSection = RecordsSection()
    scores: ScoresSection = ScoresSection()
    labels: LabelsSection = LabelsSection()
    serving: ServingSection = ServingSection()
    windows: WindowsSection
    calibration: CalibrationSection = CalibrationSection()
    refit: RefitSection = RefitSection()
    drift: DriftSection = DriftSection()
    retention: RetentionSection = RetentionSection()
    decisions: dict[str, Probability] = Field(
        default_factory=dict,
        max_length=16,
        description="Thresholds at which somebody decides by the probability: name -> probability",
    )
    alerts: AlertsSection = AlertsSection()

    def kept_panes(self) -> KeptPanes:
        """How long what belongs to panes stays."""
        windows, looked_at = self.windows, (self.refit.gate_window_ms, self.drift.psi_window_ms)
        return kept_panes(self.retention, windows.pane_ms, windows.horizon_ms, windows.keep_panes, *looked_at)

    def score_models(self) -> tuple[ScoreModel, ...]:
        """The scores that a record may hold, in the order of their models in the output; at least one."""
        scores = self.scores
        if self.models:
            return tuple(
                ScoreModel(m.name, None, m.version, m.version_path, m.score, m.scale or scores.scale)
                for m in self.models
            )
        m = self.model
        return (ScoreModel(m.name, m.name_path, m.version, m.version_path, scores.score or _SCORE_PATH, scores.scale),)

    def fused(self) -> Fusion | None:
        """What is fused of the scores of a record, None where nothing is."""
        return fusion_of(self.fusion, self.models)

    @model_validator(mode="before")
    @classmethod
    def _score_has_a_path(cls, given: Any) -> Any:
        if (
            not isinstance(given, dict)
            or given.get("models")
            or not isinstance(scores := given.get("scores", {}), dict)
        ):
            return given
        return {**given, "scores": {"score": _SCORE_PATH, **scores}}

    @model_validator(mode="after")
    def _models_are_sound(self) -> Config:
        check_models(self.model, self.models, self.scores.score)
        check_fusion(self.fusion, self.models, self.model.max_keys)
        return self

    @model_validator(mode="after")
    def _windows_are_whole_panes(self) -> Config:
        pane = self.windows.pane_ms
        for key, window in (
            ("refit.gate_window", self.refit.gate_window_ms),
            ("drift.psi_window", self.drift.psi_window_ms),
        ):
            if window % pane:
                raise ValueError(
                    f"{key} = {duration_text(window)} is not a whole number of panes "
                    f"(windows.pane = {duration_text(pane)}); windows are made of whole panes"
                )
        return self

    @model_validator(mode="after")
    def _limited_decisions_are_named(self) -> Config:
        if self.refit.max_decision_shift is not None and not self.decisions:
            raise ValueError(
                f"refit.max_decision_shift = {self.refit.max_decision_shift:g} limits nothing: name the thresholds in"
                " [decisions], as decline = 0.8"
            )
        return self

    @model_validator(mode="after")
    def _archive_is_long_enough(self) -> Config:
        self.kept_panes()
        return self

    @model_validator(mode="after")
    def _panes_and_zone_divide(self) -> Config:
        if self.scores.derived:
            try:
                TimeAttributes(tuple(self.scores.derived), self.scores.zone, self.windows.pane_ms)
            except ConfigurationError as error:
                raise ValueError(f"scores.derived: {error}") from error
        return self
