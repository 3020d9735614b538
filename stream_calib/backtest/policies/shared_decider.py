"""The Decider of a policy that shares what others of the same fits have made; it comes to the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from stream_calib.backtest.policies.label_paths import Current, LabelWalk, Shown, with_versions
from stream_calib.backtest.policies.shared_fits_group import FitGroup
from stream_calib.backtest.policies.shared_fits_psi import SharedPsiWindow
from stream_calib.backtest.policies.shared_watch import SharedWatch
from stream_calib.config import Config
from stream_calib.drift.psi import PsiReference
from stream_calib.drift.step import DetectorState, PaneCounts, StepResult, conclude
from stream_calib.refit.decider import Decider
from stream_calib.snapshot.decision_log import DecisionLog
from stream_calib.snapshot.model import ResolvedSnapshot
from stream_calib.windows.cells import MaturedCells


class SharedDecider(Decider):
    """For a log in which nothing but requests and their answers is: a publication is known by its number."""

    def __init__(self, group: FitGroup, config: Config, load: Callable[[str], ResolvedSnapshot]) -> None:
        """`load` as `SnapshotStore.load`."""
        self._group, self._load_snapshot = group, load
        history = group.panes.history
        super().__init__(
            history.key,
            history.generation,
            history.first_pane,
            config,
            group.panes.signatures,
            self._own_reference,
            load,
            window=SharedPsiWindow(group.panes, config, group.psi),
            encodes_state=False,
        )
        self._currents: dict[str, Current] = {}
        self._references: dict[str, PsiReference] = {}
        self._versions: dict[str, str] = {}
        self._walk = LabelWalk(group.paths, self._config, self._counts, self._shown)

    @property
    def detector(self) -> str:
        """As of Decider."""
        labels = with_versions(self._walk.last_state(), self._versions.__getitem__)
        _, state = self._state
        return self._encoded(replace(state, outcomes=labels.outcomes, selection=labels.selection))

    def _stepped(
        self, state: DetectorState, pane: int, version: str | None, log: DecisionLog, matured: MaturedCells
    ) -> StepResult:
        facts, config = self._facts(pane, version, log, matured), self._config
        judged = self._walk.next(pane, None if version is None else self._current(version))
        look = self._group.psi.step(state.psi, facts.psi, config.psi_threshold, config.budget_panes)
        return conclude(state, facts, config, judged, look)

    def _counted(self, pane: int, matured: MaturedCells) -> tuple[PaneCounts, Mapping[str, int]]:
        known = self._group.counted
        if pane not in known:
            known[pane] = super()._counted(pane, matured)
        return known[pane]

    def _counts(self, pane: int) -> PaneCounts:
        return self._counted(pane, self._group.panes.matured(pane))[0]

    def _current(self, version: str) -> Current:
        if version not in self._currents:
            snapshot = self._load_snapshot(version)
            made = Current(snapshot.sequence, snapshot.structure.last_pane, snapshot.level)
            self._currents[version], self._versions[made.name] = made, version
        return self._currents[version]

    def _own_reference(self, version: str) -> PsiReference:
        if version not in self._references:
            self._references[version] = self._group.reference_of(self._load_snapshot(version))
        return self._references[version]

    def _shown(self, pane: int, current: Current) -> Shown:
        watch = SharedWatch(self._group, lambda: self._load_snapshot(self._versions[current.name]), current)
        return watch.shown(pane)
