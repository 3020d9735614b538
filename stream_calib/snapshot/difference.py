"""What two snapshots differ in, and what that does to the traffic of now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from stream_calib.calibration.groups import CellGroups, Signature
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.errors import SnapshotError
from stream_calib.snapshot.compiled import compile_snapshot, time_attributes
from stream_calib.snapshot.decision_impact import crossings, decision_impact
from stream_calib.snapshot.map_documents import FamilyDocument, PatchRoundDocument
from stream_calib.snapshot.model import ResolvedSnapshot, StructureSnapshot
from stream_calib.snapshot.recent_traffic import RecentTraffic
from stream_calib.snapshot.report_documents import DecisionImpact

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
class GroupChange:
    """A number that the two snapshots have of one group; None where a snapshot has none, which counts as 0."""

    attributes: tuple[str, ...]
    values: tuple[str, ...]
    predicate: str | None
    """Name of the predicate that the group is; its values are the name alone."""
    before: float | None
    after: float | None

    @property
    def name(self) -> str:
        """As `carrier=UA & origin=EWR`, or the predicate's name."""
        if self.predicate is not None:
            return self.predicate
        return " & ".join(f"{a}={v}" for a, v in zip(self.attributes, self.values, strict=True)) or "everything"

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
    rung: str | None
    """Kind of base map; this and the next are None where the snapshot does not say what was chosen."""
    families_off: tuple[str, ...] | None
    slopes: tuple[str, ...] | None
    """Families that have slopes."""
    derived: tuple[str, ...]
    """Attributes derived from the event time."""
    patched_groups: int
    """Summed over the rounds of patches."""
    certified_alpha: float | None
    """None where nothing is certified."""


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
    decisions: tuple[DecisionImpact, ...] = ()
    """Events that cross the thresholds of `decisions`, in their order; groups as above."""


@dataclass(frozen=True, slots=True)
class Difference:
    before: Fitted
    after: Fitted
    curve: tuple[CurvePoint, ...]
    groups: tuple[GroupChange, ...]
    """Offsets in log-odds that changed, largest changes first; so the next two."""
    slopes: tuple[GroupChange, ...]
    """Slopes in the raw log-odds."""
    patches: tuple[GroupChange, ...]
    """The largest shift in probability, of the sign that it has, that patches make in a group."""
    traffic: TrafficShift | None
    """None where there was none to look at."""


def difference(
    before: ResolvedSnapshot,
    after: ResolvedSnapshot,
    traffic: RecentTraffic,
    decisions: Mapping[str, float] | None = None,
) -> Difference:
    """From `before` to `after`. `traffic`: what to look at, which may be none; `decisions`: users' thresholds by name.

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
        _changes(_offsets(before.structure), _offsets(after.structure)),
        _changes(_slopes(before.structure), _slopes(after.structure)),
        _changes(_patches(before.structure), _patches(after.structure)),
        _traffic(before, after, traffic, decisions or {}) if len(traffic.cells.n) else None,
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
        None if structure.choices is None else structure.choices.rung,
        None if structure.choices is None else structure.choices.families_off,
        None if structure.choices is None else structure.choices.slopes,
        () if structure.derived is None else structure.derived.names,
        sum(len(patches.patches) for patches in structure.rounds),
        structure.certificate.alpha if structure.certificate and structure.certificate.certified else None,
    )


def _curve(before: ResolvedSnapshot, after: ResolvedSnapshot) -> tuple[CurvePoint, ...]:
    at = logit(np.array(CURVE_SCORES))
    values = [
        BaseMap.from_lists(snapshot.structure.base.model_dump()).probability_at(at).tolist()
        for snapshot in (before, after)
    ]
    return tuple(CurvePoint(*point) for point in zip(CURVE_SCORES, *values, strict=True))


_Group: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], str]
"""Attributes, values, and the predicate's name, "" where there is none."""


def _group(family: FamilyDocument | PatchRoundDocument, values: tuple[str, ...]) -> _Group:
    return family.attributes, values, "" if family.predicate is None else family.predicate.name


def _changes(one: Mapping[_Group, float], other: Mapping[_Group, float]) -> tuple[GroupChange, ...]:
    found = [
        GroupChange(attributes, values, predicate or None, one.get(group), other.get(group))
        for group in sorted(one.keys() | other.keys())
        for attributes, values, predicate in [group]
    ]
    return tuple(sorted((group for group in found if group.change), key=lambda group: -abs(group.change)))


