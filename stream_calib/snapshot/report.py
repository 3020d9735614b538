"""What a refit reports: the gate's findings, and how the request ended. Kept whatever the outcome."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import ValidationError

from stream_calib.drift.policy import Kind, Reason
from stream_calib.errors import StateError
from stream_calib.snapshot.decision_log import Outcome
from stream_calib.snapshot.document import Document, ExtendedDocument
from stream_calib.snapshot.fit_documents import CertificateDocument, ChoicesDocument
from stream_calib.snapshot.report_documents import (
    AskedDocument,
    ChangesDocument,
    DecisionImpact,
    GroupTableDocument,
    ReliabilityDocument,
    RoleRows,
)

MOST_HARMED = 20
"""Harmed groups that a report names."""
MOST_UNDERPOWERED = 50
"""Groups too small to tell that a report names."""

GateCode: TypeAlias = Literal[
    "too_few_rows",
    "too_few_of_a_class",
    "labels_missing",
    "no_gain",
    "lower_bound_below_margin",
    "auc_drop",
    "group_harmed",
    "decision_shift",
]
"""Why the gate refuses, for counting; stable. What each means stands in refit/gate.py."""

RefusalCode: TypeAlias = GateCode | Literal["pinned"]
"""Why a candidate is not published: the gate's reasons, or that the current snapshot is pinned."""


class HarmedGroup(Document):
    """A group that the candidate makes worse, beyond doubt and tolerance."""

    name: str
    rows: int
    harm: float
    """Mean log-loss added in the group."""
    harm_lower: float
    """Simultaneous lower bound."""
    loss: float
    """Its mean log-loss under what is served."""


class GateReason(Document):
    """One reason for which a candidate did not pass."""

    code: GateCode
    detail: str
    """The same for people, with the figures."""


class GateReport(ExtendedDocument):
    """One candidate against what is served, on the gate's buckets. Losses are mean log-losses a labelled row."""

    later = frozenset({"harmed_left_out", "underpowered_left_out", "decisions"})

    kind: Literal["structure", "level"]
    baseline: str | None
    """Version that is served; None: the raw score."""
    first_pane: int
    last_pane: int
    incomplete_panes: int
    days: int
    rows: int
    positives: int
    loss_served: float | None = None
    """This and the next are None where there is too little data."""
    loss_candidate: float | None = None
    gain: float | None = None
    gain_lower: float | None = None
    error_days: float | None = None
    """Standard error of the gain with days as blocks."""
    error_buckets: float | None = None
    """The same with unit buckets as blocks."""
    margin: float
    """Share of the loss by which the lower bound may lie below 0."""
    auc_served: float | None = None
    auc_candidate: float | None = None
    harmed_groups: tuple[HarmedGroup, ...] = ()
    """Those of the most harm, at most twenty; so many more there are:"""
    harmed_left_out: int = 0
    underpowered_groups: tuple[str, ...] = ()
    """Groups in which harm of the size of the tolerance could not have been seen; those of the most rows, at most
    fifty. So many more there are:"""
    underpowered_left_out: int = 0
    decisions: tuple[DecisionImpact, ...] = ()
    """What the candidate does at the thresholds of `decisions`, in their order."""
    role_overlap: int
    passed: bool
    reasons: tuple[GateReason, ...] = ()
    """Why it did not pass; a harmed group is a reason of its own. Empty: it passed."""

    @property
    def codes(self) -> tuple[GateCode, ...]:
        """Each code of the reasons once, in their order."""
        return tuple(dict.fromkeys(reason.code for reason in self.reasons))

    def alert_evidence(self) -> dict[str, Any]:
        """What an alert about the candidate says of decisions, as plain values; nothing where there are none."""
        return {"decisions": [decision.in_short() for decision in self.decisions]} if self.decisions else {}


class GroupCoverage(Document):
    """How many scores of a group have a label; decayed by age, of the fit buckets."""

    name: str
    scores: float
    """By keep rate, where events were thinned."""
    labelled: float
    """Labelled rows."""
    coverage: float
    """Share of the scores that have a label."""
    positive_share: float | None
    """Of the labelled rows, by weight; None without them. Of the others it says nothing."""


class RefitReport(ExtendedDocument):
    """How one request ended."""

    later = frozenset({"asked", "roles", "reliability", "groups", "changes"})

    request_id: str
    kind: Kind
    reason: Reason
    pane: int
    """Pane of the request."""
    outcome: Outcome
    detail: str
    version: str | None = None
    rows: int = 0
    """Labelled rows that the fit used, not decayed."""
    positives: int = 0
    choices: ChoicesDocument | None = None
    """Of the candidate of a structure refit, as the next."""
    certificate: CertificateDocument | None = None
    gate: GateReport | None = None
    coverage: tuple[GroupCoverage, ...] = ()
    """Of everything, then of the groups with the least; of a structure refit."""
    uncovered: tuple[GroupCoverage, ...] = ()
    """Groups that have no offset, slope or patch, because less than `calibration.min_coverage` of their scores in
    complete panes have a label: those of the most scores."""
    asked: AskedDocument | None = None
    roles: tuple[RoleRows, ...] = ()
    """Of the data that was read; none where there was nothing to read."""
    reliability: ReliabilityDocument | None = None
    """Of the candidate that the gate judged; so the next."""
    groups: GroupTableDocument | None = None
    changes: ChangesDocument | None = None

    @property
    def refused_for(self) -> tuple[RefusalCode, ...]:
        """Codes of a refusal, each once; empty for every other outcome."""
        if self.outcome != "refused" or self.gate is None:
            return ()
        return ("pinned",) if self.gate.passed else self.gate.codes

    def alert_evidence(self) -> dict[str, Any]:
        """What an alert about the request says, as plain values."""
        return {"request_id": self.request_id} | ({} if self.gate is None else self.gate.alert_evidence())

    @classmethod
    def decode(cls, raw: bytes) -> RefitReport:
        """Raises StateError where the bytes are no report."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise StateError(f"entry of the list `reports` cannot be read ({error}): {raw[:200]!r}") from error
