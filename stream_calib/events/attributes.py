"""Group attributes as text, and the signatures of a batch. A bad attribute never costs a score its output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.columns import ABSENT, column
from stream_calib.events.contracts import MISSING_VALUE

_MAX_INTEGER_BITS = 2_100
"""About 630 digits: no group's value, and still below the least limit that a Python can have for writing integers."""


def attribute_text(value: Any, max_bytes: int) -> str | None:
    """The value as text; MISSING_VALUE for a missing field, null and ""; None for what cannot be used.

    Numbers and booleans become their JSON text: true, 3, 2.5. Unusable: objects, arrays, unpaired surrogates, and more
    than `max_bytes` bytes of UTF-8.
    """
    if value is ABSENT or value is None or value == "":
        return MISSING_VALUE
    kind = type(value)
    if kind is bool:
        value = "true" if value else "false"
    elif kind is int and value.bit_length() <= _MAX_INTEGER_BITS:
        value = str(value)
    elif kind is float:
        value = repr(value)
    elif kind is not str:
        return None
    try:
        return value if len(value.encode()) <= max_bytes else None
    except UnicodeEncodeError:
        return None


class SignatureReader:
    """Reads the configured attributes; `dropped` counts the unusable values of each since the reader was made."""

    def __init__(self, paths: Mapping[str, str], max_value_bytes: int) -> None:
        self._paths = dict(paths)
        self._max_value_bytes = max_value_bytes
        self.dropped: Counter[str] = Counter()

    def read(self, objects: Sequence[dict[str, Any]]) -> tuple[NDArray[np.intp], list[tuple[str, ...]]]:
        """Index (n,) intp into the distinct signatures, and these, in order of first appearance.

        A signature has the values in the order of the configured attributes.
        """
        if not self._paths or not objects:
            return np.zeros(len(objects), dtype=np.intp), [()] if objects else []
        columns = [self._texts(name, column(objects, path)) for name, path in self._paths.items()]
        positions: dict[tuple[str, ...], int] = {}
        index = [positions.setdefault(signature, len(positions)) for signature in zip(*columns, strict=True)]
        return np.array(index, dtype=np.intp), list(positions)

    def _texts(self, name: str, values: list[Any]) -> list[str]:
        if set(map(type, values)) == {str}:
            # Looked at once for each distinct value. Only sound for text: 1, 1.0 and True are one dictionary key.
            limit = self._max_value_bytes
            special = {v: self._text(v) for v in set(values) if not (v.isascii() and 0 < len(v) <= limit)}
            if not special:
                return values
            texts = [special.get(v, v) for v in values]
        else:
            texts = [self._text(v) for v in values]
        unusable = texts.count(None)
        if unusable:
            self.dropped[name] += unusable
        return [MISSING_VALUE if text is None else text for text in texts]

    def _text(self, value: Any) -> str | None:
        return attribute_text(value, self._max_value_bytes)
