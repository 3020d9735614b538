"""What a row counts for where events were thinned before the stream: 1 / the share of its kind that was kept.

Cells are counts of the rows that there are. Whatever makes figures of them multiplies by these weights first (Horvitz
and Thompson, "A generalization of sampling without replacement from a finite universe", 1952), so that figures speak of
the events as they were before the thinning. How many rows there were for it is still asked of the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import Signature
from stream_calib.calibration.rounding import round_significant
from stream_calib.config import Config
from stream_calib.events.keep_rates import rate_of

Rows: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowWeights:
    """Of one deployment. `positives`, `negatives`: weight of a row of the class, 1 / `labels.keep_rate_...`;
    `keep_rates`: whether the last value of a signature is the keep rate of its events."""

    positives: float = 1.0
    negatives: float = 1.0
    keep_rates: bool = False

    @classmethod
    def of(cls, config: Config) -> RowWeights:
        """As configured."""
        labels, scores = config.labels, config.scores
        return cls(1.0 / labels.keep_rate_positives, 1.0 / labels.keep_rate_negatives, scores.keep_rate is not None)

    def of_signatures(
        self, signatures: Sequence[Signature]
    ) -> tuple[list[Signature], NDArray[np.intp], NDArray[np.float64]]:
        """The distinct attribute values of s signatures, in order; (s,) the place of each among them; (s,) 1 / its
        keep rate."""
        if not self.keep_rates:
            return list(signatures), np.arange(len(signatures)), np.ones(len(signatures))
        places: dict[Signature, int] = {}
        place = np.array([places.setdefault(s[:-1], len(places)) for s in signatures], dtype=np.intp)
        return list(places), place, np.array([1.0 / rate_of(s[-1]) for s in signatures], dtype=np.float64)

    def of_kept(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """(k,) probability that a row is positive, given that it was kept, where it was `probability` (k,) before.

        Bayes: keeping shifts log-odds by the log of the ratio of the keep rates of positives and of negatives. A keep
        rate of the event itself does not depend on its label, and changes nothing.
        """
        if self.positives == self.negatives:
            return probability
        kept = probability / self.positives
        return np.asarray(kept / (kept + (1.0 - probability) / self.negatives))

    @property
    def of_score(self) -> Callable[[Signature], float] | None:
        """What a score of a signature counts for, by its keep rate alone: it has no label yet. None: all count 1."""
        return (lambda signature: 1.0 / rate_of(signature[-1])) if self.keep_rates else None

    def of_cells(self, inverse_rate: NDArray[np.float64]) -> CellWeights:
        """Of cells (k,) with these 1 / keep rate."""
        return CellWeights(self.positives * inverse_rate, self.negatives * inverse_rate)


@dataclass(frozen=True, slots=True, eq=False)
class CellWeights:
    """What a row of each cell counts for, by its label; columns (k,) float64, at least 1."""

    positive: NDArray[np.float64]
    negative: NDArray[np.float64]

    def weighted(self, labelled: Rows, positives: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weight of the labelled rows, and of the positives, of counts (k,)."""
        positive: NDArray[np.float64] = positives * self.positive
        # Of equal weights no difference is taken, which would cost the last bit of decayed counts.
        equal, together = self.positive == self.negative, labelled * self.negative
        if equal.all():
            return together, positive
        return np.where(equal, together, positive + (labelled - positives) * self.negative), positive

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> CellWeights:
        """Those of the chosen cells."""
        return CellWeights(self.positive[chosen], self.negative[chosen])

    @property
    def largest(self) -> float:
        """No row counts for more, whatever its label; 1 without cells."""
        return float(np.maximum(self.positive, self.negative).max(initial=1.0))

    def design_effect(self, labelled: NDArray[np.float64], positives: NDArray[np.float64]) -> float:
        """By how much weights overstate what counts (k,) say of an overall log-odds; 1 where all weights are 1.

        Its variance is sum w^2 / (sum w)^2 over the positives plus the same over the negatives, and rows that were not
        thinned, of the same weight together, would have 1 / sum w for each: the ratio of the two (Kish, "Survey
        sampling", 1965, by class). So counts / design effect are the rows that a fit may believe that it has.
        """
        if self.largest == 1.0:  # then all are 1
            return 1.0
        of_thinned = of_whole = 0.0
        for rows, weight in ((positives, self.positive), (labelled - positives, self.negative)):
            total = float((rows * weight).sum())
            if total > 0:
                of_thinned += float((rows * weight**2).sum()) / total**2
                of_whole += 1.0 / total
        return float(round_significant(of_thinned / of_whole)) if of_whole > 0 else 1.0
