"""Where a refit gets from what a request names: panes, candidate, and what the gate is shown.

Everything that it gives is a function of the panes, the maps and the configuration; so many policies that are tried on
the same panes may be given what one of them has made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.refit.candidate import Candidate, make_candidate
from stream_calib.refit.carried import CarriedEvidence
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.fit import refit_level
from stream_calib.refit.gate_evidence import JudgedMap, judged
from stream_calib.refit.judgement import Judgement, judgement
from stream_calib.refit.min_coverage import Uncovered
from stream_calib.refit.reference import build_reference
from stream_calib.refit.report_parts import role_rows
from stream_calib.snapshot.decision_log import Request
from stream_calib.snapshot.model import ReferenceDocument, ResolvedSnapshot
from stream_calib.snapshot.report_documents import RoleRows
from stream_calib.windows.state_store import StateStore


class RefitSource(ABC):
    """Of one model key and configuration. Not thread-safe."""

    @abstractmethod
    def evidence(self, request: Request) -> PastPanes | None:
        """Of exactly the panes that the request names; None where their bytes are others. It is used no more once the
        next one is asked for. Raises StateError where panes are missing or damaged."""

    @abstractmethod
    def candidate(self, evidence: PastPanes) -> Candidate:
        """The structure that is fitted to the evidence that was asked for last. Raises the FitError family."""

    @abstractmethod
    def leveled(self, evidence: PastPanes, parent: ResolvedSnapshot) -> JudgedMap:
        """The parent's structure with the level of the evidence. Raises the FitError family, SnapshotError."""

    @abstractmethod
    def served(self, parent: ResolvedSnapshot) -> JudgedMap:
        """What a version serves. Raises DamagedSnapshotError where its documents do not make a map."""

    @abstractmethod
    def reference(self, evidence: PastPanes, candidate: Candidate) -> ReferenceDocument:
        """What drift is measured by once the candidate is served."""

    @abstractmethod
    def judgement(
        self, evidence: PastPanes, served: JudgedMap | None, candidate: JudgedMap, uncovered: Uncovered
    ) -> Judgement:
        """As `judgement.judgement`."""

    @abstractmethod
    def roles(self, evidence: PastPanes) -> tuple[RoleRows, ...]:
        """As `report_parts.role_rows`."""


class StateSource(RefitSource):
    """From the panes in the state, and its checkpoint. Keeps the evidence from one request to the next."""

    def __init__(self, state: StateStore, config: Config) -> None:
        self._state, self._config = state, config
        self._carried: CarriedEvidence | None = None

    def evidence(self, request: Request) -> PastPanes | None:
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
                return evidence
        return None

    def candidate(self, evidence: PastPanes) -> Candidate:
        assert self._carried is not None  # `evidence` is its evidence
        return make_candidate(evidence, self._carried.forward.record, self._state.signatures, self._config)

    def leveled(self, evidence: PastPanes, parent: ResolvedSnapshot) -> JudgedMap:
        served = self.served(parent)
        level = refit_level(evidence, self._state.signatures, served.served.parts, served.derived, self._config)
        return JudgedMap(ServedMap(replace(served.served.parts, level=level)), served.derived)

    def served(self, parent: ResolvedSnapshot) -> JudgedMap:
        return judged(parent)

    def reference(self, evidence: PastPanes, candidate: Candidate) -> ReferenceDocument:
        return build_reference(evidence, candidate.map, self._state.signatures, self._config)

    def judgement(
        self, evidence: PastPanes, served: JudgedMap | None, candidate: JudgedMap, uncovered: Uncovered
    ) -> Judgement:
        return judgement(evidence, served, candidate, uncovered, self._state.signatures, self._config)

    def roles(self, evidence: PastPanes) -> tuple[RoleRows, ...]:
        return role_rows(evidence)
