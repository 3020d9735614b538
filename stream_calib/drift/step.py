"""The step that is taken for each pane M, in order, once M is matured, M + h is closed and no request is open. Pure.

1. coverage of M, and whether labels are missing for some scores only; 2. residual detectors of M; 3. PSI of the window
   that ends with pane M + h; each with the snapshot that the decision log says is current at M; 4. values that M does
   not count apart; 5. the trigger machine. The result is committed as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stream_calib.drift.alert_changes import AlertChange
from stream_calib.drift.coverage import CoverageState, CoverageVerdict, judge
from stream_calib.drift.label_selection import SelectionState, selection_step
from stream_calib.drift.outcome_step import OutcomeState, PaneOutcomes, outcome_step
from stream_calib.drift.policy import Asked, TriggerConfig, TriggerFacts, TriggerState, trigger
from stream_calib.drift.psi_alert import PsiFacts, PsiState, PsiStep, psi_diagnosed, psi_step

VOCABULARY_CALM_PANES = 24
"""Panes in a row that count every value apart, before the alert that some do not is closed."""


@dataclass(frozen=True, slots=True)
class StepConfig:
    trigger: TriggerConfig
    horizon_panes: int
    """h = floor(horizon / pane)."""
    psi_threshold: float
    budget_panes: float
    """At most one false alarm in so many panes, of each detector over all that it watches."""
    page_panes: float
    """At most one false page in so many panes."""


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
    psi: PsiFacts | None
    """The window that ends with pane M + h; None without a snapshot."""
    capped: Mapping[str, int] = field(default_factory=dict)
    """Attribute (or `keep_rate`) -> winners of pane M whose value of it is not counted apart."""
    outcomes: PaneOutcomes | None = None
    """Labelled rows of M; None where the snapshot has no residual detectors."""
    scores: PaneOutcomes | None = None
    """Which scores of M have a label; None as above."""


@dataclass(frozen=True, slots=True)
class DetectorState:
    """Carried from pane to pane; `to_json` and `from_json` are exact inverses."""

    coverage: CoverageState = field(default_factory=CoverageState)
    trigger: TriggerState = field(default_factory=TriggerState)
    psi: PsiState = field(default_factory=PsiState)
    outage_open: bool = False
    vocabulary_since: int | None = None
    """First pane of the open alert of values that are not counted apart."""
    vocabulary_last: int | None = None
    """Last pane with such values."""
    outcomes: OutcomeState = field(default_factory=OutcomeState)
    selection: SelectionState = field(default_factory=SelectionState)

    def to_json(self) -> dict[str, Any]:
        """Plain values. What came later is left out where it was never used: the same state is the same bytes."""
        document: dict[str, Any] = {
            "coverage": asdict(self.coverage),
            "trigger": self.trigger.to_json(),
            "psi_open": list(self.psi.open),
            "psi_since": self.psi.since_pane,
            "outage_open": self.outage_open,
        }
        if self.vocabulary_since is not None:
            document |= {"vocabulary_since": self.vocabulary_since, "vocabulary_last": self.vocabulary_last}
        if self.outcomes != OutcomeState():
            document["outcomes"] = self.outcomes.to_json()
        if self.selection != SelectionState():
            document["selection"] = self.selection.to_json()
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DetectorState:
        return cls(
            coverage=CoverageState(**document["coverage"]),
            trigger=TriggerState(**document["trigger"]),
            psi=PsiState(tuple(document["psi_open"]), document["psi_since"]),
            outage_open=document["outage_open"],
            vocabulary_since=document.get("vocabulary_since"),
            vocabulary_last=document.get("vocabulary_last"),
            outcomes=OutcomeState.from_json(document["outcomes"]) if "outcomes" in document else OutcomeState(),
            selection=SelectionState.from_json(document["selection"]) if "selection" in document else SelectionState(),
        )


@dataclass(frozen=True, slots=True)
class StepResult:
    state: DetectorState
    alerts: tuple[AlertChange, ...]
    request: Asked | None


@dataclass(frozen=True, slots=True)
class JudgedLabels:
    """What the labels of a pane came to: a function of the panes so far, of the snapshots that were current at each of
    them, and of the two budgets; nothing else that is configured has a part in it."""

    coverage: CoverageState
    outcomes: OutcomeState
    selection: SelectionState
    complete: bool
    asks: bool
    """Whether outcomes made an alarm within the budget of refits."""
    outcomes_open: bool | None
    """Whether outcomes are in alarm; None where nobody watches them."""
    alerts: tuple[AlertChange, ...]


def step(state: DetectorState, facts: PaneFacts, config: StepConfig) -> StepResult:
    """Decides pane `facts.pane`."""
    judged = judge_labels(state, facts.pane, facts.counts, facts.outcomes, facts.scores, config)
    look = psi_step(state.psi, facts.psi, config.psi_threshold, config.budget_panes)
    return conclude(state, facts, config, judged, look)


def judge_labels(
    state: DetectorState,
    pane: int,
    counts: PaneCounts,
    outcomes: PaneOutcomes | None,
    scores: PaneOutcomes | None,
    config: StepConfig,
) -> JudgedLabels:
    """The first and second part of the step. Of the state, coverage, outcomes and selection are used, of the
    configuration the two budgets."""
    verdict = judge(state.coverage, pane, counts.labelled, counts.unlabelled)
    alerts = _outage(state, pane, verdict)
    complete = verdict.complete
    selection, change = selection_step(state.selection, pane, scores if complete else None, config.budget_panes)
    alerts += [] if change is None else [change]
    found = outcome_step(state.outcomes, pane, outcomes if complete else None, config.budget_panes, config.page_panes)
    is_open = None if outcomes is None else found.state.is_open
    return JudgedLabels(verdict.state, found.state, selection, complete, found.asks, is_open, (*alerts, *found.alerts))


def conclude(
    state: DetectorState, facts: PaneFacts, config: StepConfig, judged: JudgedLabels, look: PsiStep
) -> StepResult:
    """The rest of the step, from what `judge_labels` and `psi_step` say. Of the facts, outcomes and scores are not
    used; of the state, PSI, vocabulary and trigger are."""
    pane, counts, complete = facts.pane, facts.counts, judged.complete
    alerts = list(judged.alerts)
    psi, arms, change = _psi(facts.pane, look, judged.outcomes_open)
    alerts += [] if change is None else [change]
    vocabulary_since, vocabulary_last, change = _vocabulary(state, facts)
    alerts += [] if change is None else [change]
    trigger_state, asked = trigger(
        state.trigger,
        TriggerFacts(
            pane=pane,
            labelled=counts.labelled if complete else 0,
            fit_labelled=counts.fit_labelled if complete else 0,
            fit_positives=counts.fit_positives if complete else 0,
            has_snapshot=facts.has_snapshot,
            manual=facts.manual,
            psi_alarm_pane=pane + config.horizon_panes if arms else None,
            residual_alarm=judged.asks,
        ),
        config.trigger,
    )
    after = DetectorState(
        judged.coverage,
        trigger_state,
        psi,
        judged.coverage.outage,
        vocabulary_since,
        vocabulary_last,
        judged.outcomes,
        judged.selection,
    )
    return StepResult(after, tuple(alerts), asked)


def _psi(pane: int, look: PsiStep, outcomes_open: bool | None) -> PsiStep:
    """The state after the look, whether it arms a refit, and the one change of the alert."""
    psi, arms, change = look
    diagnosed = psi_diagnosed(psi, pane, outcomes_open)
    if change is None or diagnosed is None:
        return psi, arms, change or diagnosed
    text = f"{change.diagnosis}; {diagnosed.diagnosis}"
    return psi, arms, replace(change, diagnosis=text, evidence=change.evidence | diagnosed.evidence)


def _outage(state: DetectorState, pane: int, verdict: CoverageVerdict) -> list[AlertChange]:
    after = verdict.state
    if after.outage and not state.outage_open and after.missing_since is not None:
        missing = after.missing_winners
        text = f"labels of {missing:,} scores are missing, by what is usual: look at what writes the labels topic"
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
