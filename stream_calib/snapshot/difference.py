"""What two snapshots differ in, and what that does to the traffic of now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from stream_calib.calibration.base_map import BaseMap
from stream_calib.errors import SnapshotError
from stream_calib.snapshot.compiled import compile_snapshot
from stream_calib.snapshot.model import ResolvedSnapshot
from stream_calib.windows.cells import ScoredCells

CURVE_SCORES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Raw scores at which the base maps are compared."""
MOVED_BY = (0.01, 0.05, 0.1)
"""Shifts of the probability for which the share of events is told that move by more."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Both base maps at one raw score, without offsets and level."""

    score: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Offsets of one group in log-odds; None where a snapshot has none for it, which counts as 0."""

    attributes: tuple[str, ...]
    values: tuple[str, ...]
    before: float | None
    after: float | None

    @property
    def change(self) -> float:
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a snapshot was made of."""

    version: str
    structure: str
    """Version of the structure snapshot; the version itself where it is one."""
    level: float
    first_pane: int
    last_pane: int
    rows: int
    positives: int
    scored_per_pane: float
    labelled_per_pane: float


@dataclass(frozen=True, slots=True)
class GroupShift:
    """What changes for the events of one group (`attribute` None: for all)."""

    attribute: str | None
    value: str | None
    events: int
    mean_before: float
    mean_after: float

    @property
    def shift(self) -> float:
        return self.mean_after - self.mean_before


@dataclass(frozen=True, slots=True)
class TrafficShift:
    """What would change if the same events came again."""

    everything: GroupShift
    mean_absolute_shift: float
    largest_shift: float
    """Of the sign that it has."""
    moved: dict[float, float]
    """Shift -> share of the events that move by more; see MOVED_BY."""
    groups: tuple[GroupShift, ...]
    """Each value of each attribute, those first of which most is moved (events x mean shift)."""


@dataclass(frozen=True, slots=True)
class Difference:
    before: Fitted
    after: Fitted
    curve: tuple[CurvePoint, ...]
    groups: tuple[GroupOffset, ...]
    """All groups of which an offset changed, largest changes first."""
    traffic: TrafficShift | None
    """None where there was none to look at."""


def difference(
    before: ResolvedSnapshot, after: ResolvedSnapshot, cells: ScoredCells, signatures: Mapping[int, tuple[str, ...]]
) -> Difference:
    """From `before` to `after`. `cells`: scored cells of the traffic to look at, `signatures`: values of their hashes.

    Raises SnapshotError where the two are over other attributes, DamagedSnapshotError where one makes no map.
    """
    attributes = before.structure.attributes
    if after.structure.attributes != attributes:
        raise SnapshotError(
            f"{before.version} is over the attributes {', '.join(attributes) or '(none)'}, {after.version} over"
            f" {', '.join(after.structure.attributes) or '(none)'}: their offsets cannot be compared"
        )
    return Difference(
        _fitted(before),
        _fitted(after),
        _curve(before, after),
        _groups(before, after),
        _traffic(before, after, cells, signatures) if len(cells.n) else None,
    )


def _fitted(snapshot: ResolvedSnapshot) -> Fitted:
    structure = snapshot.structure
    return Fitted(
        snapshot.version,
        snapshot.structure_version,
        snapshot.level,
        structure.first_pane,
        structure.last_pane,
        structure.rows,
        structure.positives,
        structure.reference.scored_per_pane,
        structure.reference.labelled_per_pane,
    )


def _curve(before: ResolvedSnapshot, after: ResolvedSnapshot) -> tuple[CurvePoint, ...]:
    at = logit(np.array(CURVE_SCORES))
    values = [
        BaseMap.from_lists(snapshot.structure.base.model_dump()).probability_at(at).tolist()
        for snapshot in (before, after)
    ]
    return tuple(CurvePoint(*point) for point in zip(CURVE_SCORES, *values, strict=True))


def _groups(before: ResolvedSnapshot, after: ResolvedSnapshot) -> tuple[GroupOffset, ...]:
    one, other = _offsets(before), _offsets(after)
    found = [GroupOffset(*group, one.get(group), other.get(group)) for group in sorted(one.keys() | other.keys())]
    return tuple(sorted((group for group in found if group.change), key=lambda group: -abs(group.change)))


def _offsets(snapshot: ResolvedSnapshot) -> dict[tuple[tuple[str, ...], tuple[str, ...]], float]:
    return {
        (family.attributes, group.values): group.offset
        for family in snapshot.structure.families
        for group in family.offsets
    }


def _traffic(
    before: ResolvedSnapshot, after: ResolvedSnapshot, cells: ScoredCells, signatures: Mapping[int, tuple[str, ...]]
) -> TrafficShift:
    hashes, place = np.unique(cells.signature, return_inverse=True)
    values = [signatures[number] for number in hashes.tolist()]
    index = place.reshape(-1).astype(np.intp)
    p, q = (compile_snapshot(s).at_centres(cells.grid_bin, index, values) for s in (before, after))
    moved, events = q - p, int(cells.n.sum())
    absolute = np.abs(moved)
    groups = [
        shift
        for position, attribute in enumerate(before.structure.attributes)
        for shift in _shifts(attribute, [value[position] for value in values], index, cells.n, p, q)
    ]
    return TrafficShift(
        GroupShift(None, None, events, _mean(p, cells.n), _mean(q, cells.n)),
        mean_absolute_shift=_mean(absolute, cells.n),
        largest_shift=float(moved[np.argmax(absolute)]),
        moved={limit: float(cells.n[absolute > limit].sum()) / events for limit in MOVED_BY},
        groups=tuple(sorted(groups, key=lambda g: -abs(g.events * g.shift))),
    )


def _shifts(
    attribute: str,
    value_of: Sequence[str],
    place: NDArray[np.intp],
    n: NDArray[np.int64],
    p: NDArray[np.float64],
    q: NDArray[np.float64],
) -> list[GroupShift]:
    """`value_of` (s,): value of each signature; `place` (k,): signature of each cell; n, p, q (k,)."""
    names = sorted(set(value_of))
    number = {name: i for i, name in enumerate(names)}
    of_cell = np.array([number[value] for value in value_of], dtype=np.intp)[place]
    events = np.bincount(of_cell, weights=n, minlength=len(names))
    sums = [np.bincount(of_cell, weights=n * value, minlength=len(names)) / events for value in (p, q)]
    columns = zip(names, events.astype(np.int64).tolist(), *(s.tolist() for s in sums), strict=True)
    return [GroupShift(attribute, *column) for column in columns]


def _mean(value: NDArray[np.float64], n: NDArray[np.int64]) -> float:
    return float(np.dot(value, n) / n.sum())