def _offsets(structure: StructureSnapshot) -> dict[_Group, float]:
    return {_group(f, group.values): group.offset for f in structure.families for group in f.offsets}


def _slopes(structure: StructureSnapshot) -> dict[_Group, float]:
    return {_group(f, group.values): group.slope for f in structure.families for group in f.offsets if group.slope}


def _patches(structure: StructureSnapshot) -> dict[_Group, float]:
    """Of each group the largest shift of any interval and round."""
    found: dict[_Group, float] = {}
    for patches in structure.rounds:
        for patch in patches.patches:
            group = _group(patches, patch.values)
            found[group] = max((found.get(group, 0.0), *patch.shifts), key=abs)
    return found


def _traffic(
    before: ResolvedSnapshot, after: ResolvedSnapshot, traffic: RecentTraffic, decisions: Mapping[str, float]
) -> TrafficShift:
    cells = traffic.cells
    hashes, place = np.unique(cells.signature, return_inverse=True)
    # Without the keep rate: this is of the scores that are served.
    attributes = len(before.structure.attributes)
    values = [traffic.signatures[number][:attributes] for number in hashes.tolist()]
    index = place.reshape(-1).astype(np.intp)
    served, candidate = (_at_edges(snapshot, traffic, index, values) for snapshot in (before, after))
    p, q = served.mean(axis=1), candidate.mean(axis=1)
    moved, events = q - p, int(cells.n.sum())
    absolute = np.abs(moved)
    families = [_cell_groups([value[position] for value in values], index) for position in range(attributes)]
    groups = [
        shift
        for attribute, family in zip(before.structure.attributes, families, strict=True)
        for shift in _shifts(attribute, family, cells.n, p, q)
    ]
    named = [
        CellGroups([f"{attribute}={value}" for value in family.names], family.group_of)
        for attribute, family in zip(before.structure.attributes, families, strict=True)
    ]
    impacts = [
        decision_impact(name, threshold, cells.n, crossings(cells.n, served, candidate, threshold), named)
        for threshold, name in sorted((threshold, name) for name, threshold in decisions.items())
    ]
    return TrafficShift(
        GroupShift(None, None, events, _mean(p, cells.n), _mean(q, cells.n)),
        mean_absolute_shift=_mean(absolute, cells.n),
        largest_shift=float(moved[np.argmax(absolute)]),
        moved={limit: float(cells.n[absolute > limit].sum()) / events for limit in MOVED_BY},
        groups=tuple(sorted(groups, key=lambda g: -abs(g.events * g.shift))),
        decisions=tuple(impacts),
    )


def _at_edges(
    snapshot: ResolvedSnapshot, traffic: RecentTraffic, index: NDArray[np.intp], values: Sequence[Signature]
) -> NDArray[np.float64]:
    """(k, 2) what the snapshot serves at the edges of the cells' bins."""
    derived = time_attributes(snapshot.structure)
    if derived is not None:
        index, values = derived.extend(index, values, traffic.pane)
    return compile_snapshot(snapshot).at_edges(traffic.cells.grid_bin, index, values)


def _cell_groups(value_of: Sequence[str], place: NDArray[np.intp]) -> CellGroups:
    """The values of an attribute. `value_of` (s,): value of each signature; `place` (k,): signature of each cell."""
    names = sorted(set(value_of))
    number = {name: i for i, name in enumerate(names)}
    return CellGroups(names, np.array([number[value] for value in value_of], dtype=np.intp)[place])


def _shifts(
    attribute: str, groups: CellGroups, n: NDArray[np.int64], p: NDArray[np.float64], q: NDArray[np.float64]
) -> list[GroupShift]:
    size = len(groups.names)
    events = np.bincount(groups.group_of, weights=n, minlength=size)
    sums = [np.bincount(groups.group_of, weights=n * value, minlength=size) / events for value in (p, q)]
    columns = zip(groups.names, events.astype(np.int64).tolist(), *(s.tolist() for s in sums), strict=True)
    return [GroupShift(attribute, *column) for column in columns]


def _mean(value: NDArray[np.float64], n: NDArray[np.int64]) -> float:
    return float(np.dot(value, n) / n.sum())
