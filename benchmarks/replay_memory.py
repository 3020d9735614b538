"""How much memory a replay holds while more and more events go through it, in a process of its own.

    python -m benchmarks.replay_memory EVENTS SCORES_AN_HOUR

writes a line of JSON for each sample. The events are made on the way, and no ids are hashed: what is watched is the
join and the state. The packed cells that a history is are counted apart; they grow with panes, not with events.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.replay_traffic import CARRIERS, CONFIG, MODEL, ORIGINS, hours
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.feed import Feed, FeedBatch
from stream_calib.events.blocks import served_fixed_point
from stream_calib.events.identity import signature_hash, unit_buckets
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.input_batch import Records
from stream_calib.windows.join_entry import CODE_OF_LABEL
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.shard_store import LabelRows, Mark, ScoreRows
from stream_calib.windows.state_store import StateStore

SAMPLES = 40
_SCORES, _LABELS = "s:made:0", "l:made:0"
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MEGABYTE = 1e6


class Sample(NamedTuple):
    """At one moment."""

    events: int
    resident_megabytes: float
    cells_megabytes: float
    """Packed cells and records of panes, of the resident set."""

    @property
    def held_megabytes(self) -> float:
        """But for the history that is being made."""
        return self.resident_megabytes - self.cells_megabytes


def growth_percent(samples: list[Sample]) -> float:
    """Of what is held, over the second half: the most of the last quarter against the most of the quarter before."""
    quarter = len(samples) // 4
    most = [
        max(s.held_megabytes for s in part) for part in (samples[2 * quarter : 3 * quarter], samples[3 * quarter :])
    ]
    return 100 * (most[1] / most[0] - 1)


def watch(events: int, scores_an_hour: int, advance: Callable[[int], None]) -> list[Sample]:
    """Samples of a process that replays about so many events. Raises RuntimeError where it fails."""
    command = [sys.executable, "-m", "benchmarks.replay_memory", str(events), str(scores_an_hour)]
    root = Path(__file__).parents[1]
    samples: list[Sample] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            samples.append(Sample(*json.loads(line)))
            advance(samples[-1].events)
        said = process.stderr.read()
    if process.returncode:
        raise RuntimeError(f"the replay ended with {process.returncode}:\n{said[-2000:]}")
    return samples


class MadeFeed(Feed):
    """Traffic of so many hours, made while it is read."""

    def __init__(self, count: int, scores_an_hour: int) -> None:
        self._count, self._scores_an_hour = count, scores_an_hour
        values = [(f"C{g % CARRIERS:02d}", f"O{g // CARRIERS:02d}") for g in range(CARRIERS * ORIGINS)]
        self._hashes = np.array([signature_hash(v) for v in values], dtype=np.uint64)
        self._signatures = dict(zip(self._hashes.tolist(), values, strict=True))
        self._next = {_SCORES: 0, _LABELS: 0}

    @property
    def source(self) -> str:
        return "made"

    @property
    def starts(self) -> Mapping[str, Mark]:
        return {_SCORES: Mark(0, None), _LABELS: Mark(0, None)}

    @property
    def rejects(self) -> Mapping[str, int]:
        return {}

    def batches(self) -> Iterator[FeedBatch]:
        for number, hour in enumerate(hours(self._count, self._scores_an_hour)):
            fingerprint, n = _mixed(hour.number), len(hour.number)
            scores = ScoreRows(
                fingerprint,
                hour.time_ms,
                hour.score,
                self._hashes[hour.group],
                unit_buckets(fingerprint),
                np.zeros(n, np.uint16),
                served_fixed_point(hour.score),
                ("",),
            )
            codes = np.array([CODE_OF_LABEL[0], CODE_OF_LABEL[1]], dtype=np.uint8)
            labels = LabelRows(_mixed(hour.label_number), hour.label_time_ms, codes[hour.label])
            is_last = number == self._count - 1
            yield FeedBatch(_SCORES, self._records(_SCORES, scores, is_last=is_last), self._signatures)
            yield FeedBatch(_LABELS, self._records(_LABELS, labels, is_last=is_last), {})

    def _records(self, key: str, rows: ScoreRows | LabelRows, *, is_last: bool) -> Records:
        start, n = self._next[key], len(rows)
        end = self._next[key] = start + n
        ends = np.full(int(is_last), n - 1, dtype=np.intp)
        clocks = np.full(int(is_last), ENDED_CLOCK_MS, dtype=np.int64)
        return Records(start, end, np.arange(start, end), rows.event_time_ms, rows, np.arange(n), ends, clocks)

    def progress(self) -> tuple[int, int]:
        read = sum(self._next.values())
        return read, 2 * self._count * self._scores_an_hour

    def close(self) -> None:
        """Nothing is open."""


def _mixed(number: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One to one, spread like fingerprints."""
    mixed: NDArray[np.uint64] = number.astype(np.uint64) * _ODD
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _resident() -> int:
    """Bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class _Sampler:
    """Prints a sample each time another share of the events is done."""

    def __init__(self, state: StateStore, events: int) -> None:
        self._state, self._every, self._due = state, events // SAMPLES, events // SAMPLES

    def __call__(self, done: int, total: int) -> None:
        if done < self._due:
            return
        self._due = done + self._every
        sample = done, _resident() / _MEGABYTE, self._cell_bytes() / _MEGABYTE
        print(json.dumps(sample), flush=True)

    def _cell_bytes(self) -> int:
        found = self._state.read(("first_pane", "closed"))
        if found["first_pane"] is None or found["closed"] is None:
            return 0
        first, closed, total = int(found["first_pane"]), int(found["closed"]), 0
        for pane in range(first, closed + 1):
            total += sum(len(blob) for blob in self._state.blobs(list(PaneNames.of(pane))) if blob is not None)
        return total


def main(events: int, scores_an_hour: int) -> None:
    count = events // (2 * scores_an_hour)
    shards = ColumnShards(CONFIG.windows.shards, PaneSettings.of(CONFIG))
    with MadeFeed(count, scores_an_hour) as feed:
        replay = ExactReplay(feed, CONFIG, MODEL, shards)
        replay.run(_Sampler(replay.state, events))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
