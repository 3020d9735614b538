"""Labelled, positives and winners of the fit buckets per (signature, grid bin), decayed at two time scales."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import StateError
from stream_calib.refit.decay import Decay, halve
from stream_calib.windows.cells import MaturedCells

_LABELLED, _POSITIVES, _WINNERS, _LEVEL_LABELLED, _LEVEL_POSITIVES = range(5)
_HEAD = struct.Struct("<4sIIqI")
_MAGIC = b"SCD1"


@dataclass(frozen=True, slots=True)
class FitCells:
    """Decayed rows by (signature, grid bin), sorted by these two; every column has shape (k,)."""

    signature: NDArray[np.uint64]
    grid_bin: NDArray[np.uint16]
    labelled: NDArray[np.float64]
    positives: NDArray[np.float64]
    winners: NDArray[np.float64]
    """Labelled or not; counted from incomplete panes too."""
    level_labelled: NDArray[np.float64]
    """At the half-life of the level, as the next."""
    level_positives: NDArray[np.float64]


class DecayedCounts:
    """Sums in fixed point (see decay.py). Two that saw the same panes hold the same bits."""

    def __init__(self, structure_half_life_panes: int, level_half_life_panes: int) -> None:
        self._structure = Decay(structure_half_life_panes)
        self._level = Decay(level_half_life_panes)
        self._step = -1
        self._used = 0
        self._signature = np.empty(64, np.uint64)
        self._bin = np.empty(64, np.uint16)
        self._sums = np.zeros((5, 64), np.int64)
        self._slot_of: dict[tuple[int, int], int] = {}

    def advance(self, cells: MaturedCells, complete: bool) -> None:
        """Ages everything by one pane and adds that pane's cells; of an incomplete pane only the winners."""
        self._step += 1
        if self._structure.halves_before(self._step):
            halve(self._sums[: _WINNERS + 1, : self._used])
        if self._level.halves_before(self._step):
            halve(self._sums[_LEVEL_LABELLED:, : self._used])
        if not len(cells.signature):
            return
        slots = self._slots(cells.signature, cells.grid_bin)
        weight, level_weight = self._structure.weight(self._step), self._level.weight(self._step)
        np.add.at(self._sums[_WINNERS], slots, (cells.labelled + cells.unlabelled) * weight)
        if complete:
            np.add.at(self._sums[_LABELLED], slots, cells.labelled * weight)
            np.add.at(self._sums[_POSITIVES], slots, cells.positives * weight)
            np.add.at(self._sums[_LEVEL_LABELLED], slots, cells.labelled * level_weight)
            np.add.at(self._sums[_LEVEL_POSITIVES], slots, cells.positives * level_weight)

    def cells(self) -> FitCells:
        """The decayed rows as of the last pane, in which each row of that pane counts 1."""
        order = self._order()
        sums, step = self._sums[:, order], max(self._step, 0)
        structure, level = self._structure.rows(sums[:3], step), self._level.rows(sums[3:], step)
        return FitCells(self._signature[order], self._bin[order], *structure, *level)

    def checkpoint(self) -> bytes:
        """The whole state, equal bytes for equal states, ending with their SHA-256."""
        order = self._order()
        head = _HEAD.pack(_MAGIC, self._structure.half_life_panes, self._level.half_life_panes, self._step, self._used)
        body = head + b"".join(
            np.ascontiguousarray(column[..., order]).tobytes() for column in (self._signature, self._bin, self._sums)
        )
        return body + hashlib.sha256(body).digest()

    @classmethod
    def restore(cls, checkpoint: bytes) -> DecayedCounts:
        """The state that `checkpoint` was called on. Raises StateError where the bytes are damaged."""
        body, digest = checkpoint[:-32], checkpoint[-32:]
        if hashlib.sha256(body).digest() != digest or body[:4] != _MAGIC:
            size = len(checkpoint)
            raise StateError(f"checkpoint of decayed counts ({size} bytes) is damaged; rebuild from the panes")
        _, structure, level, step, used = _HEAD.unpack_from(body)
        counts = cls(structure, level)
        counts._step, counts._used = step, used
        start = _HEAD.size
        counts._signature = np.frombuffer(body, "<u8", used, start).astype(np.uint64)
        counts._bin = np.frombuffer(body, "<u2", used, start + 8 * used).astype(np.uint16)
        counts._sums = np.frombuffer(body, "<i8", 5 * used, start + 10 * used).reshape(5, used).astype(np.int64)
        keys = zip(counts._signature.tolist(), counts._bin.tolist(), strict=True)
        counts._slot_of = {key: i for i, key in enumerate(keys)}
        return counts

    def _order(self) -> NDArray[np.intp]:
        return np.lexsort((self._bin[: self._used], self._signature[: self._used]))

    def _slots(self, signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16]) -> NDArray[np.int64]:
        slot_of, before = self._slot_of, self._used
        keys = list(zip(signature.tolist(), grid_bin.tolist(), strict=True))
        # setdefault hands out the next slot to a key that is not known yet.
        slots = np.array([slot_of.setdefault(key, len(slot_of)) for key in keys], dtype=np.int64)
        self._used = len(slot_of)
        if self._used > len(self._signature):
            size = max(self._used, 2 * len(self._signature))
            self._signature = np.concatenate([self._signature, np.empty(size - len(self._signature), np.uint64)])
            self._bin = np.concatenate([self._bin, np.empty(size - len(self._bin), np.uint16)])
            self._sums = np.concatenate([self._sums, np.zeros((5, size - self._sums.shape[1]), np.int64)], axis=1)
        if self._used > before:
            new = slots >= before
            self._signature[slots[new]], self._bin[slots[new]] = signature[new], grid_bin[new]
        return slots
