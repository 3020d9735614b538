"""The port to what an exact replay reads: score rows and labels of input partitions, in the order of their logs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from stream_calib.backtest.history import Start
from stream_calib.windows.input_batch import Records
from stream_calib.windows.shard_store import Mark

F = TypeVar("F", bound="Feed")


class FeedBatch(NamedTuple):
    """Some records of one input, which follow those of the batch before."""

    input_key: str
    """`s:<topic id>:<partition>` or `l:<topic id>:<partition>`; for files the id is of the files."""
    records: Records
    signatures: Mapping[int, tuple[str, ...]]
    """Of the score rows: signature hash -> attribute values."""


class Feed(ABC):
    """Something to replay, once. Nothing is written, committed or joined where it comes from. Use as a context
    manager."""

    @property
    @abstractmethod
    def source(self) -> str:
        """Where it comes from, in words for people."""

    @property
    def start(self) -> Start:
        """`exact` where it is all that a live model key has read, from its first record on."""
        return "cold"

    @property
    @abstractmethod
    def starts(self) -> Mapping[str, Mark]:
        """The first mark of every input, at least one of scores and one of labels."""

    @property
    @abstractmethod
    def rejects(self) -> Mapping[str, int]:
        """Reason -> records that could not be read, so far."""

    @property
    def at_end(self) -> frozenset[str]:
        """Inputs of which every batch was given."""
        return frozenset()

    @abstractmethod
    def batches(self) -> Iterator[FeedBatch]:
        """All batches; an input that is further ahead of the slowest than `windows.max_input_skew` waits.

        At its end every input has ended: the last batch of each sets its clock to ENDED_CLOCK_MS where the source is
        whole (files), and does not where more may come (a range of a topic). Raises HistoryError where something cannot
        be read.
        """

    @abstractmethod
    def progress(self) -> tuple[int, int]:
        """Records read, and records in all as far as is known."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of files and connections."""

    def __enter__(self: F) -> F:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
