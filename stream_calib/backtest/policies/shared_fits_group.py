"""What policies of the same fits have made of the panes: candidates, maps, judgements, and what detectors are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from stream_calib.backtest.policies.bounded import make_room
from stream_calib.backtest.policies.label_paths import LabelPaths, Shown
from stream_calib.backtest.policies.run_figures import Fared
from stream_calib.backtest.policies.shared_fits_panes import SharedPanes
from stream_calib.backtest.policies.shared_fits_psi import PsiSeen
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.drift.psi import PsiReference
from stream_calib.drift.step import PaneCounts
from stream_calib.errors import FitError
from stream_calib.refit.candidate import Candidate, make_candidate
from stream_calib.refit.decayed_counts import FitCells
from stream_calib.refit.evidence import Evidence, PastPanes, PastWindow
from stream_calib.refit.fit import is_enough, refit_level
from stream_calib.refit.forward_evidence import ForwardDay, ForwardEvidence, ForwardRecord
from stream_calib.refit.gate_evidence import JudgedMap, judged
from stream_calib.refit.judgement import Judgement, judgement
from stream_calib.refit.labelled import PaneCells
from stream_calib.refit.min_coverage import ALL_COVERED, Uncovered
from stream_calib.refit.outcome_watch import OutcomeWatch
from stream_calib.refit.reference import build_reference
from stream_calib.refit.report_parts import role_rows
from stream_calib.refit.row_weights import RowWeights
from stream_calib.refit.settings import panes_of
from stream_calib.refit.source import RefitSource
from stream_calib.snapshot.decision_log import Request
from stream_calib.snapshot.model import ReferenceDocument, ResolvedSnapshot, psi_reference
from stream_calib.snapshot.report_documents import RoleRows

MapKey: TypeAlias = tuple[int, float]
"""Last pane that the structure was made from, and level: of the same fits, a map is known by these."""

_FARED_KEPT = 30
"""A megabyte or two each, of a year."""


@dataclass(frozen=True, slots=True, eq=False)
class PanesSeen:
    """Evidence as of a pane, kept; see PastPanes."""

    first_pane: int
    last_pane: int
    cells_sha256: str
    fit_rows: int
    fit_positives: int
    audited_panes: tuple[PaneCells, ...]
    gate_panes: tuple[PaneCells, ...]
    windows: tuple[PastWindow, ...]
    window_panes: int
    make_fit_cells: Callable[[], FitCells]

    def fit_cells(self) -> FitCells:
        return self.make_fit_cells()


class ForwardDays:
    """The forward evidence of a history, as of the end of each day."""

    def __init__(self, panes: SharedPanes, config: Config) -> None:
        self._forward, self._config = ForwardEvidence(config, panes.signatures), config
        self._days: dict[int, tuple[ForwardDay, ...]] = {}

    def end_day(self, evidence: Evidence) -> None:
        """Notes the day that is over, unless another policy has done so."""
        day, last = evidence.last_day, self._forward.last_day
        if last is None or day > last:
            fit_cells = evidence.fit_cells() if is_enough(evidence, self._config) else None
            self._forward.end_day(day, evidence.day_panes, fit_cells)
            self._days[day] = self._forward.days

    def record(self, day: int) -> ForwardRecord:
        """As of the end of a day."""
        return ForwardRecord(self._forward.variants, self._days.get(day, ()))


@dataclass(slots=True)
class FitGroup:
    """Of the configurations with one fit key. Grows as policies are run."""

    panes: SharedPanes
    forward: ForwardDays
    weights: RowWeights
    seen: dict[tuple[int, int], PanesSeen] = field(default_factory=dict)
    """(last pane, panes of the gate's window) -> evidence."""
    candidates: dict[int, Candidate | FitError] = field(default_factory=dict)
    references: dict[int, ReferenceDocument] = field(default_factory=dict)
    maps: dict[MapKey, JudgedMap] = field(default_factory=dict)
    levels: dict[tuple[int, int], float] = field(default_factory=dict)
    """(last pane of the structure, last pane of the evidence) -> level."""
    judgements: dict[tuple[object, ...], Judgement] = field(default_factory=dict)
    roles: dict[tuple[int, int], tuple[RoleRows, ...]] = field(default_factory=dict)
    psi_references: dict[int, PsiReference] = field(default_factory=dict)
    psi: PsiSeen = field(default_factory=PsiSeen)
    paths: LabelPaths = field(default_factory=LabelPaths)
    counted: dict[int, tuple[PaneCounts, Mapping[str, int]]] = field(default_factory=dict)
    """Pane -> sums over its cells, and its winners with values that are not counted apart."""
    watches: dict[MapKey, OutcomeWatch] = field(default_factory=dict)
    shown: dict[tuple[MapKey, int], Shown] = field(default_factory=dict)
    fared: dict[tuple[object, ...], Fared] = field(default_factory=dict)
    changes: dict[tuple[object, ...], str] = field(default_factory=dict)
    """What is said of publications; see `run_refits`."""

    def map_of(self, snapshot: ResolvedSnapshot) -> JudgedMap:
        """What it serves."""
        key = snapshot.structure.last_pane, snapshot.level
        if key not in self.maps:
            self.maps[key] = judged(snapshot)
        return self.maps[key]

    def reference_of(self, snapshot: ResolvedSnapshot) -> PsiReference:
        """Its PSI reference, the same object for the same structure."""
        pane = snapshot.structure.last_pane
        if pane not in self.psi_references:
            self.psi_references[pane] = psi_reference(snapshot.structure)
        return self.psi_references[pane]

    def fared_of(self, served: tuple[object, ...], make: Callable[[], Fared]) -> Fared:
        """How what was served fared, all of it by names that policies of the same fits have in common."""
        if served not in self.fared:
            make_room(self.fared, _FARED_KEPT)
            self.fared[served] = make()
        return self.fared[served]


def _none() -> FitCells:
    raise AssertionError("whoever asks for counts gives their maker")


class SharedSource(RefitSource):
    """Of one policy: what its group has made already, else made anew and kept there."""

    def __init__(self, group: FitGroup, config: Config) -> None:
        self._group, self._panes, self._config = group, group.panes, config
        self._gate_panes = panes_of(config.refit.gate_window_ms, config.windows.pane_ms)
        self._own: Evidence | None = None

    def evidence(self, request: Request) -> PastPanes | None:
        if request.first_pane != self._panes.history.first_pane:
            return None
        last = request.last_pane
        key = last, self._gate_panes
        if key not in self._group.seen:
            self._group.seen[key] = self._seen(self._advanced(last))
        if self._group.seen[key].cells_sha256 != request.cells_sha256:
            return None
        return replace(self._group.seen[key], make_fit_cells=lambda: self._advanced(last).fit_cells())

    def candidate(self, evidence: PastPanes) -> Candidate:
        known, last = self._group.candidates, evidence.last_pane
        if last not in known:
            own = self._advanced(last)
            day = own.last_day if own.day_is_over else own.last_day - 1
            try:
                made = make_candidate(evidence, self._group.forward.record(day), self._panes.signatures, self._config)
            except FitError as error:
                known[last] = error
            else:
                known[last] = made
                self._group.maps[last, made.fit.parts.level] = made.map
        found = known[last]
        if isinstance(found, FitError):
            raise found
        return found

    def leveled(self, evidence: PastPanes, parent: ResolvedSnapshot) -> JudgedMap:
        key = parent.structure.last_pane, evidence.last_pane
        served = self._group.map_of(parent)
        if key not in self._group.levels:
            parts = served.served.parts
            level = refit_level(evidence, self._panes.signatures, parts, served.derived, self._config)
            self._group.levels[key] = level
        level = self._group.levels[key]
        maps = self._group.maps
        if (key[0], level) not in maps:
            maps[key[0], level] = JudgedMap(ServedMap(replace(served.served.parts, level=level)), served.derived)
        return maps[key[0], level]

    def served(self, parent: ResolvedSnapshot) -> JudgedMap:
        return self._group.map_of(parent)

    def reference(self, evidence: PastPanes, candidate: Candidate) -> ReferenceDocument:
        known, last = self._group.references, evidence.last_pane
        if last not in known:
            known[last] = build_reference(evidence, candidate.map, self._panes.signatures, self._config)
        return known[last]

    def judgement(
        self, evidence: PastPanes, served: JudgedMap | None, candidate: JudgedMap, uncovered: Uncovered
    ) -> Judgement:
        config = self._config
        asked = tuple(sorted(config.decisions.items())), config.refit.max_decision_shift
        key = served, candidate, evidence.last_pane, self._gate_panes, uncovered is ALL_COVERED, asked
        if key not in self._group.judgements:
            made = judgement(evidence, served, candidate, uncovered, self._panes.signatures, config)
            self._group.judgements[key] = made
        return self._group.judgements[key]

    def roles(self, evidence: PastPanes) -> tuple[RoleRows, ...]:
        key = evidence.last_pane, self._gate_panes
        if key not in self._group.roles:
            self._group.roles[key] = role_rows(evidence)
        return self._group.roles[key]

    def _advanced(self, last: int) -> Evidence:
        """This policy's own evidence as of a pane: it goes on, and begins anew only for a pane before."""
        own = self._own
        if own is None or own.last_pane > last:
            own = self._own = Evidence(self._panes.history.first_pane, self._config)
        for pane in range(own.next_pane, last + 1):
            own.advance_cells(pane, self._panes.matured(pane), self._panes.chain(pane))
            if own.day_is_over:
                self._group.forward.end_day(own)
        return own

    def _seen(self, own: Evidence) -> PanesSeen:
        return PanesSeen(
            first_pane=own.first_pane,
            last_pane=own.last_pane,
            cells_sha256=own.cells_sha256,
            fit_rows=own.fit_rows,
            fit_positives=own.fit_positives,
            audited_panes=tuple(own.audited_panes),
            gate_panes=tuple(own.gate_panes),
            windows=tuple(own.windows),
            window_panes=own.window_panes,
            make_fit_cells=_none,
        )
