"""The step of drift/step.py as the closer uses it: log and cells in, everything to be committed for the pane out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from stream_calib.alerts.model import make_alert
from stream_calib.config import Config
from stream_calib.drift.outcome_step import PaneOutcomes
from stream_calib.drift.psi import PsiReference
from stream_calib.drift.psi_alert import PsiFacts
from stream_calib.drift.psi_window import PsiWindow, Signatures
from stream_calib.drift.step import DetectorState, PaneCounts, PaneFacts, StepResult, step
from stream_calib.events.contracts import ModelKey
from stream_calib.refit.outcome_watch import OutcomeWatch
from stream_calib.refit.roles import IS_FIT, ROLES
from stream_calib.refit.row_weights import RowWeights
from stream_calib.refit.settings import config_hash, panes_of, step_config
from stream_calib.snapshot.canonical import canonical_json, content_id
from stream_calib.snapshot.decision_log import DecisionLog, Request
from stream_calib.snapshot.model import ResolvedSnapshot
from stream_calib.snapshot.refit_alerts import RefitAlerts
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.vocabulary import CappedWinners, Vocabulary


@dataclass(frozen=True, slots=True)
class Decision:
    """What the closer commits for one decided pane, expecting `decided` = pane - 1 and the tip that the log had."""

    detector: str
    """New value of the field `detector`."""
    decisions: tuple[bytes, ...]
    """Entries for the list `decisions`: none, or one request."""
    outbox: tuple[bytes, ...]
    """Entries for the list `outbox`."""
    open_request: str
    """New value of the field `open_request`: the request's id, or empty."""


def psi_window(config: Config, signatures: Signatures) -> PsiWindow:
    """As configured."""
    panes = panes_of(config.drift.psi_window_ms, config.windows.pane_ms)
    return PsiWindow(panes, list(config.scores.attributes), signatures, RowWeights.of(config).of_score)


def _pane_counts(matured: MaturedCells) -> PaneCounts:
    """Sums over the cells of one pane."""
    fit = IS_FIT[matured.unit_bucket]
    return PaneCounts(
        labelled=int(matured.labelled.sum()),
        unlabelled=int(matured.unlabelled.sum()),
        fit_labelled=int(matured.labelled[fit].sum()),
        fit_positives=int(matured.positives[fit].sum()),
    )


