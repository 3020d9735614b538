"""The sections that say how the users' records are read."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from stream_calib.calibration.groups import OTHER
from stream_calib.config_models import ScoreScale
from stream_calib.config_values import DurationMs, FieldPath, Section
from stream_calib.drift.label_schedule import LabelSchedule
from stream_calib.errors import ConfigurationError
from stream_calib.events.keep_rates import LEAST_KEEP_RATE

MAX_ATTRIBUTES = 16
_LEAST_SAMPLE_RATE = 1e-6
"""Of less nothing would be left to count."""

_ATTRIBUTE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class TimeSection(Section):
    """Where the event time is."""

    path: FieldPath | None = Field(
        default=None, description="Path of the event time; without one the log's append time is used"
    )
    unit: Literal["ms", "s", "us", "iso8601"] = Field(default="ms", description="Unit of the event time; never guessed")


class ScoresSection(Section):
    """How to read a score event. Paths are dotted: `prediction.p_default`."""

    id: FieldPath = Field(default="event_id", description="Path of the event id")
    score: FieldPath | None = Field(
        default=None, description='Path of the raw score, "score" where none is given; not with `[[models]]`'
    )
    scale: ScoreScale = Field(default="probability", description="Scale of the raw score; never guessed")
    time: TimeSection = TimeSection()
    unit: FieldPath | None = Field(
        default=None,
        description="Path of what is independent of the others (a customer); without one it is the event id",
    )
    attributes: dict[str, FieldPath] = Field(
        default_factory=dict, max_length=MAX_ATTRIBUTES, description="Group attributes: name -> path"
    )
    intersections: list[list[str]] = Field(
        default_factory=list, description="Lists of attribute names whose combinations are groups too"
    )
    predicates: dict[str, dict[str, list[str]]] = Field(
        default_factory=dict,
        description="Named groups: name -> attribute -> the values that it admits; an event is in one where all of its"
        " values are admitted",
    )
    derived: list[Literal["hour_of_day", "day_of_week"]] = Field(
        default_factory=list,
        description='Group attributes out of the event time: "hour_of_day", "day_of_week". They come on where the'
        " evidence asks for it, each by itself: intersections and predicates cannot have them",
    )
    zone: str = Field(
        default="UTC",
        description='Time zone of `derived`, as "America/New_York"; its distance from UTC must be whole panes',
    )
    max_value_bytes: int = Field(
        default=128, ge=1, le=1024, description="A longer attribute value becomes `__missing__`"
    )
    max_values: int = Field(
        default=1_000,
        ge=1,
        le=10_000,
        description="Most values of one attribute that a pane counts apart when it matures; the rarer ones are counted"
        " together as `__other__`",
    )
    audit_only: list[str] = Field(
        default_factory=list,
        description="Attributes and predicates whose groups are watched and reported, and never an input to the map;"
        " intersections and predicates of such an attribute are audit-only too",
    )
    sample_rate: float = Field(
        default=1.0,
        ge=_LEAST_SAMPLE_RATE,
        le=1,
        description="Share of the event ids that is joined and counted, always the same ones; every score is served",
    )
    keep_rate: FieldPath | None = Field(
        default=None,
        description="Path of the share of such events that was kept where events were thinned before the stream: in"
        " (0, 1], 1 where it is missing, at most 16 distinct values; fits count the event 1 / share times",
    )

    @model_validator(mode="after")
    def _groups_are_sound(self) -> ScoresSection:
        for name in self.attributes:
            if not _ATTRIBUTE_NAME.fullmatch(name):
                raise ValueError(
                    f"attributes: {name!r} is no attribute name; use a letter or _, then up to 63 of A-Z a-z 0-9 _ . -"
                )
        seen: set[frozenset[str]] = set()
        for intersection in self.intersections:
            unknown = [name for name in intersection if name not in self.attributes]
            if unknown:
                raise ValueError(f"intersections: {self._not_configured(unknown[0])}")
            if len(set(intersection)) < max(2, len(intersection)):
                raise ValueError(f"intersections: {intersection} needs at least two attributes, each once")
            if frozenset(intersection) in seen:
                raise ValueError(f"intersections: {intersection} is there twice")
            seen.add(frozenset(intersection))
        return self

    @model_validator(mode="after")
    def _predicates_are_sound(self) -> ScoresSection:
        for name, admitted in self.predicates.items():
            if not name.strip() or name in self.attributes:
                raise ValueError(f"predicates: {name!r} is no name, or that of an attribute; give it one of its own")
            unknown = [attribute for attribute in admitted if attribute not in self.attributes]
            if unknown:
                raise ValueError(f"predicates.{name}: {self._not_configured(unknown[0])}")
            if not admitted or not all(admitted.values()):
                raise ValueError(f"predicates.{name}: needs an attribute, and a value of each; with none it has no row")
            if any(OTHER in values for values in admitted.values()):
                raise ValueError(
                    f"predicates.{name}: {OTHER} stands for values that are not counted apart; leave it out"
                )
        return self

    @model_validator(mode="after")
    def _audit_only_are_known(self) -> ScoresSection:
        for name in self.audit_only:
            if name in self.derived:
                raise ValueError(
                    f"audit_only: {name!r} is derived; it comes on only where it helps, so leave it out here"
                )
            if name not in self.attributes and name not in self.predicates:
                known = ", ".join([*self.attributes, *self.predicates]) or "none"
                raise ValueError(f"audit_only: {name!r} is neither an attribute nor a predicate; there are: {known}")
            if self.audit_only.count(name) > 1:
                raise ValueError(f"audit_only: {name!r} is there twice; give each once")
        return self

    @model_validator(mode="after")
    def _derived_are_apart(self) -> ScoresSection:
        for name in self.derived:
            if name in self.attributes or self.derived.count(name) > 1:
                raise ValueError(f"derived: {name!r} is there twice, or the name of an attribute; keep one of them")
        return self

    def _not_configured(self, name: str) -> str:
        what = (
            "is derived; this takes configured attributes" if name in self.derived else "is not a configured attribute"
        )
        return f"{name!r} {what}; there are: {', '.join(self.attributes) or 'none'}"


class LabelsSection(Section):
    """How to read a label event."""

    id: FieldPath = Field(default="event_id", description="Path of the event id")
    label: FieldPath = Field(
        default="label", description='Path of the outcome: 0/1, true/false, "0"/"1"; null withdraws'
    )
    model: FieldPath | None = Field(
        default=None,
        description="Path of the name of the model whose scores the label is for; a label without it, and all labels"
        " where no path is given, are for every model that has the id",
    )
    time: TimeSection = TimeSection()
    time_granularity_ms: DurationMs = Field(
        default=1,
        alias="time_granularity",
        ge=1,
        le=7 * 86_400_000,
        description='What a label time stands for: "1d" for date-only times. It counts as the last millisecond of that',
    )

    clock: Literal["event", "broker"] = Field(
        default="event",
        description="What moves a label partition's clock: the times of its labels, or the times at which the log took"
        " them (`broker`: for labels that are loaded in batches, in any order)",
    )
    schedule: list[str] = Field(
        default_factory=list,
        max_length=50,
        description='When labels that come in batches are due: `["mon-fri 06:00"]`, `["06:00", "18:00"]` (every day).'
        " Silence before that is no outage; empty: labels come all the time",
    )
    schedule_zone: str = Field(default="UTC", description='Time zone of `schedule`, as "America/New_York"')
    schedule_grace_ms: DurationMs = Field(
        default=6 * 3_600_000,
        alias="schedule_grace",
        ge=60_000,
        le=45 * 86_400_000,
        description="`label_outage` opens where no label has come so long after it was due, or, without a schedule, for"
        " so long",
    )
    keep_rate_positives: float = Field(
        default=1.0,
        ge=LEAST_KEEP_RATE,
        le=1,
        description="Share of the positives that was kept, where they were thinned before the stream; fits count each"
        " 1 / share times",
    )
    keep_rate_negatives: float = Field(default=1.0, ge=LEAST_KEEP_RATE, le=1, description="The same for the negatives")

    @model_validator(mode="after")
    def _granularity_has_a_time(self) -> LabelsSection:
        if self.time_granularity_ms > 1 and self.time.path is None:
            raise ValueError("time_granularity is for label times out of the record: set labels.time.path too")
        return self

    @model_validator(mode="after")
    def _schedule_is_sound(self) -> LabelsSection:
        try:
            self.when_due()
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self

    def when_due(self) -> LabelSchedule:
        """When labels must have come."""
        return LabelSchedule.parse(self.schedule, self.schedule_zone, self.schedule_grace_ms)


class RecordsSection(Section):
    """What holds for every record."""

    max_record_bytes: int = Field(default=1_000_000, ge=100, description="A larger record is a reject")
    max_depth: int = Field(default=32, ge=1, le=200, description="Deeper nested JSON is a reject")
    max_dead_letter_bytes: int = Field(
        default=900_000,
        ge=10_000,
        description="Of a larger rejected record, headers included, the dead letter has the beginning only, with a"
        " header that says so; below what the topic takes (max.message.bytes)",
    )
    on_reject: Literal["dead_letter", "passthrough"] = Field(
        default="dead_letter", description="`passthrough`: the original also goes to `calibrated`, marked"
    )
