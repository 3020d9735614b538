"""Answering refit requests: evidence, fit, gate, publication. Every request ends in one kept report."""

from __future__ import annotations

from dataclasses import replace

from stream_calib.calibration.maps.served_map import ServedMap
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
from stream_calib.refit.carried import CarriedEvidence, advance_checkpoint
from stream_calib.refit.choice import choose
from stream_calib.refit.decisions import decision_impacts
from stream_calib.refit.derived import derived_document, time_attributes
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import fit_structure, refit_level
from stream_calib.refit.gate import judge_candidate
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells, gate_traffic, gate_window, judged
from stream_calib.refit.group_coverage import MOST_GROUPS, group_coverage
from stream_calib.refit.min_coverage import ALL_COVERED, Uncovered
from stream_calib.refit.reference import build_reference
from stream_calib.refit.report_parts import (
    asked_document,
    changes_document,
    group_table_document,
    reliability_document,
    role_rows,
)
from stream_calib.refit.roles import ROLES
from stream_calib.refit.settings import config_hash
from stream_calib.snapshot.compiled import map_document, map_parts
from stream_calib.snapshot.decision_log import Outcome, Request
from stream_calib.snapshot.model import LevelSnapshot, ResolvedSnapshot, Snapshot, StructureSnapshot
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.report_documents import RoleRows
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.state_store import StateStore

_UNNUMBERED = 1
"""Sequence number of a candidate until the store gives it the next one."""


class Refitter:
    """Answers the requests of one model key. Keeps the evidence in memory from one request to the next."""

    def __init__(self, state: StateStore, store: SnapshotStore, key: ModelKey, config: Config) -> None:
        self._state, self._store, self._key, self._config = state, store, key, config
        self._config_hash = config_hash(config)
        self._carried: CarriedEvidence | None = None

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
        if request.config_hash != self._config_hash or request.roles != ROLES:
            return None, self._report(request, "failed", "the request was made under another configuration")
        carried = self._evidence_for(request)
        if carried is None:
            return None, self._report(request, "failed", "the matured panes are not those that the request names")
        parent = None if request.parent is None else self._store.load(request.parent)
        if request.kind == "structure":
            return self._structure(request, carried, parent)
        if parent is None:
            return None, self._report(request, "failed", "a level refit needs a snapshot, and there is none")
        return self._level(request, carried.evidence, parent)

    def _structure(
        self, request: Request, carried: CarriedEvidence, parent: ResolvedSnapshot | None
    ) -> tuple[Snapshot | None, RefitReport]:
        config, evidence, forward = self._config, carried.evidence, carried.forward
        choice = choose(forward.variants, forward.days, forward.sha256, config)
        fit = fit_structure(evidence, choice, self._state.signatures, config)
        document, attributes = map_document(fit.parts), tuple(config.scores.attributes)
        # Judged is what will be read: the map of the documents.
        candidate_map = JudgedMap(
            ServedMap(map_parts(attributes + choice.derived, document, fit.parts.level)),
            time_attributes(config, choice.derived),
        )
        report = self._judged(
            request, evidence, None if parent is None else judged(parent), candidate_map, fit.uncovered, forward.sha256
        ).model_copy(
            update={
                "choices": fit.choices,
                "certificate": fit.certificate,
                "coverage": group_coverage(evidence, self._state.signatures, config),
                "uncovered": tuple(fit.uncovered.groups[:MOST_GROUPS]),
            }
        )
        if report.gate is None or not report.gate.passed:
            return None, report
        candidate = StructureSnapshot(
            **dict(document),
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
            attributes=attributes,
            derived=derived_document(candidate_map.derived),
            level=fit.parts.level,
            reference=build_reference(evidence, candidate_map, self._state.signatures, config),
            roles=ROLES,
            rows=evidence.fit_rows,
            positives=evidence.fit_positives,
            choices=fit.choices,
            certificate=fit.certificate,
            gate=report.gate,
        )
        return candidate, report

    def _level(
        self, request: Request, evidence: Evidence, parent: ResolvedSnapshot
    ) -> tuple[Snapshot | None, RefitReport]:
        served = judged(parent)
        level = refit_level(evidence, self._state.signatures, served.served.parts, served.derived, self._config)
        candidate_map = JudgedMap(ServedMap(replace(served.served.parts, level=level)), served.derived)
        report = self._judged(request, evidence, served, candidate_map)
        if report.gate is None or not report.gate.passed:
            return None, report
        candidate = LevelSnapshot(
            model=self._key.model,
            model_version=self._key.version,
            sequence=_UNNUMBERED,
            parent=request.parent,
            request_id=request.id,
            last_pane=request.last_pane,
            cells_sha256=request.cells_sha256,
            config_hash=request.config_hash,
            structure=parent.structure_version,
            level=level,
            gate=report.gate,
        )
        return candidate, report

    def _judged(
        self,
        request: Request,
        evidence: Evidence,
        served: JudgedMap | None,
        candidate: JudgedMap,
        uncovered: Uncovered = ALL_COVERED,
        evidence_sha256: str | None = None,
    ) -> RefitReport:
        """What the gate says of the candidate, and what it was judged on."""
        config, signatures = self._config, self._state.signatures
        cells = gate_cells(evidence, signatures, config, served, candidate, uncovered)
        traffic = gate_traffic(evidence, signatures, config, served, candidate)
        decisions = decision_impacts(traffic, config.decisions, config.refit.max_decision_shift)
        window = gate_window(evidence, request.kind, request.parent)
        gate = judge_candidate(cells, window, config.refit, decisions)
        detail = "the gate passed" if gate.passed else "; ".join(reason.detail for reason in gate.reasons)
        report = self._report(request, "published" if gate.passed else "refused", detail, evidence_sha256)
        return report.model_copy(
            update={
                "rows": evidence.fit_rows,
                "positives": evidence.fit_positives,
                "gate": gate,
                "reliability": reliability_document(cells),
                "groups": group_table_document(cells),
                "changes": changes_document(traffic),
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
        if self._carried is None or self._carried.evidence.last_pane != request.last_pane:
            return ()
        evidence = self._carried.evidence
        return role_rows(evidence) if evidence.cells_sha256 == request.cells_sha256 else ()

    # --- evidence

    def _evidence_for(self, request: Request) -> CarriedEvidence | None:
        """Evidence of exactly the panes that the request names; None where their bytes are others."""
        for carried in (self._carried, CarriedEvidence(self._state, request.first_pane, self._config)):
            if carried is None:
                continue
            evidence = carried.evidence
            if evidence.first_pane != request.first_pane or evidence.last_pane > request.last_pane:
                continue
            self._carried = None  # half advanced, it must not be used again
            carried.advance(request.last_pane)
            if evidence.cells_sha256 == request.cells_sha256:
                self._carried = carried
                return carried
        return None
