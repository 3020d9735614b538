"""The port to the join: S shards, each a pure function of the input prefix that it has applied and of the panes
removed.

An input partition is named by its *input key*: ``s:<topic id>:<partition>`` for blocks (scores), ``l:<topic
id>:<partition>``
for labels. Each shard keeps for every input key its next position and the partition's clock at that position.

Nothing here fences workers or closers from each other: an `apply` whose positions do not fit changes nothing, reads
only read, and removing is repeatable. See ../../docs/architecture.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.panes import PaneSettings

WITHDRAWN_CODE, NEGATIVE_CODE, POSITIVE_CODE = 1, 2, 3
"""Labels as stored. At equal label times the smaller code wins; 0 stands for no label."""


UNMATCHED_KINDS = ("label_leaked", "label_beyond_horizon")
"""Of the labels that join no winner, as far as is known: a score of the id is not before the label; all are too far
before it."""

COUNTER_KINDS = (
    "accepted",
    "labels",
    "matched",
    *UNMATCHED_KINDS,
    "score_late",
    "score_skewed",
    "label_late",
    "label_skewed",
    "label_unsampled",
    "label_after_mature",
)
"""Counted by shard and pane: scores and labels that take part, labels that join a winner, and what does not take part.
"""

LABEL_CLASSES = ("labels", "label_late", "label_skewed", "label_unsampled")
"""What may still come for a pane that matured without waiting for an idle label input."""


class Mark(NamedTuple):
    """How far a shard has applied one input."""

    next: int
    """Position of the next record to apply."""
    clock_ms: int | None
    """The partition's clock over the records before `next`; None before the first event: counts as minus infinity."""
    first_clock_ms: int | None = None
    """The first value of that clock; for an input that was added later, the one that it started with."""

    def entered_pane(self, pane_ms: int, origin: int | None) -> int | None:
        """The pane that the clock of a first mark has reached already, where that is one to be kept (after `origin`):
        a shard that is rebuilt for it must start at this mark, not where the clock first moved on."""
        if self.clock_ms is None:
            return None
        pane = self.clock_ms // pane_ms
        return pane if origin is None or pane > origin else None


class Advance(NamedTuple):
    """Half-open range of positions that a call covers on one input, and the clock at its end."""

    start: int
    end: int
    clock_ms: int | None
    first_clock_ms: int | None = None
    """Set where the range holds the input's first event."""


class Progress(NamedTuple):
    """What a shard says of itself, at one moment."""

    marks: dict[str, Mark]
    """Of every input that it knows; {} for a wiped shard."""
    removed: int | None
    """The last pane dropped for good."""
    last_pane: int | None
    """The last pane with an accepted score."""
    inputs: tuple[int, int] = (0, 0)
    """How many score and label inputs are registered, or about to be: calls that know fewer are refused."""


class Entry(NamedTuple):
    """Where a partition's clock first reached a pane: a reader that starts there misses nothing of it or later ones."""

    pane: int
    position: int
    clock_ms: int | None
    """The clock before that record."""


@dataclass(frozen=True, slots=True)
class ScoreRows:
    """n accepted scores, columns of shape (n,)."""

    fingerprint: NDArray[np.uint64]
    event_time_ms: NDArray[np.int64]
    score: NDArray[np.float64]
    signature: NDArray[np.uint64]
    """Content hash of the attribute values."""
    unit_bucket: NDArray[np.uint8]
    snapshot_index: NDArray[np.uint16]
    """Index into `snapshots`; at most 255 in what one call brings."""
    served: NDArray[np.uint32]
    """Served probability x (2^32 - 1), rounded."""
    snapshots: tuple[str, ...]
    """Versions served; "" where none was."""

    def take(self, index: NDArray[np.intp]) -> ScoreRows:
        """The rows at the indexes (or of a boolean mask)."""
        return ScoreRows(
            self.fingerprint[index],
            self.event_time_ms[index],
            self.score[index],
            self.signature[index],
            self.unit_bucket[index],
            self.snapshot_index[index],
            self.served[index],
            self.snapshots,
        )

    def __len__(self) -> int:
        return len(self.fingerprint)


@dataclass(frozen=True, slots=True)
class LabelRows:
    """m accepted labels, columns of shape (m,)."""

    fingerprint: NDArray[np.uint64]
    event_time_ms: NDArray[np.int64]
    code: NDArray[np.uint8]
    """WITHDRAWN_CODE, NEGATIVE_CODE or POSITIVE_CODE."""
    from_ms: NDArray[np.int64] | None = None
    """Scores before that are out of reach, 0: all within the horizon are in reach. None: 0 for all."""

    def take(self, index: NDArray[np.intp]) -> LabelRows:
        from_ms = None if self.from_ms is None else self.from_ms[index]
        return LabelRows(self.fingerprint[index], self.event_time_ms[index], self.code[index], from_ms)

    def __len__(self) -> int:
        return len(self.fingerprint)


