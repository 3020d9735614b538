"""What detectors are shown of the panes, looked at once for all policies of the same fits that serve the same there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stream_calib.backtest.policies.bounded import make_room
from stream_calib.backtest.policies.label_paths import Current, Shown
from stream_calib.backtest.policies.shared_fits_group import FitGroup, MapKey
from stream_calib.drift.cell_history import panes_measures
from stream_calib.drift.outcome_step import PaneOutcomes
from stream_calib.drift.residual import ResidualSums
from stream_calib.drift.residual_evidence import panes_evidence
from stream_calib.refit.outcome_watch import Detectors, OutcomeWatch
from stream_calib.snapshot.model import ResolvedSnapshot

_LET_GO = ResidualSums(np.empty(0, np.intp), np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
"""In place of sums of which evidence and measures were made: they would be most of what is kept."""
_PANES_SHOWN = 40_000
"""Panes of which is kept what the detectors of a map were shown, some 20 kB each."""


class SharedWatch:
    """An OutcomeWatch that looks at each pane once for all versions that serve the same; they are called as `Current`
    says."""

    def __init__(self, group: FitGroup, snapshot: Callable[[], ResolvedSnapshot], current: Current) -> None:
        """`snapshot`: asked for where nobody has been before."""
        self.version = current.name
        self._group, self._snapshot = group, snapshot
        self._key: MapKey = current.structure_pane, current.level

    def shown(self, pane: int) -> Shown:
        known = self._group.shown
        if (self._key, pane) not in known:
            self._look(pane)
        outcomes, scores = known[self._key, pane]
        return self._own(outcomes), self._own(scores)

    def _look(self, pane: int) -> None:
        """At this pane and those behind it, which are likely to be asked for next."""
        watch, totals = self._watch(), self._group.panes.totals(pane)
        outcomes, scores = watch.sums_of(totals)
        known = self._group.shown
        for i, both in enumerate(
            zip(
                _with_evidence(watch.residual, outcomes, totals.panes),
                _with_evidence(watch.selection, scores, totals.panes),
                strict=True,
            )
        ):
            make_room(known, _PANES_SHOWN)
            known[self._key, pane + i] = both

    def _watch(self) -> OutcomeWatch:
        watches = self._group.watches
        if self._key not in watches:
            watches[self._key] = OutcomeWatch(self._snapshot(), self._group.weights, self._group.panes.signatures)
        return watches[self._key]

    def _own(self, shown: PaneOutcomes | None) -> PaneOutcomes | None:
        return None if shown is None else replace(shown, version=self.version)


def _with_evidence(detectors: Detectors | None, sums: ResidualSums | None, panes: int) -> list[PaneOutcomes | None]:
    """Of each pane what the detectors are shown of it, with what every policy would make of it."""
    if detectors is None or sums is None:
        return [None] * panes
    watched = detectors.watched
    made = zip(panes_evidence(watched, sums, panes), panes_measures(watched, sums, panes), strict=True)
    return [PaneOutcomes("", watched, _LET_GO, evidence, measures) for evidence, measures in made]
