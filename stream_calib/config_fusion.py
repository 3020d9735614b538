"""The section that says which models are fused, and with what weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from stream_calib.config_models import DEFAULT_VERSION, ScoreModelSection
from stream_calib.config_values import Section
from stream_calib.events.contracts import ModelKey


class Fusion(NamedTuple):
    """A score made of those of several models."""

    key: ModelKey
    """Of the fused score, which is the raw score of a model of its own."""
    weights: dict[str, float]
    """Of each member by name, in the order of `[[models]]`."""
    definition: str
    """Members, their versions and shares, as text: scores of other definitions cannot be compared."""


class FusionSection(Section):
    """One more score of each record, made of those of several `[[models]]`: the weighted mean of their calibrated
    probabilities in log-odds, which is then calibrated as the raw score of a model of its own."""

    name: str | None = Field(
        default=None, description="Name of the fused model, none of `[[models]]`; without one nothing is fused"
    )
    version: str | None = Field(
        default=None,
        description='Its version, "1" where none is given; give another one when members, their versions or weights'
        " change",
    )
    members: dict[str, float] = Field(
        default_factory=dict,
        description="Weights: name of a model -> 0 or more; only their proportions matter. All models alike where none"
        " is given",
    )

    @model_validator(mode="before")
    @classmethod
    def _version_is_one(cls, given: Any) -> Any:
        named = isinstance(given, dict) and "name" in given
        return {"version": DEFAULT_VERSION, **given} if named else given

    @model_validator(mode="after")
    def _is_named(self) -> FusionSection:
        if self.name is not None:
            ModelKey.of(self.name, self.version or DEFAULT_VERSION)
        elif self.version is not None or self.members:
            raise ValueError("fusion.name must be given: the fused score is the raw score of a model of that name")
        return self

    @model_validator(mode="after")
    def _weights_are_sound(self) -> FusionSection:
        for name, weight in self.members.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"members.{name} = {weight}; a weight is a finite number, 0 or more")
        if self.members and not any(self.members.values()):
            raise ValueError("members: at least one model needs a weight above 0")
        return self


def fusion_of(section: FusionSection, models: Sequence[ScoreModelSection]) -> Fusion | None:
    """What is fused, None where nothing is."""
    if section.name is None:
        return None
    given = section.members or {model.name: 1.0 for model in models}
    weights = {model.name: given[model.name] for model in models if model.name in given}
    total = sum(weights.values())
    versions = {model.name: model.version or "*" for model in models}
    shares = [f"{name}/{versions[name]}={weight / total:.9g}" for name, weight in sorted(weights.items()) if weight]
    return Fusion(ModelKey(section.name, section.version or DEFAULT_VERSION), weights, " ".join(shares))


def check_fusion(section: FusionSection, models: Sequence[ScoreModelSection], max_keys: int) -> None:
    """Raises ValueError where `[fusion]` contradicts `[[models]]` or `model.max_keys`."""
    if section.name is None:
        return
    names = [model.name for model in models]
    if len(names) < 2:
        raise ValueError(
            f"fusion needs two or more [[models]], there are {len(names)}; leave [fusion] out, or add them"
        )
    if section.name in names:
        raise ValueError(
            f"fusion.name = {section.name!r} is one of [[models]]; the fused score needs a name of its own"
        )
    unknown = [name for name in section.members if name not in names]
    if unknown:
        raise ValueError(f"fusion.members: {unknown[0]!r} is none of [[models]]; there are: {', '.join(names)}")
    if len(names) + 1 > max_keys:
        raise ValueError(f"{len(names)} [[models]] and the fused one, and model.max_keys = {max_keys}; raise it")
