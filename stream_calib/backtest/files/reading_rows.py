"""What files hold once it is read: rows of a fixed width, and an account of what became of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.columns import Failures
from stream_calib.events.contracts import Reject
from stream_calib.events.identity import signature_hash

SCORE_ROW = np.dtype(
    [
        ("time_ms", "<i8"),
        ("fingerprint", "<u8"),
        ("score", "<f8"),
        ("signature", "<u4"),
        ("unit_bucket", "u1"),
        ("own", "?"),
    ]
)
"""A score: `signature` is its place in `Signatures`. One that is not `own`, of another model key, only moves the
clock."""
LABEL_ROW = np.dtype([("time_ms", "<i8"), ("fingerprint", "<u8"), ("code", "u1"), ("own", "?")])
"""A label: `code` as in `LabelRows`."""

_EXAMPLES = 5
_DAY_MS = 86_400_000


class Read(NamedTuple):
    """What some rows of a file hold."""

    rows: NDArray[np.void]
    """(k,) SCORE_ROW or LABEL_ROW, in the order of the file."""
    rejects: Sequence[Reject]
    """By index into the rows of the file that were read."""


class Signatures:
    """The distinct attribute values of all rows, by place in order of first appearance."""

    def __init__(self) -> None:
        self._place: dict[tuple[str, ...], int] = {}
        self._values: list[tuple[str, ...]] = []
        self._hashes: list[int] = []

    def places(self, signatures: Sequence[tuple[str, ...]]) -> NDArray[np.uint32]:
        """The place (n,) of each; new ones are added."""
        for signature in signatures:
            if signature not in self._place:
                self._place[signature] = len(self._values)
                self._values.append(signature)
                self._hashes.append(signature_hash(signature))
        return np.array([self._place[signature] for signature in signatures], dtype=np.uint32)

    def hashes(self, places: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], Mapping[int, tuple[str, ...]]]:
        """Content hash (n,) of the signature at each place (n,), and the values of those that are used."""
        used = np.flatnonzero(np.bincount(places, minlength=1)).tolist()
        table = np.zeros(used[-1] + 1 if used else 1, dtype=np.uint64)
        table[used] = [self._hashes[place] for place in used]
        return table[places], {self._hashes[place]: self._values[place] for place in used}


@dataclass(slots=True)
class SideReport:
    """What became of all rows of the files of one side."""

    read: int = 0
    """Rows of the files."""
    accepted: int = 0
    """Of them, scores or labels of the model key. (A score that comes twice is accepted twice, and one of the two is a
    duplicate.)"""
    other_models: int = 0
    """Of other model keys."""
    not_sampled: int = 0
    """Scores whose event id is not in the sample (`scores.sample_rate`)."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Rows that are none, by reason code."""
    examples: list[str] = field(default_factory=list)
    """The first of them, in words: file, row, what is wrong."""
    odd: Counter[str] = field(default_factory=Counter)
    """What was accepted although something was wrong with it: `score_clamped`, `unit_replaced`, `attribute_dropped`."""
    days: dict[int, int] = field(default_factory=dict)
    """Day (since 1970-01-01, UTC) -> accepted rows."""

    def take(self, read: Read, file: str, places: Sequence[int]) -> None:
        """Counts what was read of rows of a file. `places`: the number of each of the rows in the file, from 1."""
        self.read += len(places)
        own = int(np.count_nonzero(read.rows["own"]))
        self.accepted += own
        self.other_models += len(read.rows) - own
        self.rejected.update(reject.reason.value for reject in read.rejects)
        for reject in read.rejects[: max(_EXAMPLES - len(self.examples), 0)]:
            self.examples.append(f"{file}, row {places[reject.record_index]}: {reject.reason.value}: {reject.message}")
        days, counts = np.unique(read.rows["time_ms"][read.rows["own"]] // _DAY_MS, return_counts=True)
        for day, count in zip(days.tolist(), counts.tolist(), strict=True):
            self.days[day] = self.days.get(day, 0) + count

    def missing_days(self) -> list[tuple[int, int]]:
        """First and last day of each stretch, between the first and the last row, without any row."""
        days = sorted(self.days)
        return [(a + 1, b - 1) for a, b in pairwise(days) if b > a + 1]


def rejects_of(failures: Failures) -> list[Reject]:
    """In the order of their rows."""
    return [Reject(i, *failures[i]) for i in sorted(failures)]
