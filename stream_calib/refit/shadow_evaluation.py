"""The shadow beside what was served: both evaluated on the matured cells of the same panes.

Prequential: only panes that neither was fitted to. Those of the shadow begin behind the last pane that it was made
from, and in each of them the version beside it is the one that the decision log says was current there, which was made
from earlier panes. Complete, decided panes of the last 28 days count, as far as they are kept; all unit buckets.

Nothing of it is stored: it is a function of the log and of the kept panes, so everybody who asks gets the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.fit_input import CENTRE_SCORE
from stream_calib.calibration.groups import Signature, make_family
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.metrics import log_loss_sums, worst_group_error_of_counts
from stream_calib.config import Config
from stream_calib.drift.coverage import CoverageState, judge
from stream_calib.errors import StateError
from stream_calib.refit import checkpoint
from stream_calib.refit.gate_evidence import JudgedMap, judged
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import PaneCells, trailing_cells
from stream_calib.refit.row_weights import RowWeights
from stream_calib.refit.settings import DAY_MS, panes_of
from stream_calib.snapshot.decision_log import DecisionLog
from stream_calib.snapshot.reader import SnapshotReader
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import StateStore

_WINDOW_MS = 28 * DAY_MS
_PANES_A_READ = 24


@dataclass(frozen=True, slots=True)
class ShadowFigures:
    """Losses are mean log-losses a labelled row, group errors those of `worst_group_error`, in percent; everything by
    weight where events were thinned."""

    version: str
    first_pane: int
    last_pane: int
    """Below the first one as long as there is none."""
    incomplete_panes: int
    """Of them; left out."""
    rows: int
    positives: int
    loss_served: float | None
    """This and the next three are None without labelled rows."""
    loss_shadow: float | None
    gain: float | None
    """Of the shadow: loss_served - loss_shadow."""
    gain_error: float | None
    """Its standard error with days as blocks; None with less than two days."""
    worst_group_served: float | None
    """This and the next are None as long as not both classes are there."""
    worst_group_shadow: float | None


@dataclass(frozen=True, slots=True)
class _Alike:
    """What cells must have in common to be summed: the map beside the shadow, and the values derived from time."""

    served: str | None
    derived: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(slots=True)
class _Sums:
    """Of the panes from `first_pane` up to `next_pane`."""

    version: str
    shadow: JudgedMap
    first_pane: int
    next_pane: int
    coverage: CoverageState
    incomplete: int = 0
    cells: dict[_Alike, tuple[int, MaturedCells]] = field(default_factory=dict)
    """A pane that stands for all, and the sum over unit buckets."""
    days: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """UTC day -> weight, loss of what was served, loss of the shadow."""


class ShadowEvaluation:
    """Of one model key. Goes on from where it was when it is asked again; not thread-safe."""

    def __init__(self, state: StateStore, snapshots: SnapshotReader, config: Config) -> None:
        self._state, self._snapshots, self._config = state, snapshots, config
        self._weights, self._rules = RowWeights.of(config), family_rules(config)
        self._sums: _Sums | None = None
        self._served: tuple[str, JudgedMap] | None = None
        self._known: dict[int, Signature] = {}
        self._figures: ShadowFigures | None = None

    def figures(self, log: DecisionLog) -> ShadowFigures | None:
        """None while there is no shadow. Raises SnapshotError where a snapshot that was current is not kept or cannot
        be read, StateError where panes are missing or damaged."""
        if log.shadow is None:
            self._sums = self._figures = None
            return None
        fields = self._state.read(("first_pane", "decided", KEPT, checkpoint.FIELD))
        kept = kept_of(fields)
        first_kept = 0 if kept is None else kept.first_pane
        decided = int(fields["decided"] or first_kept - 1)
        sums = self._sums
        if sums is None or sums.version != log.shadow.version or sums.next_pane > decided + 1:
            sums = self._begun(log, log.shadow.version, decided, first_kept, fields[checkpoint.FIELD])
        elif sums.next_pane == decided + 1 and self._figures is not None:
            return self._figures
        self._sums = None  # half advanced, it must not be used again
        self._advance(sums, log, decided)
        self._sums, self._figures = sums, self._told(sums)
        self._known = {}
        return self._figures

    def _begun(self, log: DecisionLog, version: str, decided: int, first_kept: int, at: str | None) -> _Sums:
        made_from = self._snapshots.document(version).last_pane
        window = panes_of(_WINDOW_MS, self._config.windows.pane_ms)
        begin, coverage = first_kept, CoverageState()
        if (named := checkpoint.named(at)) is not None and named.last_pane >= first_kept:
            (blob,) = self._state.blobs([checkpoint.NAME])
            if blob is None:
                raise StateError(f"the blob {checkpoint.NAME} is missing; restore the model key's state from a backup")
            begin, coverage = named.last_pane + 1, checkpoint.unpack(blob, named.sha256).coverage
        first = max(made_from + 1, decided + 1 - window, begin, log.known_from_pane or begin)
        sums = _Sums(version, judged(self._snapshots.load(version)), first, begin, coverage)
        for pane, cells in self._panes(begin, min(first - 1, decided)):
            sums.coverage, sums.next_pane = _judged(sums.coverage, pane, cells)[1], pane + 1
        sums.next_pane = first
        return sums

    def _advance(self, sums: _Sums, log: DecisionLog, last: int) -> None:
        for pane, cells in self._panes(sums.next_pane, last):
            complete, sums.coverage = _judged(sums.coverage, pane, cells)
            sums.next_pane = pane + 1
            if not complete:
                sums.incomplete += 1
                continue
            labelled = cells.labelled > 0
            cells = MaturedCells(*(getattr(cells, name)[labelled] for name in MaturedCells.__slots__))
            served = log.current_at(pane)
            by_served, by_shadow, of = self._both(sums, served, pane, cells)
            day = pane * self._config.windows.pane_ms // DAY_MS
            before = sums.days.get(day, (0.0, 0.0, 0.0))
            found = (
                float(of.labelled.sum()),
                *(float(log_loss_sums(p, of.labelled, of.positives).sum()) for p in (by_served, by_shadow)),
            )
            sums.days[day] = (before[0] + found[0], before[1] + found[1], before[2] + found[2])
            alike = _Alike(served, (self._derived(self._map_of(served), pane), self._derived(sums.shadow, pane)))
            stands_for, summed = sums.cells.get(alike, (pane, None))
            added = replace(cells, unit_bucket=np.zeros_like(cells.unit_bucket))
            parts = [added] if summed is None else [summed, added]
            sums.cells[alike] = stands_for, MaturedCells.merge(parts)

    def _both(
        self, sums: _Sums, served: str | None, pane: int, cells: MaturedCells
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], LabelledCells]:
        """Probabilities (k,) by what was served and by the shadow, and the cells by weight."""
        panes = [PaneCells(pane, True, 0, cells)]
        plain = trailing_cells(panes, self._signatures, None, self._weights).cells

        def at_centres(of: JudgedMap | None) -> NDArray[np.float64]:
            if of is None:
                return np.asarray(CENTRE_SCORE[plain.grid_bin], dtype=np.float64)
            own = plain
            if of.derived is not None:
                own = trailing_cells(panes, self._signatures, of.derived, self._weights).cells
            return of.served.at_centres(own.grid_bin, own.signature, own.signatures)

        return at_centres(self._map_of(served)), at_centres(sums.shadow), plain

    def _signatures(self, hashes: Iterable[int]) -> dict[int, Signature]:
        """As of the store, which is asked once for each: most of a pane's are those of the pane before."""
        wanted = list(hashes)
        self._known |= self._state.signatures([one for one in wanted if one not in self._known])
        return {one: self._known[one] for one in wanted}

    def _map_of(self, version: str | None) -> JudgedMap | None:
        if version is None:
            return None
        if self._served is None or self._served[0] != version:
            self._served = version, judged(self._snapshots.load(version))
        return self._served[1]

    def _told(self, sums: _Sums) -> ShadowFigures:
        weight, served, shadow = (math.fsum(day[i] for day in sums.days.values()) for i in range(3))
        rows = sum(int(cells.labelled.sum()) for _, cells in sums.cells.values())
        positives = sum(int(cells.positives.sum()) for _, cells in sums.cells.values())
        worst = self._worst_groups(sums) if 0 < positives < rows else (None, None)
        gain = (served - shadow) / weight if weight else None
        return ShadowFigures(
            version=sums.version,
            first_pane=sums.first_pane,
            last_pane=sums.next_pane - 1,
            incomplete_panes=sums.incomplete,
            rows=rows,
            positives=positives,
            loss_served=served / weight if weight else None,
            loss_shadow=shadow / weight if weight else None,
            gain=gain,
            gain_error=None if gain is None else _error_by_days(sums.days.values(), gain, weight),
            worst_group_served=worst[0],
            worst_group_shadow=worst[1],
        )

    def _worst_groups(self, sums: _Sums) -> tuple[float, float]:
        values: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        parts: list[LabelledCells] = []
        for alike, (pane, cells) in sums.cells.items():
            by_served, by_shadow, plain = self._both(sums, alike.served, pane, cells)
            values.append((by_served, by_shadow))
            parts.append(plain)
        places: dict[tuple[str, ...], int] = {}
        signature = [
            np.array([places.setdefault(s, len(places)) for s in part.signatures], dtype=np.intp)[part.signature]
            for part in parts
        ]
        labelled, positives = (np.concatenate([getattr(p, n) for p in parts]) for n in ("labelled", "positives"))
        groups = [make_family(rule, list(places)).group_of[np.concatenate(signature)] for rule in self._rules]
        return (
            worst_group_error_of_counts(np.concatenate([v[0] for v in values]), labelled, positives, groups),
            worst_group_error_of_counts(np.concatenate([v[1] for v in values]), labelled, positives, groups),
        )

    @staticmethod
    def _derived(of: JudgedMap | None, pane: int) -> tuple[str, ...]:
        return () if of is None or of.derived is None else of.derived.of_pane(pane)

    def _panes(self, first: int, last: int) -> Iterable[tuple[int, MaturedCells]]:
        while first <= last:
            panes = range(first, min(first + _PANES_A_READ, last + 1))
            for pane, blob in zip(panes, self._state.blobs([PaneNames.of(p).matured for p in panes]), strict=True):
                if blob is None:
                    raise StateError(f"matured cells of pane {pane} are not in the state store")
                yield pane, MaturedCells.unpack(blob)
            first = panes.stop


def _judged(coverage: CoverageState, pane: int, cells: MaturedCells) -> tuple[bool, CoverageState]:
    verdict = judge(coverage, pane, int(cells.labelled.sum()), int(cells.unlabelled.sum()))
    return verdict.complete, verdict.state


def _error_by_days(days: Iterable[tuple[float, float, float]], gain: float, weight: float) -> float | None:
    """The gate's ratio estimate: sqrt(B / (B - 1) sum_b (g_b - g n_b)^2) / N, of days that have rows."""
    off = [served - shadow - gain * n for n, served, shadow in days if n]
    if len(off) < 2:
        return None
    return math.sqrt(len(off) / (len(off) - 1) * math.fsum(d * d for d in off)) / weight
