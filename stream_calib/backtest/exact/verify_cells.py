"""Comparing the cells and pane records of two states, pane by pane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import HistoryError, StateError
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.shard_store import LABEL_CLASSES, UNMATCHED_KINDS
from stream_calib.windows.state_store import StateStore

_PANES_A_READ = 256
_UNMATCHED = (*UNMATCHED_KINDS, "label_never_scored")
_OF_LABELS = frozenset((*LABEL_CLASSES, *_UNMATCHED, "matched", "label_after_mature"))
_FIGURES = ("labelled", "positives", "unlabelled")


class CellDifference(NamedTuple):
    """The first one of its part."""

    part: Literal["cursor", "scored", "matured", "record"]
    pane: int | None
    where: str
    live: str
    replayed: str
    also: int = 0
    """How many more panes of the part differ."""


class CellsCompared(NamedTuple):
    first_pane: int
    closed: int
    matured: int
    """The last panes that were compared."""
    differences: list[CellDifference]
    left_out: list[str]


class PaneCursors(NamedTuple):
    """How far a state is at one moment."""

    first_pane: int
    kept_from: int
    closed: int
    matured: int

    @classmethod
    def of_state(cls, state: StateStore) -> PaneCursors:
        """Raises HistoryError where it has no panes yet."""
        fields = state.read(("first_pane", "closed", "matured", KEPT))
        kept = kept_of(fields)
        if kept is None:
            raise HistoryError("the state has no closed panes yet; there is nothing to compare")
        first, closed, matured = (int(fields[name] or -1) for name in ("first_pane", "closed", "matured"))
        return cls(first, kept.first_pane, closed, matured)


def compare_cells(live: StateStore, replayed: StateStore, at: PaneCursors) -> CellsCompared:
    """All panes that both have, of those that the live state had `at` some moment: it may go on meanwhile. Raises
    StateError where a pane is missing."""
    kept_from = PaneCursors.of_state(live).kept_from
    ours, theirs = at._replace(kept_from=kept_from), PaneCursors.of_state(replayed)
    if ours.first_pane != theirs.first_pane:
        parted = CellDifference("cursor", None, "first_pane", str(ours.first_pane), str(theirs.first_pane))
        return CellsCompared(ours.first_pane, ours.first_pane - 1, ours.first_pane - 1, [parted], [])
    first = max(ours.kept_from, theirs.kept_from)
    closed, matured = min(ours.closed, theirs.closed), min(ours.matured, theirs.matured)
    found = [
        CellDifference("cursor", None, name, str(one), str(other))
        for name, one, other in (
            ("closed", ours.closed, theirs.closed),
            ("matured", ours.matured, theirs.matured),
        )
        if other < one
    ]
    values = _Values(live, replayed)
    found += _first_of(_scored(live, replayed, range(first, closed + 1), values))
    found += _first_of(_matured(live, replayed, range(first, matured + 1), values))
    cut_from, records = _records(live, replayed, range(first, matured + 1), _first_cut(live, range(kept_from, first)))
    found += _first_of(records)
    notes = []
    if first > ours.first_pane:
        notes.append(f"cells of panes {ours.first_pane} to {first - 1}, which the live state does not keep")
    if cut_from is not None:
        notes.append(
            f"counters of labels from pane {cut_from} on, where a label partition was left out: what came after a pane"
            " had matured is counted where its shard stood then"
        )
    return CellsCompared(first, closed, matured, found, notes)


def _first_of(found: Sequence[CellDifference]) -> list[CellDifference]:
    return [found[0]._replace(also=len(found) - 1)] if found else []


def _pairs(
    live: StateStore, replayed: StateStore, panes: range, part: Literal["scored", "matured", "record"]
) -> Iterator[tuple[int, bytes, bytes]]:
    for first in range(panes.start, panes.stop, _PANES_A_READ):
        some = range(first, min(first + _PANES_A_READ, panes.stop))
        names = [getattr(PaneNames.of(pane), part) for pane in some]
        for pane, one, other in zip(some, live.blobs(names), replayed.blobs(names), strict=True):
            if one is None or other is None:
                which = "live state" if one is None else "replay"
                raise StateError(f"{part} of pane {pane} is not in the {which}, although its cursors promise it")
            yield pane, one, other


class _Values:
    """Attribute values of signatures, for people."""

    def __init__(self, *states: StateStore) -> None:
        self._states = states

    def of(self, signature: int) -> str:
        for state in self._states:
            try:
                return " x ".join(state.signatures([signature])[signature])
            except StateError:
                continue  # the other one may know it
        return f"signature {signature:016x}"


def _scored(live: StateStore, replayed: StateStore, panes: range, values: _Values) -> list[CellDifference]:
    found = []
    for pane, one, other in _pairs(live, replayed, panes, "scored"):
        if one != other:
            ours, theirs = ScoredCells.unpack(one), ScoredCells.unpack(other)
            names = ("signature", "grid_bin")
            key, left, right = _first_cell(ours, theirs, names, ("n",))
            where = "the same cells in other bytes" if key is None else f"{values.of(key[0])}, grid bin {key[1]}"
            counts = [_counts(c, ("winners",)) for c in (left, right)]
            found.append(CellDifference("scored", pane, where, counts[0], counts[1]))
    return found


def _matured(live: StateStore, replayed: StateStore, panes: range, values: _Values) -> list[CellDifference]:
    found = []
    for pane, one, other in _pairs(live, replayed, panes, "matured"):
        if one != other:
            ours, theirs = MaturedCells.unpack(one), MaturedCells.unpack(other)
            names = ("unit_bucket", "signature", "grid_bin")
            key, left, right = _first_cell(ours, theirs, names, _FIGURES)
            where = "the same cells in other bytes"
            if key is not None:
                where = f"unit bucket {key[0]}, {values.of(key[1])}, grid bin {key[2]}"
            counts = [_counts(c, _FIGURES) for c in (left, right)]
            found.append(CellDifference("matured", pane, where, counts[0], counts[1]))
    return found


def _first_cell(
    ours: Any, theirs: Any, keys: Sequence[str], counts: Sequence[str]
) -> tuple[tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]]:
    """The first cell, in the order of cells, whose counts differ, and both counts; zeros where one has none."""
    one, other = (_by_key(cells, keys, counts) for cells in (ours, theirs))
    nothing = (0,) * len(counts)
    for key in sorted(one.keys() | other.keys()):
        left, right = one.get(key, nothing), other.get(key, nothing)
        if left != right:
            return key, left, right
    return None, nothing, nothing


def _by_key(cells: Any, keys: Sequence[str], counts: Sequence[str]) -> dict[tuple[int, ...], tuple[int, ...]]:
    columns: list[NDArray[np.generic]] = [getattr(cells, name) for name in (*keys, *counts)]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {tuple(row[: len(keys)]): tuple(row[len(keys) :]) for row in rows}


def _counts(found: tuple[int, ...], names: Sequence[str]) -> str:
    return ", ".join(f"{n} {name}" for n, name in zip(found, names, strict=True))


def _first_cut(live: StateStore, panes: range) -> int | None:
    """The first of the panes that was matured without a label input."""
    for first in range(panes.start, panes.stop, _PANES_A_READ):
        some = range(first, min(first + _PANES_A_READ, panes.stop))
        for pane, blob in zip(some, live.blobs([PaneNames.of(p).record for p in some]), strict=True):
            if blob is not None and decode_record(blob).cut:
                return pane
    return None


def _records(
    live: StateStore, replayed: StateStore, panes: range, cut_from: int | None
) -> tuple[int | None, list[CellDifference]]:
    """The first pane with a cut, and the differences. `cut_from`: of the panes before these."""
    found = []
    for pane, one, other in _pairs(live, replayed, panes, "record"):
        ours, theirs = decode_record(one), decode_record(other)
        if cut_from is None and ours.cut:
            cut_from = pane
        left, right = (_comparable(record, cut_from is not None) for record in (ours, theirs))
        name = next((name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)), None)
        if name is not None:
            found.append(CellDifference("record", pane, name, _text(left.get(name)), _text(right.get(name))))
    return cut_from, found


def _comparable(record: PaneRecord, without_labels: bool) -> dict[str, object]:
    """Figures of the record. Left out are the places to start again from, which depend on how batches were cut. Why
    labels are unmatched is told as far as a shard knew when they came; how many of them is exact."""
    counts = {kind: n for kind, n in record.counts.items() if kind not in _UNMATCHED and n}
    if unmatched := sum(record.counts.get(kind, 0) for kind in _UNMATCHED):
        counts["unmatched"] = unmatched
    if without_labels:
        counts = {kind: n for kind, n in counts.items() if kind not in _OF_LABELS and kind != "unmatched"}
    served = {f"served {version or 'raw'}": msgspec.to_builtins(found) for version, found in record.served.items()}
    return {**counts, **served, **{name: getattr(record, name) for name in (*_FIGURES, "chain")}}


def _text(value: object) -> str:
    return "none" if value is None else str(value)
