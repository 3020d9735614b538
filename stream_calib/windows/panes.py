"""Panes, lateness and horizon as arithmetic on event time; the settings that windows, shards and closer share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config

ENDED_CLOCK_MS = 4_200_000_000_000
"""Clock of a partition after its `end` record: beyond every accepted event time (2100) plus any horizon and
lateness."""


@dataclass(frozen=True, slots=True)
class PaneSettings:
    """All times in milliseconds. Panes are numbered from the epoch: pane p covers [p * pane_ms, (p + 1) * pane_ms)."""

    pane_ms: int
    horizon_ms: int
    score_lateness_ms: int
    label_lateness_ms: int
    max_clock_skew_ms: int | None
    keep_panes: int
    negative_at_horizon: bool = False
    """A prediction that no label ever named counts as negative when its pane matures."""
    label_time_granularity_ms: int = 1
    """What a label time stands for; it is the last millisecond of that."""
    broker_clock: bool = False
    """The clock of a label partition is the time at which the log took its records, not the times of its labels."""
    sample_rate: float = 1.0
    """Share of the event ids that take part."""

    @classmethod
    def of(cls, config: Config) -> PaneSettings:
        w = config.windows
        return cls(
            w.pane_ms,
            w.horizon_ms,
            w.score_lateness_ms,
            w.label_lateness_ms,
            w.max_clock_skew_ms,
            w.keep_panes,
            w.missing_label == "negative_at_horizon",
            config.labels.time_granularity_ms,
            config.labels.clock == "broker",
            config.scores.sample_rate,
        )

    @property
    def horizon_panes(self) -> int:
        """h of the design: panes that are certainly closed beyond a pane that matures."""
        return self.horizon_ms // self.pane_ms

    @property
    def back_panes(self) -> int:
        """Panes before a label's own pane that it can join."""
        return -(-self.horizon_ms // self.pane_ms)

    @property
    def rebuilt_panes(self) -> int:
        """Matured panes that a wiped shard begins with: those that are kept in the join, and those that labels of the
        oldest of them could join."""
        return self.keep_panes + self.back_panes

    def end_ms(self, pane: int) -> int:
        """First millisecond after the pane."""
        return (pane + 1) * self.pane_ms

    def granule_end_ms(self, time_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) the last millisecond of what each label time (n,) stands for."""
        return (time_ms // self.label_time_granularity_ms + 1) * self.label_time_granularity_ms - 1

    def lateness_ms(self, side: str) -> int:
        """Lateness of the side "s" (scores) or "l" (labels)."""
        return self.score_lateness_ms if side == "s" else self.label_lateness_ms

    def clock_skew_ms(self, side: str) -> int | None:
        """How far ahead of its record an event of the side may be (None: any); a label by the start of its granule."""
        if self.max_clock_skew_ms is None:
            return None
        return self.max_clock_skew_ms + (0 if side == "s" else self.label_time_granularity_ms - 1)

    def first_pane(self, first_clock_ms: int) -> int:
        """A generation's first pane, from the smallest first clock of the score partitions."""
        return (first_clock_ms - self.score_lateness_ms) // self.pane_ms
