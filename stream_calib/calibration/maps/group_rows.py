"""From signatures to the rows of a family's numbers, for many signatures at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import OTHER, FamilyRule, GroupKey, Signature


class GroupRows:
    """Numbers the groups of one family that have numbers of their own: 1, 2, ...; row 0 is "none of them"."""

    def __init__(self, rule: FamilyRule, keys: Collection[GroupKey]) -> None:
        self._rule = rule
        # `__other__` is in no group, so what may be stored for it is never found.
        self.keys = tuple(key for key in keys if OTHER not in key)
        self._row = {key: row for row, key in enumerate(self.keys, start=1)}

    def of(self, signatures: Sequence[Signature]) -> NDArray[np.intp]:
        """(s,) row of each signature."""
        row, rule = self._row, self._rule
        if rule.predicate is not None:
            rows = [0 if (key := rule.group(signature)) is None else row.get(key, 0) for signature in signatures]
        elif len(rule.positions) == 1:
            (place,) = rule.positions
            rows = [row.get((signature[place],), 0) for signature in signatures]
        else:
            places = rule.positions
            rows = [row.get(tuple([signature[place] for place in places]), 0) for signature in signatures]
        return np.array(rows, dtype=np.intp)
