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
        self._everything: list[int] = []
        self._place: dict[int, int] = {}
        """Of a signature in the next two."""
        self._groups: NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)
        """(s, m) groups of each signature, -1 for none."""
        self._weights: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._sums: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._values: dict[int, tuple[str, ...]] = {}

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
            self._forget_groups()

    def use(self, reference: PsiReference | None) -> None:
        """Sums by this reference from now on, over the panes already kept."""
        if reference is self._reference:
            return
        self._reference = reference
        self._group_of, self._everything = {}, []
        if reference is None:
            self._forget_groups()
            self._sums = np.zeros((0, 0), dtype=np.int64)
            return
        for index, group in enumerate(reference.groups):
            if group.attribute is not None and group.value is not None:
                position = self._attributes.index(group.attribute)
                self._group_of.setdefault(position, {})[group.value] = index
        self._everything = [i for i, g in enumerate(reference.groups) if g.attribute is None]
        self._forget_groups()
        self._sums = np.zeros(reference.rows.shape, dtype=np.int64)
        for _, signature, grid_bin, n in self._kept:
            self._add(signature, grid_bin, n, 1)

    def _add(
        self, signature: NDArray[np.uint64], grid_bin: NDArray[np.uint16], n: NDArray[np.int64], sign: int
    ) -> None:
        if self._reference is None or not len(n):
            return
        hashes = signature.tolist()
        missing = [h for h in dict.fromkeys(hashes) if h not in self._place]
        if missing:
            self._learn(missing)
        place = np.fromiter(map(self._place.__getitem__, hashes), dtype=np.intp, count=len(hashes))
        if self._weight_of is not None:
            n = n * self._weights[place]
        groups = self._groups[place]
        entry, column = np.nonzero(groups >= 0)
        group = groups[entry, column]
        cell = group * self._sums.shape[1] + self._reference.bin_of[group, grid_bin[entry]]
        np.add.at(self._sums.reshape(-1), cell, sign * n[entry])

    def _learn(self, hashes: Sequence[int]) -> None:
        unknown = [h for h in hashes if h not in self._values]
        if unknown:
            self._values.update((h, tuple(v)) for h, v in self._signatures(unknown).items())
        values = [self._values[h] for h in hashes]
        columns = [[group] * len(values) for group in self._everything]
        columns += [[of.get(v[i], -1) for v in values] for i, of in self._group_of.items()]
        new = np.array(columns, dtype=np.int64).reshape(len(columns), len(values)).T
        self._place.update(zip(hashes, range(len(self._place), len(self._place) + len(hashes)), strict=True))
        self._groups = np.concatenate([self._groups, new])
        if self._weight_of is not None:
            weights = [round(_WEIGHT_ONE * self._weight_of(v)) for v in values]
            self._weights = np.concatenate([self._weights, np.array(weights, dtype=np.int64)])

    def _forget_groups(self) -> None:
        self._place = {}
        self._groups = np.empty((0, len(self._everything) + len(self._group_of)), dtype=np.int64)
        self._weights = np.empty(0, dtype=np.int64)
