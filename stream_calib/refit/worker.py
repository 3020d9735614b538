"""Answering refit requests: evidence, fit, gate, publication. Every request ends in one kept report."""

from __future__ import annotations

from stream_calib.config import Config
from stream_calib.errors import (
    FitError,
    PublicationRefusedError,
    SnapshotError,
    SnapshotPinnedError,
    StateError,
    StateUnavailableError,
)
from stream_calib.events.contracts import ModelKey
from stream_calib.refit.carried import advance_checkpoint
from stream_calib.refit.derived import derived_document
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.gate import judge_figures
from stream_calib.refit.gate_evidence import JudgedMap, gate_window
from stream_calib.refit.group_coverage import MOST_GROUPS
from stream_calib.refit.min_coverage import ALL_COVERED, Uncovered
from stream_calib.refit.report_parts import asked_document
from stream_calib.refit.roles import ROLES
from stream_calib.refit.settings import config_hash
from stream_calib.refit.source import RefitSource, StateSource
from stream_calib.snapshot.decision_log import Outcome, Request
from stream_calib.snapshot.model import LevelSnapshot, ResolvedSnapshot, Snapshot, StructureSnapshot
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.report_documents import RoleRows
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.state_store import StateStore

_UNNUMBERED = 1
"""Sequence number of a candidate until the store gives it the next one."""


