"""Outcome classes of a model key so far: pane records, what those that were dropped summed to, and counters of panes
that have not matured or never will."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from stream_calib.errors import StateError
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.shard_store import UNMATCHED_KINDS, ShardStore
from stream_calib.windows.state_store import StateStore

_BLOBS_A_READ = 500
_NAMES = ("accepted", "winners", "labels", "matched", "labelled", "unlabelled")
_DROPS = ("score_late", "score_skewed", "label_late", "label_skewed", "label_unsampled", "label_after_mature")
_UNMATCHED = (*UNMATCHED_KINDS, "label_never_scored")


class Coverage(NamedTuple):
    """Winners of the newest matured panes."""

    panes: int
    labelled: int
    unlabelled: int


def pane_records(state: StateStore, after: int | None = None) -> Iterator[PaneRecord]:
    """The records that are kept of matured panes (`after`: of those after this one), oldest first.

    Raises StateError where one is missing, RecordsDroppedError where some were dropped meanwhile.
    """
    found = state.read(("first_pane", "matured", KEPT))
    kept = kept_of(found)
    if kept is None or found["matured"] is None:
        return
    first, last = kept.first_pane, int(found["matured"])
    for start in range(first if after is None else max(first, after + 1), last + 1, _BLOBS_A_READ):
        panes = range(start, min(start + _BLOBS_A_READ, last + 1))
        for pane, blob in zip(panes, state.blobs([PaneNames.of(p).record for p in panes]), strict=True):
            if blob is None:
                if state.read((KEPT,))[KEPT] != found[KEPT]:
                    raise RecordsDroppedError(f"the record of pane {pane} was dropped while it was read; read again")
                raise StateError(f"pane {pane} is matured but has no record; the model key's state is damaged")
            yield decode_record(blob)


class RecordsDroppedError(StateError):
    """Pane records were dropped while they were read."""


class OutcomeTotals:
    """Sums over all pane records, kept from one look to the next, so that each record is read once."""

    def __init__(self, state: StateStore, shards: ShardStore, coverage_panes: int) -> None:
        """`coverage_panes`: how many of the newest matured panes `coverage` is about."""
        self._state, self._shards = state, shards
        self._matured = Counter[str]()
        self._first: int | None = None
        self._last: int | None = None
        self._newest = deque[PaneRecord](maxlen=coverage_panes)

    def totals(self) -> dict[str, int]:
        """accepted, winners, labels, matched, labelled, unlabelled, score_late, score_skewed, label_late, label_skewed,
        label_unsampled, label_after_mature.

        winners, labelled and unlabelled speak of matured panes, the others of everything applied.
        """
        self._read_on()
        now = Counter(self._matured)
        now.update(self._shards.counts_after(-1 if self._last is None else self._last))
        now.update(self._shards.counts_before(-1 if self._first is None else self._first))
        return {name: now[name] for name in (*_NAMES, *_DROPS)}

    def unmatched(self) -> dict[str, int]:
        """label_leaked, label_beyond_horizon, label_never_scored: labels of matured panes that are not matched, by the
        likely reason. As of the last call of `totals`; apart from it, since the reason is what was still known of the
        id, which another run over the same logs may know less of."""
        return {name: self._matured[name] for name in _UNMATCHED}

    def coverage(self) -> Coverage:
        """As of the last call of `totals`."""
        labelled = sum(record.labelled for record in self._newest)
        return Coverage(len(self._newest), labelled, sum(record.unlabelled for record in self._newest))

    def _read_on(self) -> None:
        while True:
            try:
                return self._read_records()
            except RecordsDroppedError:
                self._forget()

    def _read_records(self) -> None:
        fields = self._state.read(("first_pane", "matured", KEPT))
        kept = kept_of(fields)
        first, matured = (None if value is None else int(value) for value in (fields["first_pane"], fields["matured"]))
        if self._last is not None and (first != self._first or matured is None or matured < self._last):
            self._forget()  # the state was restored, or is another one
        if self._last is not None and kept is not None and self._last < kept.first_pane - 1:
            self._forget()  # what it lacks is dropped by now
        if self._last is None and kept is not None and kept.counts:
            self._first, self._last = first, kept.first_pane - 1
            self._matured.update(kept.counts)
        for record in pane_records(self._state, self._last):
            if self._last is not None and record.pane != self._last + 1:
                raise RecordsDroppedError(f"records between panes {self._last} and {record.pane} were dropped")
            self._first = record.pane if self._first is None else self._first
            self._last = record.pane
            self._matured.update(record.counts)
            self._matured.update({"labelled": record.labelled, "unlabelled": record.unlabelled})
            self._newest.append(record)

    def _forget(self) -> None:
        self._matured.clear()
        self._newest.clear()
        self._first = self._last = None


def outcome_totals(state: StateStore, shards: ShardStore) -> dict[str, int]:
    """`OutcomeTotals.totals`, once."""
    return OutcomeTotals(state, shards, 1).totals()
