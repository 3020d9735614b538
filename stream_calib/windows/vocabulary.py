"""The values of an attribute that a matured pane counts apart; the rarer ones become `__other__`.

Which ones depends on the rows of the pane alone, so every closer comes to the same cells. The most frequent values
stay: by winners, and of equally many by the value's text. Keep rates beyond sixteen are pooled likewise, but by
neighbours: the weight of a row is close to its own, and that of all rows together is kept.

What has become rare is not in the cells any more: `__other__` is in no group and has no offset. Rows that wait in the
shards, scored cells and the dictionary of signatures hold what the records held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import OTHER
from stream_calib.config import Config
from stream_calib.events.identity import signature_hash
from stream_calib.events.keep_rates import POOLED, rate_of, rate_text
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.served_sums import InverseRates
from stream_calib.windows.walk import MaturedPane

MOST_KEEP_RATES = 16
"""Distinct keep rates of a matured pane."""
KEEP_RATE = "keep_rate"
"""Stands for them where attributes are named."""
_MOST_CACHED = 200_000

Dictionary = Callable[[Iterable[int]], Mapping[int, Sequence[str]]]
"""Values of signature hashes, as `StateStore.signatures`."""


@dataclass(frozen=True, slots=True)
class CappedCells:
    """The cells of a pane with no more values than may be counted apart."""

    cells: MaturedCells
    signatures: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Those that the pane's rows did not have; they must be in the dictionary before the cells are committed."""
    winners: int = 0
    """Those that have a value less, or another rate."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`attributes`: names, in the order of a signature's values; `max_values`: of one attribute in a pane;
    `keep_rates`: whether the keep rate follows the attributes."""

    attributes: tuple[str, ...]
    max_values: int
    keep_rates: bool

    @classmethod
    def of(cls, config: Config) -> Vocabulary:
        """As configured."""
        scores = config.scores
        return cls(tuple(scores.attributes), scores.max_values, scores.keep_rate is not None)

    def inverse_rates(self, dictionary: Dictionary) -> InverseRates | None:
        """Of signatures as records gave them; None where they end with no keep rate."""
        if not self.keep_rates:
            return None

        def of(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
            found = dictionary(hashes.tolist())
            return np.array([1.0 / rate_of(found[h][-1]) for h in hashes.tolist()], dtype=np.float64)

        return of

    def cap(self, cells: MaturedCells, dictionary: Dictionary) -> CappedCells:
        """The cells, the very same where nothing is too many. Raises what `dictionary` raises."""
        distinct, place = np.unique(cells.signature, return_inverse=True)
        if len(distinct) <= min(self.max_values, MOST_KEEP_RATES if self.keep_rates else self.max_values):
            return CappedCells(cells)
        place = place.reshape(-1)
        winners = np.zeros(len(distinct), np.int64)
        np.add.at(winners, place, cells.labelled + cells.unlabelled)
        found = dictionary(distinct.tolist())
        before = [tuple(found[h]) for h in distinct.tolist()]
        columns = [
            _replaced(column, self._replacements(i, _by_value(column, winners)))
            for i, column in enumerate(zip(*before, strict=True))
        ]
        after = list(zip(*columns, strict=True)) if columns else before
        changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        if not changed:
            return CappedCells(cells)
        hashes, new = distinct.copy(), {}
        for i in changed:
            hashes[i] = signature_hash(after[i])
            new[int(hashes[i])] = after[i]
        renamed = MaturedCells(
            cells.unit_bucket, hashes[place], cells.grid_bin, cells.labelled, cells.positives, cells.unlabelled
        )
        return CappedCells(MaturedCells.merge([renamed]), new, int(winners[changed].sum()))

    def cap_pane(
        self, read: MaturedPane, dictionary: Dictionary, signatures: dict[int, tuple[str, ...]]
    ) -> MaturedPane:
        """The pane with capped cells, and the winners concerned among its counts as `capped`, where there are any. The
        signatures that this makes are added to those given."""
        capped = self.cap(read.cells, dictionary)
        if not capped.winners:
            return read
        signatures |= capped.signatures
        return replace(read, cells=capped.cells, counts=read.counts | {"capped": capped.winners})

    def _replacements(self, place: int, winners: Mapping[str, int]) -> Mapping[str, str]:
        """Value -> what stands for it, of those at this place of a signature that are not counted apart."""
        if place >= len(self.attributes):
            return _pooled_rates(winners) if len(winners) > MOST_KEEP_RATES else {}
        apart = [value for value in winners if value != OTHER]
        if len(apart) <= self.max_values:
            return {}
        apart.sort(key=lambda value: (-winners[value], value))
        return dict.fromkeys(apart[self.max_values :], OTHER)


class CappedWinners:
    """Counts, in matured cells, the winners whose value of an attribute is not counted apart."""

    def __init__(self, vocabulary: Vocabulary, dictionary: Dictionary) -> None:
        self._vocabulary, self._dictionary = vocabulary, dictionary
        self._names = (*vocabulary.attributes, KEEP_RATE)
        self._capped: dict[int, tuple[str, ...]] = {}
        """Signature -> attributes of which it has no value of its own."""

    def of(self, cells: MaturedCells) -> dict[str, int]:
        """Attribute (or `keep_rate`) -> winners, where there are any, in the order of the attributes."""
        distinct, place = np.unique(cells.signature, return_inverse=True)
        # An attribute that was capped has as many values as may be, and one more; pooled rates may be few.
        if not self._vocabulary.keep_rates and len(distinct) <= self._vocabulary.max_values:
            return {}
        if len(self._capped) > _MOST_CACHED:
            self._capped.clear()
        hashes = distinct.tolist()
        unknown = [h for h in hashes if h not in self._capped]
        if unknown:
            found = self._dictionary(unknown)
            self._capped.update((h, self._of_signature(found[h])) for h in unknown)
        winners = np.zeros(len(distinct), np.int64)
        np.add.at(winners, place.reshape(-1), cells.labelled + cells.unlabelled)
        counts = Counter[str]()
        for h, n in zip(hashes, winners.tolist(), strict=True):
            for name in self._capped[h]:
                counts[name] += n
        return {name: counts[name] for name in self._names if counts[name]}

    def _of_signature(self, values: Sequence[str]) -> tuple[str, ...]:
        attributes = len(self._vocabulary.attributes)
        return tuple(
            self._names[i]
            for i, value in enumerate(values)
            if (value == OTHER if i < attributes else value.startswith(POOLED))
        )


def _by_value(column: Sequence[str], winners: NDArray[np.int64]) -> dict[str, int]:
    counts = Counter[str]()
    for value, n in zip(column, winners.tolist(), strict=True):
        counts[value] += n
    return counts


def _replaced(column: Sequence[str], replacements: Mapping[str, str]) -> Sequence[str]:
    return [replacements.get(value, value) for value in column] if replacements else column


def _pooled_rates(winners: Mapping[str, int]) -> dict[str, str]:
    """Sixteen groups of neighbours, of about as many rates each. What stands for a group is the rate at which as many
    winners have the same weight together, to three digits, so that panes have few different ones."""
    ordered = sorted(winners, key=rate_of)
    groups: list[list[str]] = [[] for _ in range(MOST_KEEP_RATES)]
    for i, text in enumerate(ordered):
        groups[i * MOST_KEEP_RATES // len(ordered)].append(text)
    pooled: dict[str, str] = {}
    for group in groups:
        rows, weight = sum(winners[text] for text in group), sum(winners[text] / rate_of(text) for text in group)
        pooled |= dict.fromkeys(group, POOLED + rate_text(float(f"{rows / weight:.3g}")))
    return pooled
