"""The sections that say whose scores a record holds: one model, or several with a score each.

Both forms are seen as one by `Config.score_models`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from stream_calib.config_values import FieldPath, Section
from stream_calib.events.contracts import ModelKey

ScoreScale = Literal["probability", "logit", "percent"]

DEFAULT_VERSION = "1"


class ScoreModel(NamedTuple):
    """One score of a record, and the model that made it: of name and name_path one is set, and so of the versions."""

    name: str | None
    name_path: str | None
    version: str | None
    version_path: str | None
    score_path: str
    scale: ScoreScale

    @property
    def key(self) -> ModelKey | None:
        """The model key where name and version are constants."""
        return None if self.name is None or self.version is None else ModelKey(self.name, self.version)


class ModelSection(Section):
    """Whose scores these are. With `[[models]]` only `max_keys` is set here."""

    name: str | None = Field(default=None, description="Name of the model; 1-64 characters of A-Z a-z 0-9 . _ -")
    name_path: FieldPath | None = Field(
        default=None, description="Path of the model's name, where the topic holds scores of several; in place of name"
    )
    version: str | None = Field(
        default=None,
        description='Version of the model, "1" where none is given; snapshots and counts belong to (name, version)',
    )
    version_path: FieldPath | None = Field(default=None, description="Path of the model's version; in place of version")
    max_keys: int = Field(
        default=16,
        ge=1,
        le=1_000,
        description="Most (name, version) that the deployment may have; records of further ones are rejects",
    )

    @model_validator(mode="before")
    @classmethod
    def _version_is_one(cls, given: Any) -> Any:
        named = isinstance(given, dict) and {"name", "name_path"} & given.keys()
        return _with_version(given) if named else given

    @model_validator(mode="after")
    def _is_one_model(self) -> ModelSection:
        _one_of("name", self.name, self.name_path)
        _one_of("version", self.version, self.version_path)
        _check_names(self.name, self.version)
        return self


class ScoreModelSection(Section):
    """One of several models whose scores are in one record. Each is calibrated by snapshots of its own."""

    name: str = Field(description="Name of the model; 1-64 characters of A-Z a-z 0-9 . _ -")
    score: FieldPath = Field(description="Path of its raw score; a record without it has no score of this model")
    scale: ScoreScale | None = Field(default=None, description="Scale of its raw score; that of `scores` by default")
    version: str | None = Field(default=None, description='Version of the model, "1" where none is given')
    version_path: FieldPath | None = Field(default=None, description="Path of the model's version; in place of version")

    @model_validator(mode="before")
    @classmethod
    def _version_is_one(cls, given: Any) -> Any:
        return _with_version(given) if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _is_a_model(self) -> ScoreModelSection:
        _one_of("version", self.version, self.version_path)
        _check_names(self.name, self.version)
        return self


def check_models(model: ModelSection, models: Sequence[ScoreModelSection], score: str | None) -> None:
    """Raises ValueError where `[model]`, `[[models]]` and `scores.score` contradict each other."""
    if not models:
        if model.name is None and model.name_path is None:
            raise ValueError("model.name (or model.name_path, or [[models]]) must be given; there is no default")
        return
    for key in ("name", "name_path", "version", "version_path"):
        if getattr(model, key) is not None:
            raise ValueError(f"model.{key} and [[models]] exclude each other; each of the models has its own")
    if score is not None:
        raise ValueError("scores.score and [[models]] exclude each other; each of the models has its own")
    names = [m.name for m in models]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"models: {name!r} is there {names.count(name)} times; each score needs a model of its own"
            )
    if len(models) > model.max_keys:
        raise ValueError(f"there are {len(models)} [[models]], and model.max_keys = {model.max_keys}; raise it")


def _with_version(given: dict[str, Any]) -> dict[str, Any]:
    return given if {"version", "version_path"} & given.keys() else {**given, "version": DEFAULT_VERSION}


def _one_of(what: str, constant: str | None, path: str | None) -> None:
    if constant is not None and path is not None:
        raise ValueError(f"{what} and {what}_path exclude each other; keep one of them")


def _check_names(*names: str | None) -> None:
    for name in names:
        if name is not None:
            ModelKey.of(name, name)
