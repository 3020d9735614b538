"""Which model a label is for: the one that it names, or every one that has the id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.columns import ABSENT, Failures, column
from stream_calib.events.contracts import ModelKey, RejectReason
from stream_calib.events.messages import shown

EVERY_MODEL = -1
"""Model index of a label that names none."""


class NamedModels(NamedTuple):
    """Of n labels."""

    model_index: NDArray[np.intp]
    """(n,) index into `models`; EVERY_MODEL where the label names none, or is refused."""
    models: list[str]
    """The distinct names, in order of first appearance. A name that nobody scores by is none the less a name."""


def read_named_models(objects: Sequence[dict[str, Any]], path: str | None) -> tuple[NamedModels, Failures]:
    """The models that the labels name at the path (None: labels never name one), and what is refused: what is neither
    a name, nor null, nor absent."""
    if path is None:
        return NamedModels(np.full(len(objects), EVERY_MODEL, dtype=np.intp), []), {}
    values = column(objects, path)
    # Only text is looked up by value: 1, 1.0 and true are one key of a dictionary, and lists are none.
    texts = [value if type(value) is str else None for value in values]
    models = [text for text in dict.fromkeys(texts) if text is not None and _is_name(text)]
    place: dict[str | None, int] = {name: i for i, name in enumerate(models)}
    index = np.array([place.get(text, EVERY_MODEL) for text in texts], dtype=np.intp)
    unnamed = np.flatnonzero(index == EVERY_MODEL).tolist()
    failures = {i: _refusal(values[i], path) for i in unnamed if values[i] is not None and values[i] is not ABSENT}
    return NamedModels(index, models), failures


def _is_name(text: str) -> bool:
    try:
        ModelKey.of(text, text)
    except ValueError:
        return False
    return True


def _refusal(value: Any, path: str) -> tuple[RejectReason, str]:
    allowed = "text of 1-64 characters of A-Z a-z 0-9 . _ -, the first a letter or digit"
    why = (
        f"{path} is {shown(value)}; the name of a model is {allowed}; without one (or null) a label is for every model"
    )
    return RejectReason.MODEL_INVALID, why
