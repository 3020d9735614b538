"""The served map: compiled to one table a signature, applied with one gather, whatever it consists of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.signature_tables import SignatureTables

_COMPILED_AT_ONCE = 256
"""Signatures, so that what is worked on (1.6 MB a column) stays near the processor."""
_ROWS_AT_ONCE = 32_768
"""Scores, for the same reason."""
_ROWS_WORTH_A_TABLE = 100
"""For each signature without one: a table takes the work of 402."""


class ServedMap:
    """One snapshot's map from (score, signature) to a calibrated probability.

    A signature is in at most one group of each family: that of its values at the family's positions. Its table holds,
    for every grid bin, the probability at the lower and at the upper edge, as `MapParts` defines them; linear in
    between. Values that no fit has seen, and `__other__`, are in no group: nothing is added for them.

    Tables are compiled when first needed and the least recently used ones dropped beyond `max_compiled` (6.4 kB each).
    The same score and signature give the same bits, whatever else is in the batch. One thread at a time may use a map.
    """

    def __init__(self, parts: MapParts, max_compiled: int = 20_000) -> None:
        self.parts = parts
        self._max_compiled = max_compiled
        self._maker = SignatureTables(parts)
        self._tables = np.empty((0, N_BINS, 2), dtype=np.float64)
        # From least to most recently used.
        self._slots: OrderedDict[Signature, int] = OrderedDict()
        self._moves_of: dict[Signature, int] = {}
        """Rows in `_known_moves` of the signatures that were asked for without tables."""
        self._known_moves = np.empty((0, 2))

    @property
    def compiled(self) -> int:
        """Number of signatures whose tables are held."""
        return len(self._slots)

    def apply(
        self, score: NDArray[np.float64], signature_index: NDArray[np.intp], signatures: Sequence[Signature]
    ) -> NDArray[np.float64]:
        """Calibrated probabilities (n,) of scores (n,) in [0, 1].

        `signature_index` (n,): each score's place in `signatures`. Non-decreasing in the score within a signature, and
        increasing at the grid's edges where the base map is strict.
        """
        result = np.empty(len(score), dtype=np.float64)
        for rows, first_cell in self._compiled_parts(signature_index, signatures):
            grid_bin, position = locate(np.ascontiguousarray(score[rows]))
            lower, upper = self._gather(first_cell + grid_bin)
            # Rounding may carry lower + 1.0 * (upper - lower) past upper, which is where the next bin begins.
            result[rows] = np.minimum(lower + position * (upper - lower), upper)
        return result

    def at_centres(
        self, grid_bin: NDArray[np.integer], signature_index: NDArray[np.intp], signatures: Sequence[Signature]
    ) -> NDArray[np.float64]:
        """Probabilities (k,) at the centres of grid bins (k,): the mean of the values at the edges."""
        edges = self.at_edges(grid_bin, signature_index, signatures)
        return np.asarray((edges[:, 0] + edges[:, 1]) / 2)

    def at_edges(
        self, grid_bin: NDArray[np.integer], signature_index: NDArray[np.intp], signatures: Sequence[Signature]
    ) -> NDArray[np.float64]:
        """Probabilities (k, 2) at the lower and the upper edges of grid bins (k,)."""
        moves = self._moves(len(grid_bin), signature_index, signatures)
        if moves is None:
            return self._edges_of_tables(grid_bin, signature_index, signatures)
        tabled = np.isnan(moves[:, 0])[signature_index]
        if not tabled.any():
            return self._maker.moved_at(grid_bin, moves[signature_index])
        result = np.empty((len(grid_bin), 2), dtype=np.float64)
        rows, others = np.flatnonzero(tabled), np.flatnonzero(~tabled)
        result[rows] = self._edges_of_tables(grid_bin[rows], signature_index[rows], signatures)
        result[others] = self._maker.moved_at(grid_bin[others], moves[signature_index[others]])
        return result

    def _edges_of_tables(
        self, grid_bin: NDArray[np.integer], signature_index: NDArray[np.intp], signatures: Sequence[Signature]
    ) -> NDArray[np.float64]:
        result = np.empty((len(grid_bin), 2), dtype=np.float64)
        for rows, first_cell in self._compiled_parts(signature_index, signatures):
            result[rows, 0], result[rows, 1] = self._gather(first_cell + grid_bin[rows])
        return result

    def _moves(
        self, n: int, signature_index: NDArray[np.intp], signatures: Sequence[Signature]
    ) -> NDArray[np.float64] | None:
        """(s, 2) as `SignatureTables.moves`, of the signatures that n rows are of; None where tables are worth making:
        they hold many more values than few rows ask for."""
        if not n:
            return None
        used = np.flatnonzero(np.bincount(signature_index, minlength=len(signatures)))
        asked = [signatures[i] for i in used.tolist()] if len(used) < len(signatures) else signatures
        tabled = sum(map(self._slots.__contains__, asked)) if self._slots else 0
        if n > _ROWS_WORTH_A_TABLE * (len(asked) - tabled):
            return None
        rows = list(map(self._moves_of.get, asked))
        if None in rows:
            self._learn_moves(asked, [signature for signature, row in zip(asked, rows, strict=True) if row is None])
            rows = list(map(self._moves_of.get, asked))
        moves = np.zeros((len(signatures), 2))
        moves[used] = self._known_moves[np.array(rows, dtype=np.intp)]
        return moves

    def _learn_moves(self, asked: Sequence[Signature], missing: Sequence[Signature]) -> None:
        if len(self._moves_of) + len(missing) > self._max_compiled:
            self._moves_of, self._known_moves, missing = {}, self._known_moves[:0], asked
        missing = list(dict.fromkeys(missing))
        self._moves_of.update(zip(missing, range(len(self._moves_of), len(self._moves_of) + len(missing)), strict=True))
        self._known_moves = np.concatenate([self._known_moves, self._maker.moves(missing)])

    def _gather(self, cell: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values at the lower and at the upper edges."""
        # A pair of neighbouring floats read as one complex number: one gather in place of two.
        pair = self._tables.reshape(-1).view(np.complex128)[cell]
        return pair.real, pair.imag

    def _compiled_parts(
        self, signature_index: NDArray[np.intp], signatures: Sequence[Signature]
    ) -> Iterator[tuple[slice | NDArray[np.intp], NDArray[np.int64]]]:
        """Parts of the rows whose tables are all held, and where in these the table of each row begins."""
        if not len(signature_index):
            return
        if len(signatures) == 1:
            used = np.zeros(1, dtype=np.intp)
        else:
            used = np.flatnonzero(np.bincount(signature_index, minlength=len(signatures)))
        begin = np.full(len(signatures), -1, dtype=np.int64)
        for start in range(0, len(used), self._max_compiled):
            part = used[start : start + self._max_compiled]
            begin[part] = np.multiply(self._compile([signatures[i] for i in part.tolist()]), N_BINS)
            if len(part) < len(used):
                rows = np.flatnonzero(begin[signature_index] >= 0)
                yield rows, begin[signature_index[rows]]
                begin[part] = -1
                continue
            for first in range(0, len(signature_index), _ROWS_AT_ONCE):
                several = slice(first, first + _ROWS_AT_ONCE)
                yield several, begin[signature_index[several]]

    def _compile(self, signatures: list[Signature]) -> list[int]:
        """Slots of the tables of at most `max_compiled` signatures, which are all in the table when this returns."""
        new = []
        for signature in dict.fromkeys(signatures):
            if signature in self._slots:
                self._slots.move_to_end(signature)
            else:
                new.append(signature)
        for start in range(0, len(new), _COMPILED_AT_ONCE):
            part = new[start : start + _COMPILED_AT_ONCE]
            slots = [self._free_slot(signature) for signature in part]
            self._tables[slots] = self._maker.of(part)
        return [self._slots[signature] for signature in signatures]

    def _free_slot(self, signature: Signature) -> int:
        if len(self._slots) < self._max_compiled:
            slot = len(self._slots)
            if slot == len(self._tables):
                room = np.empty((min(2 * slot + 16, self._max_compiled), N_BINS, 2), dtype=np.float64)
                room[:slot] = self._tables
                self._tables = room
        else:
            _, slot = self._slots.popitem(last=False)
        self._slots[signature] = slot
        return slot
