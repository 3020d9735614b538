"""Evidence of both kinds, advanced over the matured panes in the state: what is kept from one request to the next."""

from __future__ import annotations

from stream_calib.config import Config
from stream_calib.errors import StateError
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import is_enough
from stream_calib.refit.forward_evidence import MOST_DAYS, ForwardEvidence
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import StateStore

_PANES_A_READ = 256


class CarriedEvidence:
    """`evidence` of the panes from `first_pane` on, and the `forward` record of their days.

    Advanced in one go or in several, it is the same; but for the days that were over long before the pane that was
    asked for last, which decide nothing and are left out of the record.
    """

    def __init__(self, state: StateStore, first_pane: int, config: Config) -> None:
        self._state, self._config = state, config
        self.evidence = Evidence(first_pane, config)
        self.forward = ForwardEvidence(config, state.signatures)

    def advance(self, last_pane: int) -> None:
        """Takes the matured panes up to `last_pane`. Raises StateError where one is not in the state, or damaged; the
        object then must not be used again."""
        evidence = self.evidence
        while evidence.next_pane <= last_pane:
            panes = range(evidence.next_pane, min(evidence.next_pane + _PANES_A_READ, last_pane + 1))
            for pane, blob in zip(panes, self._state.blobs([PaneNames.of(p).matured for p in panes]), strict=True):
                if blob is None:
                    raise StateError(f"matured cells of pane {pane} are not in the state store")
                evidence.advance(pane, blob)
                if evidence.day_is_over:
                    self._end_day(last_pane)

    def _end_day(self, last_pane: int) -> None:
        evidence = self.evidence
        # What would be judged on days before those that decide at the request is not fitted: a worker that starts anew
        # after years fits the last days only.
        decides = evidence.last_day >= evidence.day_of(last_pane + 1) - 1 - MOST_DAYS
        fit_cells = evidence.counts.cells() if decides and is_enough(evidence, self._config) else None
        self.forward.end_day(evidence.last_day, evidence.day_panes, fit_cells)
