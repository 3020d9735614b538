"""The step's part on scores: which groups' PSI is in alarm, and what is said of it.

A PSI alarm is of scores whose labels are not there yet. Whether outcomes moved too is said once the pane that it saw is
mature: `covariate shift` where outcomes are still what is served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.alert_changes import AlertChange
from stream_calib.drift.psi import KNOWN, PsiLook, PsiReference, look
from stream_calib.drift.served_words import WHAT_IS_SERVED


@dataclass(frozen=True, slots=True)
class PsiState:
    """Groups in alarm, in the reference's order, and since which closed pane; None while there is none."""

    open: tuple[str, ...] = ()
    since_pane: int | None = None


@dataclass(frozen=True, slots=True)
class PsiFacts:
    """Of the window that ends with closed pane `newest`. `counts` (G, B): its scored rows, by the reference's groups
    and bins; `newest_rows`: those of that pane, which are new since the last look."""

    newest: int
    reference: PsiReference
    counts: NDArray[np.int64]
    newest_rows: int
    looked: Callable[[PsiReference, NDArray[np.int64], float, float], PsiLook] = look
    """`psi.look`, or what remembers what it said."""


PsiStep: TypeAlias = tuple[PsiState, bool, AlertChange | None]
"""The state after a look, whether a group is new among those in alarm, and the change of the alert."""


def psi_step(state: PsiState, facts: PsiFacts | None, threshold: float, budget_panes: float) -> PsiStep:
    """Takes a look; without facts nothing moves.

    `threshold`: psi0. `budget_panes`: at most one false alarm in so many panes, over all groups.
    """
    if facts is None:
        return state, False, None
    reference = facts.reference
    budget_rows = reference.rows_per_pane * budget_panes * len(reference.names)
    tail = facts.newest_rows / budget_rows if budget_rows else 0.0
    result = facts.looked(reference, facts.counts, threshold, tail)
    was_open = np.array([name in state.open for name in reference.names], dtype=bool)
    is_open = np.where(was_open, ~result.calm, result.alarm)
    if not is_open.any():
        if not state.open or state.since_pane is None:
            return PsiState(), False, None
        text = "the score distribution is back near that of the fit"
        return PsiState(), False, AlertChange("psi", "close", state.since_pane, text)
    opened = bool((is_open & ~was_open).any())
    names = tuple(reference.names[i] for i in np.flatnonzero(is_open))
    since = facts.newest if state.since_pane is None else state.since_pane
    if not opened:
        return PsiState(names, since), False, None
    worst = _worst(result, is_open)
    change = AlertChange(
        "psi",
        "update" if state.open else "open",
        since,
        _diagnosis(reference, result, worst),
        {"groups": {reference.names[i]: _figures(result, i) for i in worst}, "open_groups": len(names)},
    )
    return PsiState(names, since), True, change


def psi_diagnosed(state: PsiState, pane: int, outcomes_open: bool | None) -> AlertChange | None:
    """What is said when the first pane that the open alarm is of is mature: whether outcomes moved too; None where
    `outcomes_open` is, because nobody watches them."""
    if state.since_pane != pane or outcomes_open is None:
        return None
    groups = ", ".join(state.open[:5])
    if outcomes_open:
        kind, text = "concept_drift", f"the scores of {groups} moved, and outcomes are off {WHAT_IS_SERVED} too"
    else:
        kind, text = "covariate_shift", f"the scores of {groups} moved, and outcomes are still {WHAT_IS_SERVED}"
    return AlertChange("psi", "update", pane, text, {"open_groups": len(state.open), "diagnosis": kind})


def _worst(result: PsiLook, is_open: NDArray[np.bool_]) -> list[int]:
    """Up to five open groups of the largest excess. A group may be open and have no figures now: it is not shown."""
    shown = is_open & (result.status == KNOWN)
    order = np.argsort(-np.where(shown, result.excess, -np.inf), kind="stable")
    return [int(i) for i in order[: min(5, int(shown.sum()))]]


def _figures(result: PsiLook, index: int) -> dict[str, Any]:
    return {
        "psi": round(float(result.psi[index]), 6),
        "floor": round(float(result.floor[index]), 6),
        "excess": round(float(result.excess[index]), 6),
        "rows": int(result.rows[index]),
    }


def _diagnosis(reference: PsiReference, result: PsiLook, worst: list[int]) -> str:
    first = worst[0]
    return (
        f"the score distribution of {reference.names[first]} moved away from the fit: PSI {result.psi[first]:.3f} "
        f"against a noise floor of {result.floor[first]:.3f}"
    )