class Refitter:
    """Answers the requests of one model key. The source keeps the evidence in memory from one request to the next."""

    def __init__(
        self,
        state: StateStore,
        store: SnapshotStore,
        key: ModelKey,
        config: Config,
        source: RefitSource | None = None,
    ) -> None:
        """`source`: None for the panes in the state."""
        self._state, self._store, self._key, self._config = state, store, key, config
        self._config_hash = config_hash(config)
        self._source = source or StateSource(state, config)
        self._evidence: PastPanes | None = None
        """What the request that is answered now is answered from."""

    def run_once(self, token: str) -> RefitReport | None:
        """Answers the open request, if there is one, under the refit lease's `token`; its report as kept, or None.

        None too where the request was answered, expired or taken over meanwhile: the work is dropped. Raises
        StateUnavailableError when the store is away; the request then stays open.
        """
        request = self._store.log().open_request
        if request is None:
            return None
        try:
            candidate, report = self._answer(request)
        except StateUnavailableError:
            raise
        except (FitError, StateError, SnapshotError) as error:
            candidate, report = None, self._report(request, "failed", f"{type(error).__name__}: {error}")
        try:
            if candidate is None:
                self._store.settle(report, token)
                return report
            return self._publish(candidate, report, token)
        except PublicationRefusedError:
            return None

    def keep_up(self) -> bool:
        """Between requests: moves the checkpoint on where it is due, so that old panes can be dropped; whether it was.

        Raises StateError where panes are missing or damaged.
        """
        return advance_checkpoint(self._state, self._config)

    def _publish(self, candidate: Snapshot, report: RefitReport, token: str) -> RefitReport:
        by_approval = self._config.refit.publish == "approve"
        try:
            version = (self._store.hold if by_approval else self._store.publish)(candidate, report, token)
        except SnapshotPinnedError as error:
            refused = report.model_copy(update={"outcome": "refused", "detail": str(error)})
            self._store.settle(refused, token)
            return refused
        except PublicationRefusedError as error:
            superseded = report.model_copy(update={"outcome": "superseded", "detail": str(error)})
            self._store.settle(superseded, token)
            return superseded
        return report.model_copy(update={"outcome": "held" if by_approval else "published", "version": version})

    def _answer(self, request: Request) -> tuple[Snapshot | None, RefitReport]:
        self._evidence = None
        if request.config_hash != self._config_hash or request.roles != ROLES:
            return None, self._report(request, "failed", "the request was made under another configuration")
        evidence = self._source.evidence(request)
        if evidence is None:
            return None, self._report(request, "failed", "the matured panes are not those that the request names")
        self._evidence = evidence
        parent = None if request.parent is None else self._store.load(request.parent)
        if request.kind == "structure":
            return self._structure(request, evidence, parent)
        if parent is None:
            return None, self._report(request, "failed", "a level refit needs a snapshot, and there is none")
        return self._level(request, evidence, parent)

    def _structure(
        self, request: Request, evidence: PastPanes, parent: ResolvedSnapshot | None
    ) -> tuple[Snapshot | None, RefitReport]:
        config, candidate = self._config, self._source.candidate(evidence)
        served = None if parent is None else self._source.served(parent)
        fit, uncovered = candidate.fit, candidate.fit.uncovered
        report = self._judged(
            request, evidence, served, candidate.map, uncovered, candidate.evidence_sha256
        ).model_copy(
            update={
                "choices": fit.choices,
                "certificate": fit.certificate,
                "coverage": candidate.coverage,
                "uncovered": tuple(uncovered.groups[:MOST_GROUPS]),
            }
        )
        if report.gate is None or not report.gate.passed:
            return None, report
        snapshot = StructureSnapshot(
            **dict(candidate.document),
            model=self._key.model,
            model_version=self._key.version,
            sequence=_UNNUMBERED,
            parent=request.parent,
            request_id=request.id,
            first_pane=request.first_pane,
            last_pane=request.last_pane,
            cells_sha256=request.cells_sha256,
            config_hash=request.config_hash,
            pane_ms=config.windows.pane_ms,
            attributes=tuple(config.scores.attributes),
            derived=derived_document(candidate.map.derived),
            level=fit.parts.level,
            reference=self._source.reference(evidence, candidate),
            roles=ROLES,
            rows=evidence.fit_rows,
            positives=evidence.fit_positives,
            choices=fit.choices,
            certificate=fit.certificate,
            gate=report.gate,
        )
        return snapshot, report

    def _level(
        self, request: Request, evidence: PastPanes, parent: ResolvedSnapshot
    ) -> tuple[Snapshot | None, RefitReport]:
        candidate = self._source.leveled(evidence, parent)
        report = self._judged(request, evidence, self._source.served(parent), candidate)
        if report.gate is None or not report.gate.passed:
            return None, report
        snapshot = LevelSnapshot(
            model=self._key.model,
            model_version=self._key.version,
            sequence=_UNNUMBERED,
            parent=request.parent,
            request_id=request.id,
            last_pane=request.last_pane,
            cells_sha256=request.cells_sha256,
            config_hash=request.config_hash,
            structure=parent.structure_version,
            level=candidate.served.parts.level,
            gate=report.gate,
        )
        return snapshot, report

    def _judged(
        self,
        request: Request,
        evidence: PastPanes,
        served: JudgedMap | None,
        candidate: JudgedMap,
        uncovered: Uncovered = ALL_COVERED,
        evidence_sha256: str | None = None,
    ) -> RefitReport:
        """What the gate says of the candidate, and what it was judged on."""
        made = self._source.judgement(evidence, served, candidate, uncovered)
        window = gate_window(evidence, request.kind, request.parent)
        gate = judge_figures(made.figures, window, self._config.refit, made.decisions)
        detail = "the gate passed" if gate.passed else "; ".join(reason.detail for reason in gate.reasons)
        report = self._report(request, "published" if gate.passed else "refused", detail, evidence_sha256)
        return report.model_copy(
            update={
                "rows": evidence.fit_rows,
                "positives": evidence.fit_positives,
                "gate": gate,
                "reliability": made.reliability,
                "groups": made.groups,
                "changes": made.changes,
            }
        )

    def _report(
        self, request: Request, outcome: Outcome, detail: str, evidence_sha256: str | None = None
    ) -> RefitReport:
        manual = self._store.log().manual_at(request.pane) if request.reason == "manual" else []
        return RefitReport(
            request_id=request.id,
            kind=request.kind,
            reason=request.reason,
            pane=request.pane,
            outcome=outcome,
            detail=detail,
            asked=asked_document(request, [f"{action.actor}: {action.reason}" for action in manual], evidence_sha256),
            roles=self._roles(request),
        )

    def _roles(self, request: Request) -> tuple[RoleRows, ...]:
        """Of the data that the request was answered by; none where it was not read, or is not what was named."""
        evidence = self._evidence
        if evidence is None or evidence.last_pane != request.last_pane:
            return ()
        return self._source.roles(evidence) if evidence.cells_sha256 == request.cells_sha256 else ()
