"""The join of one shard in memory: the rows of its panes, and which label each of them takes. MemoryShards keeps the
rest: positions, clocks, what is counted and removed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.shard_store import LabelRows, ScoreRows


class ShardJoin(ABC):
    """What is added is of panes that have not been removed."""

    @abstractmethod
    def add_scores(self, rows: ScoreRows) -> None:
        """Holds the rows; held labels may find a prediction by them."""

    @abstractmethod
    def add_labels(self, rows: LabelRows) -> None:
        """Holds the labels, each until no score can come any more that it would join."""

    @abstractmethod
    def counts(self) -> Mapping[int, Counter[str]]:
        """Pane of the labels -> `matched` or one of UNMATCHED_KINDS -> how many; nothing of other panes."""

    @abstractmethod
    def rows(self, pane: int) -> ScoreRows:
        """All rows of the pane, duplicates too, in any order; `snapshots` begins with ""."""

    @abstractmethod
    def best(self, fingerprint: NDArray[np.uint64], event_time_ms: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(k,) the code of the label that each of k predictions takes, 0 for none."""

    @abstractmethod
    def remove(self, pane: int, low_ms: int) -> None:
        """Drops the pane, and labels that no score can join any more. Earlier panes were removed before.

        `low_ms`: no score before that will be accepted any more; -1 where that is not known.
        """
