"""From the numbers that the query gives to the packed cells of each pane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.history import PaneBlobs
from stream_calib.backtest.warehouse_sql import NEGATIVE, NONE, POSITIVE, REPEATED, STATES
from stream_calib.calibration.grid import N_BINS
from stream_calib.config import Config
from stream_calib.events.identity import UNIT_BUCKETS
from stream_calib.windows.cells import EMPTY_MATURED, EMPTY_SCORED, MaturedCells, ScoredCells
from stream_calib.windows.vocabulary import Vocabulary

_THREADS = 2
"""Of packing, which compresses and so runs beside the rest."""


class PackedPanes(NamedTuple):
    panes: list[PaneBlobs]
    signatures: dict[int, tuple[str, ...]]
    """Those given, and those with values that are not counted apart."""
    capped: int
    """Winners of the latter."""


def packed_panes(
    key: NDArray[np.int64],
    n: NDArray[np.int64],
    first_pane: int,
    last_pane: int,
    last_final: int,
    hashes: NDArray[np.uint64],
    signatures: Mapping[int, tuple[str, ...]],
    config: Config,
) -> PackedPanes:
    """All panes from the first to the last one; those up to `last_final` with matured cells.

    `key`, `n` (k,): see warehouse_sql; `hashes` (s,) ascending: of the signatures that keys count.
    """
    cells, counts = _cells(key, n, negative=config.windows.missing_label == "negative_at_horizon")
    grid_bin = (cells % N_BINS).astype(np.uint16)
    rest = cells // N_BINS
    signature = hashes[rest % max(len(hashes), 1)]
    rest //= max(len(hashes), 1)
    bucket = (rest % UNIT_BUCKETS).astype(np.uint8)
    pane = rest // UNIT_BUCKETS + first_pane
    bounds = np.searchsorted(pane, np.arange(first_pane, last_pane + 2)).tolist()
    vocabulary, capped, made = Vocabulary.of(config), 0, dict(signatures)

    def dictionary(wanted: Iterable[int]) -> Mapping[int, tuple[str, ...]]:
        return {h: made[h] for h in wanted}

    def pack(matured: MaturedCells | None, scored: ScoredCells) -> PaneBlobs:
        return PaneBlobs(scored.pack(), None if matured is None else matured.pack())

    panes = []
    with ThreadPoolExecutor(_THREADS) as threads:
        for number, (low, high) in enumerate(pairwise(bounds), first_pane):
            rows = slice(low, high)
            scored, matured = EMPTY_SCORED, EMPTY_MATURED
            if high > low:
                labelled, positives, unlabelled = (column[rows] for column in counts)
                one = ScoredCells(signature[rows], grid_bin[rows], labelled + unlabelled)
                scored = ScoredCells.merge([one])
                matured = MaturedCells(bucket[rows], signature[rows], grid_bin[rows], labelled, positives, unlabelled)
            if number > last_final:
                panes.append(threads.submit(pack, None, scored))
                continue
            result = vocabulary.cap(matured, dictionary)
            made |= result.signatures
            capped += result.winners
            panes.append(threads.submit(pack, result.cells, scored))
        return PackedPanes([pane.result() for pane in panes], made, capped)


def _cells(
    key: NDArray[np.int64], n: NDArray[np.int64], *, negative: bool
) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...]]:
    """The distinct cells in order, and their labelled, positives, unlabelled."""
    order = np.argsort(key)
    key, n = key[order], n[order]
    cell, state = key // STATES, key % STATES % REPEATED
    start = np.flatnonzero(np.concatenate([np.ones(min(len(cell), 1), bool), cell[1:] != cell[:-1]]))
    is_labelled = (state >= NEGATIVE) | (negative & (state == NONE))
    columns = (n * is_labelled, n * (state == POSITIVE), n * ~is_labelled)
    if not len(start):
        return cell, columns
    return cell[start], tuple(np.add.reduceat(column, start) for column in columns)
