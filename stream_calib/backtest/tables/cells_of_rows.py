"""From the numbers that the query gives to the packed cells of each pane, pane by pane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.history import PaneBlobs
from stream_calib.backtest.tables.tally import Counted, run_starts
from stream_calib.calibration.grid import N_BINS
from stream_calib.config import Config
from stream_calib.events.identity import UNIT_BUCKETS
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.vocabulary import MOST_KEEP_RATES, CappedCells, Vocabulary

NONE, WITHDRAWN, NEGATIVE, POSITIVE, REPEATED = 0, 1, 2, 3, 4
"""What a winner's label is; REPEATED is added where its id is there several times."""
MATCHED = -1
"""A key that is none."""

_STATE_BITS = 3
_BIN_BITS = (N_BINS - 1).bit_length()
_BUCKET_BITS = (UNIT_BUCKETS - 1).bit_length()
_THREADS = 2
"""Of sorting and packing, which go on outside of the interpreter's lock."""
_LEVEL = 1
"""Of zlib, for a history that is used once: 40 % more bytes than in the state, in a quarter of the time."""


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

    def winners(self, counted: Counted) -> Counted:
        """Those that are winners."""
        first = int(np.searchsorted(counted.key, 0))
        return Counted(counted.key[first:], counted.n[first:])

    def matched(self, counted: Counted) -> int:
        """Labels that join a winner."""
        state = counted.key & ((1 << _STATE_BITS) - 1)
        once = (counted.key >= 0) & (state > NONE) & (state < REPEATED)
        return int(counted.n[once | (counted.key == MATCHED)].sum())

    def panes(self, key: NDArray[np.int64], panes: range) -> list[int]:
        """Where in the keys, ascending, each of the panes begins, and where the last ends."""
        width = _STATE_BITS + _BIN_BITS + self.signature_bits + _BUCKET_BITS
        firsts = (np.arange(panes.start, panes.stop + 1) - self.first_pane) << width
        return np.searchsorted(key, firsts).tolist()  # type: ignore[no-any-return]  # numpy's stubs say Any

    def cells(
        self, winners: Counted, hashes: NDArray[np.uint64], *, negative: bool
    ) -> tuple[ScoredCells, MaturedCells]:
        """Of winners of one pane. `hashes`: of signatures, by place; `negative`: winners without a label are
        negatives."""
        key, n = winners
        cell, state = key >> _STATE_BITS, key & (REPEATED - 1)
        start = run_starts(cell)
        cell = cell[start]
        unlabelled = _sums(np.where((state == WITHDRAWN) if negative else (state < NEGATIVE), n, 0), start)
        in_cell = _sums(n, start)
        place = (cell >> _BIN_BITS) & ((1 << self.signature_bits) - 1)
        matured = MaturedCells(
            ((cell >> (_BIN_BITS + self.signature_bits)) & ((1 << _BUCKET_BITS) - 1)).astype(np.uint8),
            hashes[place],
            (cell & ((1 << _BIN_BITS) - 1)).astype(np.uint16),
            in_cell - unlabelled,
            _sums(np.where(state == POSITIVE, n, 0), start),
            unlabelled,
        )
        without_bucket = cell & ((1 << (_BIN_BITS + self.signature_bits)) - 1)
        order = np.argsort(without_bucket)
        first = run_starts(without_bucket[order])
        one_each = order[first]
        scored = ScoredCells(matured.signature[one_each], matured.grid_bin[one_each], _sums(in_cell[order], first))
        return scored, matured


class PackedPanes(NamedTuple):
    panes: list[PaneBlobs]
    signatures: dict[int, tuple[str, ...]]
    """Those given, and those with values that are not counted apart."""
    capped: int
    """Winners of the latter."""


class _Packed(NamedTuple):
    blobs: PaneBlobs
    made: Mapping[int, tuple[str, ...]]
    capped: int


def packed_panes(
    winners: Counted,
    keys: CellKeys,
    panes: range,
    last_final: int,
    signatures: Mapping[int, tuple[str, ...]],
    config: Config,
) -> PackedPanes:
    """These panes, with matured cells up to `last_final`. `signatures`: by hash, in the order of their places."""
    hashes = np.array(list(signatures), dtype=np.uint64)
    negative = config.windows.missing_label == "negative_at_horizon"
    vocabulary, made, capped = Vocabulary.of(config), dict(signatures), 0
    most = min(vocabulary.max_values, MOST_KEEP_RATES) if vocabulary.keep_rates else vocabulary.max_values

    def dictionary(wanted: Iterable[int]) -> Mapping[int, tuple[str, ...]]:
        return {h: signatures[h] for h in wanted}

    def pack(of_pane: Counted, final: bool) -> _Packed:
        scored, matured = keys.cells(of_pane, hashes, negative=negative)
        if not final:
            return _Packed(PaneBlobs(scored.pack(_LEVEL), None), {}, 0)
        result = vocabulary.cap(matured, dictionary) if len(signatures) > most else CappedCells(matured)
        return _Packed(PaneBlobs(scored.pack(_LEVEL), result.cells.pack(_LEVEL)), result.signatures, result.winners)

    bounds = keys.panes(winners.key, panes)
    of_panes = (Counted(winners.key[low:high], winners.n[low:high]) for low, high in pairwise(bounds))
    with ThreadPoolExecutor(_THREADS) as threads:
        packed = list(threads.map(pack, of_panes, (pane <= last_final for pane in panes)))
    for pane in packed:
        made |= pane.made
        capped += pane.capped
    return PackedPanes([pane.blobs for pane in packed], made, capped)


def _sums(n: NDArray[np.int64], start: NDArray[np.intp]) -> NDArray[np.int64]:
    """Of each run."""
    return np.add.reduceat(n, start) if len(start) else n