class Decider:
    """One per closer. Keeps the PSI window in memory; everything else comes in and goes out with each call.

    Usage, for the next pane: `for p in decider.missing(pane): decider.push(p, cells)`, then `decide(pane, ...)`.
    """

    def __init__(
        self,
        key: ModelKey,
        generation: str,
        first_pane: int,
        config: Config,
        signatures: Signatures,
        reference_of: Callable[[str], PsiReference],
        snapshot_of: Callable[[str], ResolvedSnapshot],
        *,
        window: PsiWindow | None = None,
        encodes_state: bool = True,
    ) -> None:
        """`signatures` as `StateStore.signatures`; `reference_of` gives the PSI reference of a snapshot version, the
        same object for the same reference (`SnapshotStore.reference`), `snapshot_of` the snapshot
        (`SnapshotStore.load`). `window`: None for one of its own.
        `encodes_state` False, for those who go on with this very object: the state that is carried is encoded when it
        is asked for by `detector`, and the field names its pane only."""
        self._key, self._generation, self._first_pane = key, generation, first_pane
        self._pane_ms = config.windows.pane_ms
        self._refit_alerts = RefitAlerts(key, generation, self._pane_ms)
        self._config = step_config(config)
        self._config_hash = config_hash(config)
        self._weights, self._signatures = RowWeights.of(config), signatures
        self._window = psi_window(config, signatures) if window is None else window
        self._capped = CappedWinners(Vocabulary.of(config), signatures)
        self._reference_of, self._snapshot_of = reference_of, snapshot_of
        self._watch: OutcomeWatch | None = None
        self.psi_facts: PsiFacts | None = None
        """What the scores' part of the last decision was made from; None before there is a snapshot."""
        self._encodes_state = encodes_state
        self._state: tuple[str | None, DetectorState] = (None, DetectorState())

    @property
    def horizon_panes(self) -> int:
        """h: to decide pane M, panes up to M + h must be closed."""
        return self._config.horizon_panes

    def missing(self, pane: int) -> range:
        """Closed panes whose scored cells must be pushed before `pane` is decided. After a jump, the whole window."""
        last = pane + self.horizon_panes
        first = max(last - self._window.panes + 1, self._first_pane)
        oldest, newest = self._window.oldest, self._window.newest
        # A window that was being filled when the state went back may begin too late.
        if oldest is not None and newest is not None and oldest <= first and first - 1 <= newest <= last:
            return range(newest + 1, last + 1)
        self._window.clear()
        return range(first, last + 1)

    def push(self, pane: int, cells: ScoredCells) -> None:
        """Adds a closed pane. Raises ValueError where panes do not follow each other."""
        self._window.push(pane, cells.signature, cells.grid_bin, cells.n)

    def decide(
        self, pane: int, detector: str | None, log: DecisionLog, matured: MaturedCells, cells_sha256: str
    ) -> Decision:
        """Decides `pane`, with the stored field `detector` and the chain hash of the matured blobs up to the pane.

        Raises ValueError where the log has an open request (nothing is decided then), or panes are missing.
        """
        if log.open_request is not None:
            raise ValueError(f"pane {pane} cannot be decided while request {log.open_request.id} is open")
        if self._window.newest != pane + self.horizon_panes:
            needed = pane + self.horizon_panes
            raise ValueError(f"pane {pane} needs closed panes up to {needed}; push `missing` ones first")
        version = log.current_at(pane)
        result = self._stepped(self._load(detector), pane, version, log, matured)
        entries: tuple[bytes, ...] = ()
        request_id = ""
        asked: tuple[bytes, ...] = ()
        if result.request is not None:
            kind, reason = result.request.kind, result.request.reason
            request = Request(
                pane=pane,
                id=content_id(self._key.model, self._key.version, self._generation, kind, reason, pane),
                kind=kind,
                reason=reason,
                first_pane=self._first_pane,
                last_pane=pane,
                cells_sha256=cells_sha256,
                parent=version,
                roles=ROLES,
                config_hash=self._config_hash,
            )
            entries, request_id = (request.encode(),), request.id
            asked = (self._refit_alerts.asked(request),)
        alerts = tuple(
            make_alert(
                self._key,
                self._generation,
                change.kind,
                change.state,
                pane=pane,
                since_ms=change.since_pane * self._pane_ms,
                diagnosis=change.diagnosis,
                evidence=change.evidence,
            ).encode()
            for change in result.alerts
        )
        encoded = self._encoded(result.state) if self._encodes_state else f"pane {pane}"
        self._state = (encoded, result.state)
        return Decision(encoded, entries, alerts + asked, request_id)

    @property
    def detector(self) -> str:
        """The field `detector` after the last decision."""
        return self._encoded(self._state[1])

    def expired(self, request: Request, pane: int) -> tuple[bytes, ...]:
        """Entries for the list `outbox` where nobody has answered the request by `pane`."""
        return (self._refit_alerts.answered(request, "expired without an answer", pane),)

    def _stepped(
        self, state: DetectorState, pane: int, version: str | None, log: DecisionLog, matured: MaturedCells
    ) -> StepResult:
        outcomes, scores = self._outcomes(version, pane, matured)
        facts = replace(self._facts(pane, version, log, matured), outcomes=outcomes, scores=scores)
        return step(state, facts, self._config)

    def _facts(self, pane: int, version: str | None, log: DecisionLog, matured: MaturedCells) -> PaneFacts:
        """Without what the detectors of outcomes and of missing labels are shown."""
        reference = None if version is None else self._reference_of(version)
        self._window.use(reference)
        counts = self._window.counts
        self.psi_facts = None
        if reference is not None and counts is not None:
            newest = pane + self.horizon_panes
            self.psi_facts = PsiFacts(newest, reference, counts, self._window.newest_rows, self._window.looked)
        counts_of_pane, capped = self._counted(pane, matured)
        return PaneFacts(
            pane=pane,
            counts=counts_of_pane,
            has_snapshot=version is not None,
            manual=bool(log.manual_at(pane)),
            psi=self.psi_facts,
            capped=capped,
        )

    def _counted(self, pane: int, matured: MaturedCells) -> tuple[PaneCounts, Mapping[str, int]]:
        """Sums over the pane's cells, and its winners with values that are not counted apart."""
        return _pane_counts(matured), self._capped.of(matured)

    def _outcomes(
        self, version: str | None, pane: int, matured: MaturedCells
    ) -> tuple[PaneOutcomes | None, PaneOutcomes | None]:
        """What the version's detectors of outcomes and of missing labels are shown of the pane."""
        if version is None:
            return None, None
        if self._watch is None or self._watch.version != version:
            self._watch = OutcomeWatch(self._snapshot_of(version), self._weights, self._signatures)
        return self._watch.shown(pane, matured)

    @staticmethod
    def _encoded(state: DetectorState) -> str:
        return canonical_json(state.to_json()).decode()

    def _load(self, detector: str | None) -> DetectorState:
        known, state = self._state
        if detector == known:
            return state
        return DetectorState() if detector is None else DetectorState.from_json(json.loads(detector))
