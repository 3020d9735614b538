"""Which model a score is of: constants of the configuration, or fields of the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.config_models import ScoreModel
from stream_calib.events.columns import ABSENT, Failures, column
from stream_calib.events.contracts import ModelKey, RejectReason
from stream_calib.events.messages import shown


def read_keys(
    model: ScoreModel, objects: Sequence[dict[str, Any]], places: dict[ModelKey, int]
) -> tuple[NDArray[np.intp], Failures]:
    """Place (n,) intp of each object's model key (-1 where refused), and what is refused.

    `places`: key -> its place; keys that are not in it are added, in order of first appearance.
    """
    if model.key is not None:
        return np.full(len(objects), places.setdefault(model.key, len(places)), dtype=np.intp), {}
    names = _texts(objects, model.name, model.name_path)
    versions = _texts(objects, model.version, model.version_path)
    pairs = list(zip(names, versions, strict=False))  # a constant is repeated without end
    known: dict[tuple[str | None, str | None], int] = {}
    for pair in dict.fromkeys(pairs):
        key = _key(*pair)
        known[pair] = -1 if key is None else places.setdefault(key, len(places))
    index = np.array([known[pair] for pair in pairs], dtype=np.intp)
    return index, {i: _refusal(model, objects[i]) for i in np.flatnonzero(index < 0).tolist()}


def text_at(path: str | None, content: dict[str, Any]) -> str | None:
    """The name or version that the record has at the path, None where it has none that can be one."""
    (text,) = _texts([content], None, path) if path else (None,)
    return None if _key(text, text) is None else text


def _texts(objects: Sequence[dict[str, Any]], constant: str | None, path: str | None) -> Iterable[str | None]:
    if path is None:
        return repeat(constant)
    values = column(objects, path)
    # Only text is looked up by value: 1, 1.0 and true are one key of a dictionary, and lists are none.
    return values if set(map(type, values)) <= {str} else [v if type(v) is str else None for v in values]


def _key(name: str | None, version: str | None) -> ModelKey | None:
    if name is None or version is None:
        return None
    try:
        return ModelKey.of(name, version)
    except ValueError:
        return None  # refused below, with the path and what was found there


def _refusal(model: ScoreModel, content: dict[str, Any]) -> tuple[RejectReason, str]:
    for what, path in (("name", model.name_path), ("version", model.version_path)):
        if path is None:
            continue
        (value,) = column([content], path)
        if value is ABSENT:
            return RejectReason.MODEL_MISSING, f"{path} is missing; every score needs the {what} of its model"
        if type(value) is not str or _key(value, value) is None:
            allowed = "text of 1-64 characters of A-Z a-z 0-9 . _ -, the first a letter or digit"
            return RejectReason.MODEL_INVALID, f"{path} is {shown(value)}; the {what} of a model is {allowed}"
    raise AssertionError("a model key was refused for no reason")
