"""The step that is taken for each pane M, in order, once M is matured, M + h is closed and no request is open. Pure.

1. coverage of M; 2. PSI of the window that ends with pane M + h, with the snapshot that the decision log says is
   current at M; 3. values that M does not count apart; 4. the trigger machine. (Residual detectors come between 1 and
   2.) The result is committed as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.coverage import CoverageState, CoverageVerdict, judge
from stream_calib.drift.policy import Asked, TriggerConfig, TriggerFacts, TriggerState, trigger
from stream_calib.drift.psi import KNOWN, PsiLook, PsiReference, look

VOCABULARY_CALM_PANES = 24
"""Panes in a row that count every value apart, before the alert that some do not is closed."""


@dataclass(frozen=True, slots=True)
class StepConfig:
    trigger: TriggerConfig
    horizon_panes: int
    """h = floor(horizon / pane)."""
    psi_threshold: float
    budget_panes: float
    """At most one false PSI alarm in so many panes, over all watched groups."""


@dataclass(frozen=True, slots=True)
class PaneCounts:
    """Sums over the matured cells of one pane."""

    labelled: int
    unlabelled: int
    fit_labelled: int
    """Labelled rows in the unit buckets whose role is `fit`."""
    fit_positives: int


@dataclass(frozen=True, slots=True)
class PaneFacts:
    """What the step is told about pane M."""

    pane: int
    counts: PaneCounts
    has_snapshot: bool
    """A snapshot is current at M."""
    manual: bool
    """A manual refit action takes effect at M."""
    reference: PsiReference | None
    """Of the snapshot that is current at M."""
    psi_counts: NDArray[np.int64] | None
    """(G, B) scored rows of the window that ends with pane M + h, by the reference's groups and bins."""
    newest_rows: int
    """Scored rows of pane M + h: what is new since the last look."""
    capped: Mapping[str, int] = field(default_factory=dict)
    """Attribute (or `keep_rate`) -> winners of pane M whose value of it is not counted apart."""


@dataclass(frozen=True, slots=True)
class DetectorState:
    """Carried from pane to pane; `to_json` and `from_json` are exact inverses."""

    coverage: CoverageState = field(default_factory=CoverageState)
    trigger: TriggerState = field(default_factory=TriggerState)
    psi_open: tuple[str, ...] = ()
    """Groups whose PSI is in alarm, in the reference's order."""
    psi_since: int | None = None
    """Closed pane with which the open PSI alert began."""
    outage_open: bool = False
    vocabulary_since: int | None = None
    """First pane of the open alert of values that are not counted apart."""
    vocabulary_last: int | None = None
    """Last pane with such values."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        document = asdict(self) | {"psi_open": list(self.psi_open)}
        if self.vocabulary_since is None:  # as it was before there was this alert: the same state is the same bytes
            del document["vocabulary_since"], document["vocabulary_last"]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DetectorState:
        return cls(
            coverage=CoverageState(**document["coverage"]),
            trigger=TriggerState(**document["trigger"]),
            psi_open=tuple(document["psi_open"]),
            psi_since=document["psi_since"],
            outage_open=document["outage_open"],
            vocabulary_since=document.get("vocabulary_since"),
            vocabulary_last=document.get("vocabulary_last"),
        )


@dataclass(frozen=True, slots=True)
class AlertChange:
    """An alert opens, goes on with news, or closes."""

    kind: Literal["psi", "label_outage", "vocabulary"]
    state: Literal["open", "update", "close"]
    since_pane: int
    diagnosis: str
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values."""


@dataclass(frozen=True, slots=True)
class StepResult:
    state: DetectorState
    alerts: tuple[AlertChange, ...]
    request: Asked | None


