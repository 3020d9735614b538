"""The sliding window of closed panes, summed by watched group and bin as panes come and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.psi import PsiLook, PsiReference, look

_MOST_CACHED = 200_000
"""Signatures whose values and groups are kept in memory; beyond this they are asked for again."""

_WEIGHT_ONE = 1 << 10
"""Fixed point of weight 1: whole numbers come out the same whatever panes came and went. The weights of 10^9 scores at
the least keep rate stay below 2^60."""

Signatures = Callable[[Iterable[int]], Mapping[int, Sequence[str]]]
"""Attribute values of signature hashes, in the order of `attributes`."""


class PsiWindow:
    """Counts of the last `panes` closed panes. The sums are exact integers, however the window got there."""

    def __init__(
        self,
        panes: int,
        attributes: Sequence[str],
        signatures: Signatures,
        weight_of: Callable[[tuple[str, ...]], float] | None = None,
    ) -> None:
        """`weight_of`: what a score of a signature counts for, at least 1; None: 1 always."""
        self.panes = panes
        self.looked: Callable[[PsiReference, NDArray[np.int64], float, float], PsiLook] = look
        """How its counts are looked at."""
        self._weight_of = weight_of
        self._attributes = tuple(attributes)
        self._signatures = signatures
        self._kept: deque[tuple[int, NDArray[np.uint64], NDArray[np.uint16], NDArray[np.int64]]] = deque()
        self._reference: PsiReference | None = None
        self._group_of: dict[int, dict[str, int]] = {}
        self._groups: dict[int, NDArray[np.int64]] = {}
        self._sums: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._values: dict[int, tuple[str, ...]] = {}
        self._weights: dict[int, int] = {}

    @property
    def newest(self) -> int | None:
        """Last pane pushed."""
        return self._kept[-1][0] if self._kept else None

    @property
    def oldest(self) -> int | None:
        """The first pane that is kept."""
        return self._kept[0][0] if self._kept else None

    @property
    def newest_rows(self) -> int:
        """Rows of the last pane pushed."""
        return int(self._kept[-1][3].sum()) if self._kept else 0

    @property
    def counts(self) -> NDArray[np.int64] | None:
        """(G, B) sums by the reference's groups and bins, to the next whole number where rows have weights; None
        without a reference. A copy."""
        if self._reference is None:
            return None
        return self._sums.copy() if self._weight_of is None else (self._sums + _WEIGHT_ONE // 2) // _WEIGHT_ONE

    def clear(self) -> None:
        """Forgets all panes."""
        self._kept.clear()
        self._sums[:] = 0

    def push(
        self, pane: int, signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16], n: NDArray[np.int64]
    ) -> None:
        """Adds the scored cells (k,) of the next pane and drops those older than the window.

        Raises ValueError where `pane` does not follow the last one.
        """
        if self.newest is not None and pane != self.newest + 1:
            raise ValueError(f"PSI window: pane {pane} pushed after pane {self.newest}; panes must follow each other")
        self._kept.append((pane, signature, grid_bin, n))
        self._add(signature, grid_bin, n, 1)
        if len(self._kept) > self.panes:
            _, old_signature, old_bin, old_n = self._kept.popleft()
            self._add(old_signature, old_bin, old_n, -1)
        if len(self._values) > _MOST_CACHED:
            self._values.clear()
            self._groups.clear()
            self._weights.clear()

    def use(self, reference: PsiReference | None) -> None:
        """Sums by this reference from now on, over the panes already kept."""
        if reference is self._reference:
            return
        self._reference = reference
        self._groups = {}
        self._group_of = {}
        if reference is None:
            self._sums = np.zeros((0, 0), dtype=np.int64)
            return
        for index, group in enumerate(reference.groups):
            if group.attribute is not None and group.value is not None:
                position = self._attributes.index(group.attribute)
                self._group_of.setdefault(position, {})[group.value] = index
        self._everything = [i for i, g in enumerate(reference.groups) if g.attribute is None]
        self._sums = np.zeros(reference.rows.shape, dtype=np.int64)
        for _, signature, grid_bin, n in self._kept:
            self._add(signature, grid_bin, n, 1)

    def _add(
        self, signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16], n: NDArray[np.int64], sign: int
    ) -> None:
        if self._reference is None or not len(n):
            return
        hashes = signature.tolist()
        missing = [h for h in dict.fromkeys(hashes) if h not in self._groups]
        if missing:
            self._learn(missing)
        if self._weight_of is not None:
            n = n * np.fromiter((self._weights[h] for h in hashes), dtype=np.int64, count=len(hashes))
        members = [self._groups[h] for h in hashes]
        lengths = np.fromiter((len(m) for m in members), dtype=np.int64, count=len(members))
        group = np.concatenate(members)
        bins = self._reference.bin_of[group, np.repeat(grid_bin.astype(np.int64), lengths)]
        np.add.at(self._sums, (group, bins), sign * np.repeat(n, lengths))

    def _learn(self, hashes: Sequence[int]) -> None:
        unknown = [h for h in hashes if h not in self._values]
        if unknown:
            self._values.update((h, tuple(v)) for h, v in self._signatures(unknown).items())
        for h in hashes:
            values = self._values[h]
            found = [self._group_of[i][values[i]] for i in self._group_of if values[i] in self._group_of[i]]
            self._groups[h] = np.array(self._everything + found, dtype=np.int64)
            if self._weight_of is not None:
                self._weights[h] = round(_WEIGHT_ONE * self._weight_of(values))
