"""What the labels came to along the paths that policies take, each part of a path walked once.

A path is what was current at each pane. As long as two policies with the same budgets publish the same at the same
panes, coverage and the detectors of outcomes and of missing labels are in the same state for both; each pane's outcome
is made by whoever comes there first. States are large and kept of few panes only: whoever leaves a path that others
have walked makes his own again from the nearest one before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from stream_calib.drift.label_selection import SelectionState
from stream_calib.drift.open_cells import OpenCells
from stream_calib.drift.outcome_step import OutcomeState, PaneOutcomes
from stream_calib.drift.step import DetectorState, JudgedLabels, PaneCounts, StepConfig, judge_labels

_KEPT_EVERY = 240
"""Panes between states that are kept: to come to any other one takes some tenths of a second at most."""
_STATES_KEPT = 400
"""Of all paths together, some 250 kB each; beyond these the one that was of no use for the longest time is dropped."""
_MOST_NODES = 300_000
"""Panes on all paths together, some 600 bytes each; beyond these all paths begin anew."""


class Current(NamedTuple):
    """What is current at a pane, said in the same way for every policy of the same fits."""

    sequence: int
    """Number of the publication. A version is a hash of all settings, so no two policies have one in common."""
    structure_pane: int
    """Last pane that the structure was made from; with `level` this says what is served."""
    level: float

    @property
    def name(self) -> str:
        """In place of the version."""
        return f"{self.sequence:06d}"


Shown: TypeAlias = tuple[PaneOutcomes | None, PaneOutcomes | None]


@dataclass(slots=True, eq=False)
class _Node:
    """A pane on a path; the states that stand in `judged` are let go."""

    judged: JudgedLabels
    following: dict[Current | None, _Node] = field(default_factory=dict)


_BEGIN = DetectorState()
_NONE_OPEN = OutcomeState()
_NONE_SELECTED = SelectionState()


class LabelPaths:
    """Of the policies of one fit key. Not thread-safe."""

    def __init__(self) -> None:
        self._roots: dict[tuple[float, float], _Node] = {}
        self._states: OrderedDict[_Node, DetectorState] = OrderedDict()
        self._nodes = 0

    def root(self, config: StepConfig) -> _Node:
        """Before the first pane."""
        key = config.budget_panes, config.page_panes
        if key not in self._roots:
            self._roots[key] = _Node(_let_go(_BEGIN))
        return self._roots[key]

    def state(self, node: _Node) -> DetectorState | None:
        """Where it is kept."""
        state = self._states.get(node)
        if state is not None:
            self._states.move_to_end(node)
        return state

    def keep(self, node: _Node, state: DetectorState) -> None:
        """Drops another one where there are too many."""
        self._states[node] = state
        while len(self._states) > _STATES_KEPT:
            self._states.popitem(last=False)

    def add(self, node: _Node, current: Current | None, judged: JudgedLabels) -> _Node:
        """What follows the node."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            # Those who walk hold on to what they have walked.
            self._roots, self._nodes = {}, 0
            self._states.clear()
        made = node.following[current] = _Node(replace(judged, outcomes=_NONE_OPEN, selection=_NONE_SELECTED))
        return made


class LabelWalk:
    """Of one policy, pane by pane."""

    def __init__(
        self,
        paths: LabelPaths,
        config: StepConfig,
        counts: Callable[[int], PaneCounts],
        shown: Callable[[int, Current], Shown],
    ) -> None:
        """`counts`: of a pane. `shown`: what the detectors are shown of it, by the name of what is current."""
        self._paths, self._config, self._counts, self._shown = paths, config, counts, shown
        self._nodes: list[_Node] = [paths.root(config)]
        self._walked: list[tuple[int, Current | None]] = []
        self._state: DetectorState | None = _BEGIN
        """After the last pane, where it is at hand."""

    def next(self, pane: int, current: Current | None) -> JudgedLabels:
        """What `judge_labels` says of the next pane, without the states of outcomes and of selection."""
        node = self._nodes[-1]
        found = node.following.get(current)
        if found is None:
            state = self.state()
            judged = self._judged(state, pane, current)
            found = self._paths.add(node, current, judged)
            self._state = _state_of(judged)
            if len(self._nodes) % _KEPT_EVERY == 0:
                self._paths.keep(found, self._state)
        else:
            self._state = None
        self._nodes.append(found)
        self._walked.append((pane, current))
        return found.judged

    def state(self) -> DetectorState:
        """Coverage, outcomes and selection after the last pane, versions as in `Current.name`; made again where it was
        not kept."""
        if self._state is None:
            place = len(self._walked)
            state = None
            while place and (state := self._paths.state(self._nodes[place])) is None:
                place -= 1
            state = _BEGIN if state is None else state
            for behind, (pane, current) in enumerate(self._walked[place:], place + 1):
                state = _state_of(self._judged(state, pane, current))
                if behind % _KEPT_EVERY == 0:
                    self._paths.keep(self._nodes[behind], state)
            self._state = state
        return self._state

    def last_state(self) -> DetectorState:
        """The same at the end of the path, kept for others who come there."""
        state = self.state()
        self._paths.keep(self._nodes[-1], state)
        return state

    def _judged(self, state: DetectorState, pane: int, current: Current | None) -> JudgedLabels:
        outcomes, scores = (None, None) if current is None else self._shown(pane, current)
        return judge_labels(state, pane, self._counts(pane), outcomes, scores, self._config)


def _state_of(judged: JudgedLabels) -> DetectorState:
    return DetectorState(
        coverage=judged.coverage,
        outage_open=judged.coverage.outage,
        outcomes=judged.outcomes,
        selection=judged.selection,
    )


def _let_go(state: DetectorState) -> JudgedLabels:
    return JudgedLabels(state.coverage, _NONE_OPEN, _NONE_SELECTED, True, False, None, ())


def with_versions(state: DetectorState, version_of: Callable[[str], str]) -> DetectorState:
    """The state with the versions that stand for the names."""
    outcomes, selection = state.outcomes, state.selection
    return replace(
        state,
        outcomes=replace(
            outcomes,
            open_refit=_named(outcomes.open_refit, version_of),
            open_page=_named(outcomes.open_page, version_of),
        ),
        selection=replace(selection, open_cells=_named(selection.open_cells, version_of)),
    )


def _named(open_cells: OpenCells, version_of: Callable[[str], str]) -> OpenCells:
    cells = tuple(replace(cell, version=version_of(cell.version)) for cell in open_cells.cells)
    return replace(open_cells, cells=cells)