class Drop(NamedTuple):
    """Records that count but do not take part, in the pane of their partition's clock."""

    kind: str
    """"score_late", "score_skewed", "label_late", "label_skewed" or "label_unsampled"."""
    pane: int
    n: int


@dataclass(frozen=True, slots=True)
class ShardCall:
    """What one call applies to one shard, as one: all inputs' ranges with everything that they hold for this shard."""

    shard: int
    advances: Mapping[str, Advance]
    scores: ScoreRows
    labels: LabelRows
    drops: Sequence[Drop] = ()
    entries: Mapping[str, Sequence[Entry]] = field(default_factory=dict)


class ShardNotAt(NamedTuple):
    """The answer to a call whose starts do not fit, or that knows too few inputs: nothing was applied."""

    marks: Mapping[str, Mark]
    """Where the shard is, for each input of the call."""


class Inputs(NamedTuple):
    """All registered inputs: the watermarks are minima over exactly these."""

    scores: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadGuard:
    """What a shard itself checks before it answers a read of a pane."""

    inputs: Inputs
    matured: bool
    """False: the score watermark has reached the pane's end. True: both watermarks have reached its end + horizon."""
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Idle label inputs left out of the minimum -> the end position that the shard must have applied."""


class PaneRows(NamedTuple):
    rows: ScoreRows
    """All accepted rows of the pane, duplicates too, in any order."""
    cut: dict[str, int]
    """Next position of each excluded input."""


class PaneCounters(NamedTuple):
    counts: dict[str, int]
    """By COUNTER_KINDS; absent means 0."""
    entries: dict[str, Entry]
    """Input key -> where its clock first reached the pane (or where it is now, if it has not)."""
    cut: dict[str, int]


class ShardStore(ABC):
    """The S shards of one model key. Raises StateUnavailableError when the store is away."""

    operations_a_call = 200
    """Rows and labels that one call brings to a shard at most, where they are not all of one record: a script call then
    takes a millisecond or two, and well below ten while a server that has just forked copies each page that it
    touches."""

    def __init__(self, count: int, settings: PaneSettings) -> None:
        self.count = count
        self.settings = settings

    @abstractmethod
    def register(self, marks: Mapping[str, Mark], inputs: Inputs | None = None) -> None:
        """Gives every shard a first mark for the inputs that it does not know; known ones stay as they are.

        `inputs`: all registered inputs. From then on a shard refuses calls, and answers reads with "not yet", that are
        made with fewer. Without `marks` that is all that happens, and not on a shard that knows nothing (was wiped).
        """

    @abstractmethod
    def restart_wiped(self, shard: int, marks: Mapping[str, Mark], origin: int, inputs: Inputs | None = None) -> None:
        """A shard that knows no input starts at `marks`; panes up to `origin` are ignored and answered as gone."""

    @abstractmethod
    def progress(self) -> list[Progress]:
        """Of each shard, in one round trip."""

    @abstractmethod
    def attach(self) -> None:
        """To be called before the first record is read, and again after `apply` has raised StateUnavailableError.

        `apply` is refused with that error once the server has been restarted: the log may be kept there too, and then
        what was read before may have been lost with it, and be other records now.
        """

    @abstractmethod
    def apply(self, calls: Sequence[ShardCall], inputs: Inputs) -> list[ShardNotAt | None]:
        """Applies each call to its shard as one step, in few round trips; None where it was applied."""

    @abstractmethod
    def read_rows(self, shard: int, pane: int, guard: ReadGuard) -> PaneRows | None:
        """The pane's rows. None: not yet. Raises PaneGoneError when the shard has dropped the pane."""

    @abstractmethod
    def read_labels(
        self, shard: int, pane: int, guard: ReadGuard, fingerprint: NDArray[np.uint64], event_time_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], dict[str, int]] | None:
        """Best label code (k,) uint8 of the winners (sorted by fingerprint; score times given), 0 for none; and the
        cut."""

    @abstractmethod
    def read_counters(self, shard: int, pane: int, guard: ReadGuard) -> PaneCounters | None:
        """The pane's counters. None and PaneGoneError as in `read_rows`."""

    @abstractmethod
    def counts_after(self, pane: int) -> dict[str, int]:
        """Counters as in `PaneCounters`, summed over all shards and later panes: what no pane record has yet."""

    @abstractmethod
    def counts_before(self, pane: int) -> dict[str, int]:
        """The same over earlier panes. Before a generation's first pane: labels of what was scored before it, which are
        of no pane that will ever mature."""

    @abstractmethod
    def remove(self, shard: int, pane: int, guard: ReadGuard, recorded: Mapping[str, int] | None = None) -> bool:
        """Drops the pane. True when it is gone; False when the shard's clocks forbid it now, or an earlier pane is
        still there (it was rolled back). Repeatable after a crash in the middle.

        `recorded`: where the pane matured with a cut, the LABEL_CLASSES that its record has of this shard. What has
        come since is counted in a pane that cannot have matured yet; its `labels` are `label_after_mature` there, and
        so are those that come for the pane after it was dropped.
        """
