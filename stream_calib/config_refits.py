"""The sections [refit] and [drift]: when refits are asked for, what a candidate must show, and what counts as drift."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from pydantic import Field, field_validator

from stream_calib.config_values import DurationMs, DurationMsOrOff, Section, in_order

RefitTrigger: TypeAlias = Literal["residual", "psi", "age"]
REFIT_TRIGGERS: tuple[RefitTrigger, ...] = get_args(RefitTrigger)


class RefitSection(Section):
    """When to refit, and what a candidate must show."""

    max_age_ms: DurationMs = Field(
        default=86_400_000, alias="max_age", gt=0, description="Refit when the last is older"
    )
    level_cadence_ms: DurationMsOrOff = Field(
        default=None, alias="level_cadence", gt=0, description="How often the level alone is refitted"
    )
    cooldown_ms: DurationMs = Field(
        default=6 * 3_600_000, alias="cooldown", description="Time after a request before drift may ask again"
    )
    min_new_labels: int = Field(default=1_000, ge=0, description="New mature labels before a drift refit")
    min_rows: int = Field(default=2_000, ge=2, description="Labelled rows needed to fit")
    min_positives: int = Field(default=50, ge=1, description="Positives needed to fit")
    gate_window_ms: DurationMs = Field(
        default=7 * 86_400_000, alias="gate_window", gt=0, description="Mature panes that judge a candidate"
    )
    gate_margin: float = Field(
        default=0.02, ge=0, description="Share of the loss by which the lower bound may fall below no gain"
    )
    gate_min_rows: int = Field(default=100, ge=1, description="Labelled rows that the gate needs")
    max_auc_drop: float = Field(default=0.002, ge=0, description="Most that a candidate may lose of the AUC")
    max_decision_shift: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Most events, as a share, that a candidate may move over one of the thresholds of `decisions`;"
        " without it they are reported only",
    )
    triggers: list[RefitTrigger] = Field(
        default_factory=lambda: list(REFIT_TRIGGERS),
        description="What may ask for a refit of the structure, beside the first one and somebody by hand: `residual`,"
        " `psi`, `age`; the level has `level_cadence`",
    )
    publish: Literal["auto", "approve"] = Field(
        default="auto",
        description="`approve`: a candidate that passed the gate is held until `snapshot approve` publishes it",
    )

    @field_validator("triggers")
    @classmethod
    def _triggers_are_in_order(cls, given: list[RefitTrigger]) -> list[RefitTrigger]:
        return in_order(given, REFIT_TRIGGERS)


class DriftSection(Section):
    """What counts as drift."""

    psi_window_ms: DurationMs = Field(
        default=86_400_000, alias="psi_window", gt=0, description="Whole seasons of the traffic"
    )
    psi_threshold: float = Field(default=0.1, gt=0, description="psi0: excess below it is never drift")
    psi_bins: int = Field(default=10, ge=2, le=100, description="Bins of the PSI")
    min_mass: float = Field(
        default=0.01, gt=0, lt=1, description="gamma: groups of smaller mass are not watched on their own"
    )
    false_alarm_days: float = Field(
        default=30,
        gt=0,
        description="At most one false alarm that asks for a refit in so many days, of outcomes and of PSI each",
    )
    page_days: float = Field(default=365, gt=0, description="At most one false page in so many days")
    tolerance: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="How far outcomes may be off the probability that is served, before it counts as drift",
    )
