"""The section [alerts.conditions]: from where on the service tells of itself what no pane decides."""

from __future__ import annotations

from pydantic import Field

from stream_calib.config_values import DurationMs, DurationMsOrOff, Section


class ConditionsSection(Section):
    """Conditions that open alerts by themselves. Each closes well below where it opens."""

    no_scores_ms: DurationMsOrOff = Field(
        default=3_600_000, alias="no_scores", gt=0, description="A model without scores for so long, in whole panes"
    )
    watermark_stalled_ms: DurationMsOrOff = Field(
        default=900_000,
        alias="watermark_stalled",
        gt=0,
        description="The clock of an input partition stands, and is behind the others, for so long",
    )
    lag_ms: DurationMsOrOff = Field(
        default=600_000, alias="lag", gt=0, description="Records have waited to be read for so long"
    )
    snapshot_age_ms: DurationMsOrOff = Field(
        default=14 * 86_400_000,
        alias="snapshot_age",
        gt=0,
        description="What is served was fitted on data that is older, in event time and beyond the horizon",
    )
    rejected_share: float = Field(
        default=0.05, gt=0, le=1, description="Share of the records of a topic that become dead letters"
    )
    rejected_window_ms: DurationMs = Field(
        default=600_000, alias="rejected_window", gt=0, description="Over which that share is taken"
    )