def step(state: DetectorState, facts: PaneFacts, config: StepConfig) -> StepResult:
    """Decides pane `facts.pane`."""
    verdict = judge(state.coverage, facts.pane, facts.counts.labelled, facts.counts.unlabelled)
    alerts = _outage(state, facts.pane, verdict)
    psi_open, psi_since, arms, change = _psi(state, facts, config)
    if change is not None:
        alerts.append(change)
    vocabulary_since, vocabulary_last, change = _vocabulary(state, facts)
    if change is not None:
        alerts.append(change)
    counts = facts.counts
    trigger_state, asked = trigger(
        state.trigger,
        TriggerFacts(
            pane=facts.pane,
            labelled=counts.labelled if verdict.complete else 0,
            fit_labelled=counts.fit_labelled if verdict.complete else 0,
            fit_positives=counts.fit_positives if verdict.complete else 0,
            has_snapshot=facts.has_snapshot,
            manual=facts.manual,
            psi_alarm_pane=facts.pane + config.horizon_panes if arms else None,
        ),
        config.trigger,
    )
    after = DetectorState(
        verdict.state, trigger_state, psi_open, psi_since, verdict.state.outage, vocabulary_since, vocabulary_last
    )
    return StepResult(after, tuple(alerts), asked)


def _outage(state: DetectorState, pane: int, verdict: CoverageVerdict) -> list[AlertChange]:
    after = verdict.state
    if after.outage and not state.outage_open and after.missing_since is not None:
        missing = after.missing_winners
        text = f"labels of {missing} scores since pane {after.missing_since} are missing: look at the labels topic"
        usual = {"usual_labelled": after.labelled, "usual_winners": after.winners}
        evidence = {"missing_winners": missing} | usual
        return [AlertChange("label_outage", "open", after.missing_since, text, evidence)]
    if state.outage_open and not after.outage:
        since = state.coverage.missing_since
        return [AlertChange("label_outage", "close", pane if since is None else since, "labels are complete again")]
    return []


def _vocabulary(state: DetectorState, facts: PaneFacts) -> tuple[int | None, int | None, AlertChange | None]:
    """Since which pane the alert is open, the last pane that had a reason for it, and the change of the alert."""
    since, last, pane = state.vocabulary_since, state.vocabulary_last, facts.pane
    winners = facts.counts.labelled + facts.counts.unlabelled
    if facts.capped:
        if since is not None:
            return since, pane, None
        text = (
            f"pane {pane} has more values of {', '.join(facts.capped)} than are counted apart (scores.max_values; 16"
            " keep rates): the rarer ones are counted together, without an offset. An id is no attribute: leave it out"
        )
        evidence = {"winners": winners, "capped": dict(facts.capped)}
        return pane, pane, AlertChange("vocabulary", "open", pane, text, evidence)
    if since is None or last is None or pane - last < VOCABULARY_CALM_PANES or not winners:
        return since, last, None
    return None, None, AlertChange("vocabulary", "close", since, "every value is counted apart again")


def _psi(
    state: DetectorState, facts: PaneFacts, config: StepConfig
) -> tuple[tuple[str, ...], int | None, bool, AlertChange | None]:
    """Open groups, since which closed pane, whether a group is new among them, and the change of the alert."""
    if facts.reference is None or facts.psi_counts is None:
        return state.psi_open, state.psi_since, False, None
    reference, newest = facts.reference, facts.pane + config.horizon_panes
    budget_rows = reference.rows_per_pane * config.budget_panes * len(reference.names)
    tail = facts.newest_rows / budget_rows if budget_rows else 0.0
    result = look(reference, facts.psi_counts, config.psi_threshold, tail)
    was_open = np.array([name in state.psi_open for name in reference.names], dtype=bool)
    is_open = np.where(was_open, ~result.calm, result.alarm)
    if not is_open.any():
        if not state.psi_open or state.psi_since is None:
            return (), None, False, None
        text = "the score distribution is back near that of the fit"
        return (), None, False, AlertChange("psi", "close", state.psi_since, text)
    opened = bool((is_open & ~was_open).any())
    names = tuple(reference.names[i] for i in np.flatnonzero(is_open))
    since = newest if state.psi_since is None else state.psi_since
    if not opened:
        return names, since, False, None
    worst = _worst(result, is_open)
    change = AlertChange(
        "psi",
        "update" if state.psi_open else "open",
        since,
        _diagnosis(reference, result, worst),
        {"groups": {reference.names[i]: _figures(result, i) for i in worst}, "open_groups": len(names)},
    )
    return names, since, True, change


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
