"""What `join.py` feeds to the monitor: hour after hour of scores as packed blocks, and of labels as JSON.

Each score has one label. One score in `EARLY_ONE_IN` comes to the log a quarter of an hour late, after its label; the
other labels come `LABEL_LAG_PANES` later. `REPEATED_SHARE` of all scores and of all labels come twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import TopicsSection
from stream_calib.events.blocks import BLOCK_ROWS, BlockRows, pack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import fingerprints, signature_hash, unit_buckets
from stream_calib.transport.port import Outgoing

MODEL = ModelKey("benchmark", "1")
HOUR_MS = 3_600_000
FIRST_PANE = 1_700_000_000_000 // HOUR_MS
HORIZON_PANES, LABEL_LAG_PANES = 24, 12
EARLY_ONE_IN, REPEATED_SHARE = 10, 0.02
PARTITIONS = 4
PARTS_AN_HOUR = 4
CARRIERS, ORIGINS = 16, 3
SCORE_LATENESS = "30m"
"""More than the early labels' scores are late."""


class Part(NamedTuple):
    """A quarter of an hour of the log."""

    records: list[Outgoing]
    scores: int
    """Rows in its blocks, repeats too."""
    labels: int

    @property
    def events(self) -> int:
        return self.scores + self.labels


class Traffic:
    """The same for every log, in the order in which it is asked for."""

    def __init__(self, scores_an_hour: int, topics: TopicsSection) -> None:
        self.scores_an_hour = scores_an_hour
        self._topics = topics
        self._random = np.random.default_rng(1)
        self._signatures: list[tuple[str, ...]] = [
            (f"C{i % CARRIERS:02d}", f"O{i // CARRIERS}") for i in range(CARRIERS * ORIGINS)
        ]
        self._hashes = np.array([signature_hash(s) for s in self._signatures], dtype=np.uint64)
        self._late: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """Numbers of scores that come with the next part."""

    def hour(self, pane: int, *, labels: bool) -> Iterator[Part]:
        """The parts of hour number `pane` from 0 on, in order."""
        for quarter in range(PARTS_AN_HOUR):
            yield self._part(pane * PARTS_AN_HOUR + quarter, labels=labels)

    def _numbers(self, part: int) -> NDArray[np.int64]:
        first, stop = (i * self.scores_an_hour // PARTS_AN_HOUR for i in (part, part + 1))
        return np.arange(first, stop, dtype=np.int64)

    def _times(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        times: NDArray[np.int64] = FIRST_PANE * HOUR_MS + numbers * HOUR_MS // self.scores_an_hour
        return times

    def _part(self, part: int, *, labels: bool) -> Part:
        numbers = self._numbers(part)
        early = _early(numbers)
        scored = _with_repeats(np.concatenate([self._late, numbers[~early]]), self._random)
        records = self._blocks(scored)
        self._late = numbers[early]
        if not labels:
            return Part(records, len(scored), 0)
        labelled = numbers - LABEL_LAG_PANES * self.scores_an_hour
        labelled = labelled[~_early(labelled)]
        when = self._times(labelled) + LABEL_LAG_PANES * HOUR_MS
        ids = np.concatenate([labelled, self._late])
        when = np.concatenate([when, self._times(self._late) + 1_000])
        order = np.argsort(when, kind="stable")
        chosen = _with_repeats(order, self._random)
        records += self._labels(ids[chosen], when[chosen])
        return Part(records, len(scored), len(chosen))

    def _blocks(self, numbers: NDArray[np.int64]) -> list[Outgoing]:
        ids = fingerprints(map(_event_id, numbers.tolist()))
        times = self._times(numbers)
        # What repeats a score is the same score.
        score = np.random.default_rng(2).beta(2, 5, 10_007)[numbers % 10_007]
        signature = (numbers % len(self._signatures)).astype(np.uint16)
        found = []
        # Each partition gets some, or its clock would hold the others up.
        size = min(BLOCK_ROWS, -(-len(numbers) // PARTITIONS))
        for place, start in enumerate(range(0, len(numbers), size)):
            rows = slice(start, start + size)
            block = BlockRows(
                MODEL,
                self._signatures,
                self._hashes,
                ["0" * 16],
                ids[rows],
                times[rows],
                score[rows],
                signature[rows],
                unit_buckets(ids[rows]),
                np.zeros(len(ids[rows]), dtype=np.uint8),
                np.rint(score[rows] * (2**32 - 1)).astype(np.uint32),
            )
            found.append(Outgoing(self._topics.blocks, None, pack(block), (), place % PARTITIONS))
        return found

    def _labels(self, numbers: NDArray[np.int64], times: NDArray[np.int64]) -> list[Outgoing]:
        label = self._random.integers(0, 2, len(numbers))
        return [
            Outgoing(
                self._topics.labels,
                None,
                b'{"event_id":"%b","label":%d,"ts":%d}' % (_event_id(number).encode(), value, when),
                (),
                place % PARTITIONS,
            )
            for place, (number, value, when) in enumerate(
                zip(numbers.tolist(), label.tolist(), times.tolist(), strict=True)
            )
        ]


def _early(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    early: NDArray[np.bool_] = numbers % EARLY_ONE_IN == 0
    return early


def _event_id(number: int) -> str:
    return f"event-{number:012d}"


def _with_repeats(values: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Some of them twice, right after each other."""
    repeated: NDArray[np.int64] = np.repeat(values, 1 + (random.random(len(values)) < REPEATED_SHARE))
    return repeated
