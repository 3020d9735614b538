"""What the closer of one model key exports: its watermarks and panes, and what the panes that matured say of what was
served.

It only reads the state, a second at a time; what happened before the process had the lease is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.refit.row_weights import RowWeights
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.state_store import StateStore

_EVERY_MS = 1_000
_PANES_A_TIME = 200
_CURSORS = ("closed", "matured", "decided")
_DAY_MS = 86_400_000
_YEAR_MS = 366 * _DAY_MS


class PaneMetrics:
    """Observed by who holds the closer's lease, withdrawn when it is lost."""

    def __init__(self, model: str, state: StateStore, config: Config) -> None:
        """`model`: the model key as it is written."""
        self._model, self._state, self._pane_ms = model, state, config.windows.pane_ms
        self._weights = RowWeights.of(config)
        self._labels_may_lag_ms = (
            _DAY_MS + config.windows.label_lateness_ms + config.labels.when_due().longest_silence_ms()
        )
        self._counted: dict[str, int] = {}
        """Cursor -> the last pane counted."""
        self._request = ""
        self._at_ms = 0
        self._holds = self._began_empty = False
        metrics.CLOSER_LEASE.labels(model).set(0)

    def observe(self, now_ms: int, watermarks: Mapping[str, int | None]) -> None:
        """`watermarks`: side ("s" or "l") -> epoch milliseconds, None where it is not known yet.

        Raises StateUnavailableError.
        """
        if now_ms - self._at_ms < _EVERY_MS:
            return
        self._at_ms = now_ms
        if not self._holds:
            self._holds = True
            metrics.CLOSER_LEASE.labels(self._model).set(1)
            metrics.LABELS_MAY_LAG.labels(self._model).set(self._labels_may_lag_ms / 1000)
        for side, watermark in watermarks.items():
            # The end of a topic is no time.
            if watermark is not None and watermark < ENDED_CLOCK_MS - _YEAR_MS:
                metrics.WATERMARK_TIMESTAMP.labels(self._model, side).set(watermark / 1000)
        found = self._state.read((*_CURSORS, "first_pane", "open_request"))
        for cursor in _CURSORS:
            at, first_pane = found[cursor], found["first_pane"]
            if at is None or first_pane is None:
                self._began_empty = True
            else:
                self._counted.setdefault(cursor, int(first_pane) - 1 if self._began_empty else int(at))
                self._note(cursor, int(at))
        self._note_request(found["open_request"] or "", now_ms)

    def withdraw(self) -> None:
        """The lease is another process's now."""
        if not self._holds:
            return
        self._holds, self._began_empty, self._at_ms = False, False, 0
        self._counted.clear()
        metrics.CLOSER_LEASE.labels(self._model).set(0)
        metrics.LABELS_MAY_LAG.remove(self._model)
        for side in ("s", "l"):
            metrics.WATERMARK_TIMESTAMP.remove(self._model, side)
        for cursor in _CURSORS:
            metrics.PANE_TIMESTAMP.remove(self._model, cursor)
        self._note_request("", 0)

    def _note(self, cursor: str, at: int) -> None:
        metrics.PANE_TIMESTAMP.labels(self._model, cursor).set((at + 1) * self._pane_ms / 1000)
        # A state that was rolled back goes through the same panes again: they are not counted twice.
        counted = self._counted[cursor]
        if at <= counted:
            return
        reached = min(at, counted + _PANES_A_TIME) if cursor == "matured" else at
        if cursor == "matured":
            names = [PaneNames.of(pane).record for pane in range(counted + 1, reached + 1)]
            for blob in self._state.blobs(names):
                if blob is not None:  # the closer, which needs it, says so
                    self._note_record(decode_record(blob))
        metrics.PANES.labels(self._model, cursor).inc(reached - counted)
        self._counted[cursor] = reached

    def _note_record(self, record: PaneRecord) -> None:
        outcomes = record.counts | {"labelled": record.labelled, "unlabelled": record.unlabelled}
        for outcome, count in outcomes.items():
            metrics.OUTCOMES.labels(self._model, outcome).inc(count)
        for served in record.served.values():
            metrics.SERVED_POSITIVE_ROWS.labels(self._model).inc(served.positives.rows)
            metrics.SERVED_POSITIVES.labels(self._model).inc(self._weights.positives * served.positives.weight)
            for counts_for, sums in (
                (self._weights.negatives, served.negatives),
                (self._weights.positives, served.positives),
            ):
                metrics.SERVED_LABELLED.labels(self._model).inc(counts_for * sums.weight)
                metrics.SERVED_PROBABILITY.labels(self._model).inc(counts_for * sums.probability)
                metrics.SERVED_LOG_LOSS.labels(self._model).inc(counts_for * sums.log_loss)

    def _note_request(self, request: str, now_ms: int) -> None:
        if request == self._request:
            return
        self._request = request
        if request:
            metrics.REQUEST_TIMESTAMP.labels(self._model).set(now_ms / 1000)
        else:
            metrics.REQUEST_TIMESTAMP.remove(self._model)
