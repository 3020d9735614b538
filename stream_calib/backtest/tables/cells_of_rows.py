"""From the numbers that the query gives to the packed cells of each pane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.history import PaneBlobs
from stream_calib.calibration.grid import N_BINS
from stream_calib.config import Config
from stream_calib.events.identity import UNIT_BUCKETS
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.vocabulary import MOST_KEEP_RATES, Vocabulary

NONE, WITHDRAWN, NEGATIVE, POSITIVE, REPEATED = 0, 1, 2, 3, 4
"""What a winner's label is; REPEATED is added where its id is there several times."""
MATCHED = -1
"""A key that is none."""

_STATE_BITS = 3
_BIN_BITS = (N_BINS - 1).bit_length()
_BUCKET_BITS = (UNIT_BUCKETS - 1).bit_length()
_THREADS = 2
"""Of packing, which compresses outside of the interpreter's lock."""


@dataclass(frozen=True, slots=True)
class CellKeys:
    """How a pane, unit bucket, signature, grid bin and label are one number, in this order of weight."""

    first_pane: int
    signature_bits: int
    """Of places among the signatures."""

    @classmethod
    def of(cls, first_pane: int, signatures: int) -> CellKeys:
        """For so many signatures."""
        return cls(first_pane, max(signatures - 1, 0).bit_length())

    def sql(self, state: str) -> str:
        """Of rows with `pane`, `bucket`, `signature`, `bin`, and this state."""
        of_bucket = f"(pane - {self.first_pane}) * {1 << _BUCKET_BITS} + bucket"
        of_signature = f"({of_bucket}) * {1 << self.signature_bits} + signature"
        return f"(({of_signature}) * {1 << _BIN_BITS} + bin) * {1 << _STATE_BITS} + {state}"

    def state(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        return key & ((1 << _STATE_BITS) - 1)

    def cells(self, key: NDArray[np.int64], n: NDArray[np.int64], *, negative: bool) -> CountedCells:
        """`negative`: winners without a label are negatives."""
        order = np.argsort(key)
        key, n = key[order], n[order]
        cell, state = key >> _STATE_BITS, key & (REPEATED - 1)
        start = np.flatnonzero(np.concatenate([np.ones(min(len(cell), 1), bool), cell[1:] != cell[:-1]]))
        unlabelled = (state == WITHDRAWN) if negative else (state < NEGATIVE)
        columns = n, np.where(state == POSITIVE, n, 0), np.where(unlabelled, n, 0)
        winners, positives, without = (np.add.reduceat(c, start) if len(start) else c for c in columns)
        cell = cell[start]
        rest = cell >> _BIN_BITS
        by_bucket = rest >> self.signature_bits
        return CountedCells(
            pane=(by_bucket >> _BUCKET_BITS) + self.first_pane,
            bucket=(by_bucket & ((1 << _BUCKET_BITS) - 1)).astype(np.uint8),
            place=rest & ((1 << self.signature_bits) - 1),
            grid_bin=(cell & ((1 << _BIN_BITS) - 1)).astype(np.uint16),
            winners=winners,
            positives=positives,
            unlabelled=without,
        )


class CountedCells(NamedTuple):
    """Of all panes, in order of pane, bucket, signature and bin; columns (k,)."""

    pane: NDArray[np.int64]
    bucket: NDArray[np.uint8]
    place: NDArray[np.int64]
    """Of the signature among all, by hash."""
    grid_bin: NDArray[np.uint16]
    winners: NDArray[np.int64]
    positives: NDArray[np.int64]
    unlabelled: NDArray[np.int64]


class PackedPanes(NamedTuple):
    panes: list[PaneBlobs]
    signatures: dict[int, tuple[str, ...]]
    """Those given, and those with values that are not counted apart."""
    capped: int
    """Winners of the latter."""


def packed_panes(
    cells: CountedCells,
    panes: range,
    last_final: int,
    signatures: Mapping[int, tuple[str, ...]],
    config: Config,
) -> PackedPanes:
    """These panes, with matured cells up to `last_final`. `signatures`: by hash, in the order of their places."""
    hashes = np.array(list(signatures), dtype=np.uint64)
    signature = hashes[cells.place]
    bounds = np.searchsorted(cells.pane, np.arange(panes.start, panes.stop + 1)).tolist()
    scored, scored_bounds = _scored(cells, hashes, panes)
    vocabulary, capped, made = Vocabulary.of(config), 0, dict(signatures)
    most = min(vocabulary.max_values, MOST_KEEP_RATES) if vocabulary.keep_rates else vocabulary.max_values

    def dictionary(wanted: Iterable[int]) -> Mapping[int, tuple[str, ...]]:
        return {h: made[h] for h in wanted}

    def pack(one: ScoredCells, matured: MaturedCells | None) -> PaneBlobs:
        return PaneBlobs(one.pack(), None if matured is None else matured.pack())

    packing = []
    with ThreadPoolExecutor(_THREADS) as threads:
        for pane, rows, scored_rows in zip(panes, _slices(bounds), _slices(scored_bounds), strict=True):
            one = ScoredCells(scored.signature[scored_rows], scored.grid_bin[scored_rows], scored.n[scored_rows])
            if pane > last_final:
                packing.append(threads.submit(pack, one, None))
                continue
            matured = MaturedCells(
                cells.bucket[rows],
                signature[rows],
                cells.grid_bin[rows],
                cells.winners[rows] - cells.unlabelled[rows],
                cells.positives[rows],
                cells.unlabelled[rows],
            )
            if len(signatures) > most:
                result = vocabulary.cap(matured, dictionary)
                made |= result.signatures
                capped += result.winners
                matured = result.cells
            packing.append(threads.submit(pack, one, matured))
        return PackedPanes([pane.result() for pane in packing], made, capped)


def _scored(cells: CountedCells, hashes: NDArray[np.uint64], panes: range) -> tuple[ScoredCells, list[int]]:
    """Scored cells of all panes one after the other, and where those of each begin."""
    size = 1 << _BIN_BITS
    key = ((cells.pane - panes.start) * len(hashes) + cells.place) * size + cells.grid_bin
    order = np.argsort(key)
    key = key[order]
    start = np.flatnonzero(np.concatenate([np.ones(min(len(key), 1), bool), key[1:] != key[:-1]]))
    winners = cells.winners[order]
    n = np.add.reduceat(winners, start) if len(start) else winners
    first = order[start]
    bounds = np.searchsorted(cells.pane[first], np.arange(panes.start, panes.stop + 1)).tolist()
    return ScoredCells(hashes[cells.place[first]], cells.grid_bin[first], n), bounds


def _slices(bounds: list[int]) -> list[slice]:
    return [slice(low, high) for low, high in pairwise(bounds)]
