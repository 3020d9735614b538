"""Coverage: which matured panes have their labels, judged from the sequence of matured panes alone.

A pane is *incomplete* when its labels are missing: it then gives no refit data, because what is left of its labels is
unlikely to be a fair sample. The verdict is a pure function of the counts of the panes up to it, so the closer and
every refit worker come to the same one without telling each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_WINNERS = 20
"""Fewer winners than this say nothing: the pane is taken as complete."""
REFERENCE_WINNERS = 1_000
"""Winners of complete panes from which on the usual coverage is known."""
OUTAGE_WINNERS = 100
"""Winners in incomplete panes in a row for which an outage is declared."""
_MEMORY_WINNERS = 1_000_000
"""Beyond this, both totals are halved, so that the usual coverage follows slow changes."""


@dataclass(frozen=True, slots=True)
class CoverageState:
    """Carried from pane to pane; plain integers, so exact wherever it is computed."""

    labelled: int = 0
    """Labelled winners of complete panes so far (halved together with `winners`)."""
    winners: int = 0
    missing_winners: int = 0
    """Winners of incomplete panes since the last complete one."""
    missing_since: int | None = None
    """First incomplete pane since the last complete one."""

    @property
    def outage(self) -> bool:
        """Labels have been missing for long enough to say so."""
        return self.missing_winners >= OUTAGE_WINNERS


@dataclass(frozen=True, slots=True)
class CoverageVerdict:
    complete: bool
    state: CoverageState


def judge(state: CoverageState, pane: int, labelled: int, unlabelled: int) -> CoverageVerdict:
    """Whether the pane has its labels, and the state after it.

    Incomplete: at least MIN_WINNERS winners and, where the usual coverage c is known, fewer labelled than n c / 2 by
    more than three binomial standard deviations; where it is not known, none labelled.
    """
    winners = labelled + unlabelled
    if winners == 0:
        return CoverageVerdict(True, state)
    if winners >= MIN_WINNERS and _is_short(state, labelled, winners):
        since = pane if state.missing_since is None else state.missing_since
        return CoverageVerdict(
            False, CoverageState(state.labelled, state.winners, state.missing_winners + winners, since)
        )
    total_labelled, total_winners = state.labelled + labelled, state.winners + winners
    if total_winners > _MEMORY_WINNERS:
        total_labelled, total_winners = total_labelled // 2, total_winners // 2
    if winners < MIN_WINNERS:  # too few to end an outage
        return CoverageVerdict(
            True, CoverageState(total_labelled, total_winners, state.missing_winners, state.missing_since)
        )
    return CoverageVerdict(True, CoverageState(total_labelled, total_winners))


def _is_short(state: CoverageState, labelled: int, winners: int) -> bool:
    if state.winners < REFERENCE_WINNERS:
        return labelled == 0
    half = state.labelled / state.winners / 2
    return labelled < winners * half - 3 * math.sqrt(winners * half * (1 - half))
