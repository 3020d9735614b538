"""Straight-line oracle: the score and label logs of one model key -> cells and outcome classes of every pane.

It keeps everything in memory, looks at the whole of both logs at once, and has no shards, batches, workers or restarts,
so nothing that the product has to get right can go wrong here in the same way. No label partition is ever left out of
the minimum, and label times are taken as they are (granularity 1 ms). Scores are those of `blocks`, where those that
are not sampled never come.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

EDGES = [round(-10 + i * 0.05, 2) for i in range(401)]
SIXTY_FOUR_ONES = 2**64 - 1


class Score(NamedTuple):
    event_id: str
    time_ms: int
    score: float
    attributes: tuple[str, ...] = ()
    unit: str | None = None
    """None: the event id."""
    append_ms: int | None = None
    """Time at which the log took the record; None: skew is not judged."""


class Label(NamedTuple):
    event_id: str
    time_ms: int | None
    """None: a tombstone, dated at its partition's clock."""
    label: int | None
    append_ms: int | None = None


class Clock(NamedTuple):
    time_ms: int


class End(NamedTuple):
    """The last record of its partition."""


class Settings(NamedTuple):
    horizon_ms: int
    pane_ms: int = 3_600_000
    score_lateness_ms: int = 300_000
    label_lateness_ms: int = 3_600_000
    max_clock_skew_ms: int | None = None
    broker_clock: bool = False
    """The times at which the log took labels move their partition's clock."""
    sample_rate: float = 1.0


CLASSES = (
    "scores_accepted",  # winners and duplicates
    "scores_duplicate",  # of the accepted
    "scores_late",
    "scores_skewed",
    "labels_matched",
    "labels_unmatched",
    "labels_late",
    "labels_skewed",
    "labels_unsampled",
)


@dataclass
class Pane:
    scored: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(signature, grid bin) -> winners."""
    matured: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)
    """(unit bucket, signature, grid bin) -> (labelled, positives, unlabelled)."""
    classes: Counter[str] = field(default_factory=Counter)
    """See CLASSES. Accepted events count in the pane of their own time, the others in that of the clock before them
    (that of their own clock, where they are their partition's first)."""


@dataclass
class Result:
    panes: dict[int, Pane]
    """Every pane that holds anything, also those after the last matured one."""
    first_pane: int
    last_closed: int
    last_matured: int
    totals: Counter[str]
    """The classes summed over all panes of `panes`, and "winners", "labelled", "positives", "unlabelled"."""
    signatures: dict[int, tuple[str, ...]]
    winners: dict[tuple[str, int], tuple[int, float, int | None]]
    """(event id, pane) -> (score time, raw score, label or None)."""
    accepted_labels: dict[tuple[int, int], tuple[str, int]] = field(compare=False)
    """(partition, index of the record in its list) -> (event id, label time)."""

    def pane(self, number: int) -> Pane:
        return self.panes.get(number, Pane())


def compute(
    score_logs: Sequence[Sequence[Score | Clock | End]],
    label_logs: Sequence[Sequence[Label | Clock | End]],
    settings: Settings,
) -> Result:
    """One list of records in offset order for each partition of `blocks` (or `scores`) and of `labels`."""
    pane_ms, horizon = settings.pane_ms, settings.horizon_ms
    panes: dict[int, Pane] = defaultdict(Pane)

    # Scores: each against its own partition's clock.
    accepted_scores: list[Score] = []
    first_clocks, score_clocks = [], []
    for log in score_logs:
        clock: float = -math.inf
        first: float | None = None
        for record in log:
            if clock == math.inf:
                raise ValueError(f"{record} comes after the end of its partition")
            if isinstance(record, End):
                clock = math.inf
                continue
            if isinstance(record, Score):
                if is_skewed(record.time_ms, record.append_ms, settings):
                    panes[pane_of_clock(clock, pane_ms)].classes["scores_skewed"] += 1
                    continue
                if record.time_ms < clock - settings.score_lateness_ms:
                    panes[pane_of_clock(clock, pane_ms)].classes["scores_late"] += 1
                    continue
                accepted_scores.append(record)
            clock = max(clock, record.time_ms)
            first = clock if first is None else first
        score_clocks.append(clock)
        if first is not None:
            first_clocks.append(first)

    # Labels likewise.
    accepted_labels: dict[tuple[int, int], tuple[str, int, int | None, float]] = {}
    label_clocks = []
    for partition, label_log in enumerate(label_logs):
        clock = -math.inf
        for index, entry in enumerate(label_log):
            place = (partition, index)
            if clock == math.inf:
                raise ValueError(f"{entry} comes after the end of its partition")
            if isinstance(entry, End):
                clock = math.inf
                continue
            if isinstance(entry, Label) and settings.broker_clock:
                if entry.append_ms is None:
                    raise ValueError(f"{entry} has no append time, which is its partition's clock")
                reach = matured_before(clock, settings)
                before, clock = clock, max(clock, entry.append_ms)
                label_ms = int(clock) if entry.time_ms is None else entry.time_ms
                if reach >= label_ms:
                    panes[pane_of_clock(before, pane_ms)].classes["labels_late"] += 1
                elif not is_sampled(entry.event_id, settings.sample_rate):
                    at = clock if before == -math.inf else before
                    panes[pane_of_clock(at, pane_ms)].classes["labels_unsampled"] += 1
                else:
                    accepted_labels[place] = (entry.event_id, label_ms, entry.label, reach)
            elif isinstance(entry, Label):
                if entry.time_ms is None:
                    if clock == -math.inf:
                        raise ValueError(f"{entry}: a tombstone before any record has no time")
                    if is_sampled(entry.event_id, settings.sample_rate):
                        accepted_labels[place] = (entry.event_id, int(clock), None, -math.inf)
                    else:
                        panes[pane_of_clock(clock, pane_ms)].classes["labels_unsampled"] += 1
                    continue
                if is_skewed(entry.time_ms, entry.append_ms, settings):
                    panes[pane_of_clock(clock, pane_ms)].classes["labels_skewed"] += 1
                    continue
                if entry.time_ms < clock - settings.label_lateness_ms:
                    panes[pane_of_clock(clock, pane_ms)].classes["labels_late"] += 1
                    continue
                before, clock = clock, max(clock, entry.time_ms)
                if is_sampled(entry.event_id, settings.sample_rate):
                    accepted_labels[place] = (entry.event_id, entry.time_ms, entry.label, -math.inf)
                else:
                    at = clock if before == -math.inf else before
                    panes[pane_of_clock(at, pane_ms)].classes["labels_unsampled"] += 1
            else:
                clock = max(clock, entry.time_ms)
        label_clocks.append(clock)

    # One prediction for each id and pane: the smallest (event time, raw score).
    winners: dict[tuple[str, int], Score] = {}
    for score in accepted_scores:
        key = (score.event_id, score.time_ms // pane_ms)
        panes[key[1]].classes["scores_accepted"] += 1
        if key not in winners:
            winners[key] = score
            continue
        panes[key[1]].classes["scores_duplicate"] += 1
        if _wins_over(score, winners[key]):
            winners[key] = score

    # Each label joins every winner of its id with score time < label time <= score time + horizon, where the winner's
    # pane had not matured by the clock of the label's partition.
    winner_keys_of: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for key in winners:
        winner_keys_of[key[0]].append(key)
    best: dict[tuple[str, int], tuple[int, int | None]] = {}
    for event_id, label_ms, label, reach in accepted_labels.values():
        matched = False
        for key in winner_keys_of[event_id]:
            if reach <= winners[key].time_ms < label_ms <= winners[key].time_ms + horizon:
                matched = True
                if key not in best or rank(label_ms, label) > rank(*best[key]):
                    best[key] = (label_ms, label)
        panes[label_ms // pane_ms].classes["labels_matched" if matched else "labels_unmatched"] += 1

    # Cells.
    signatures: dict[int, tuple[str, ...]] = {}
    hash_of: dict[tuple[str, ...], int] = {}
    outcome_of: dict[tuple[str, int], tuple[int, float, int | None]] = {}
    for key, score in winners.items():
        pane = panes[key[1]]
        if score.attributes not in hash_of:
            hash_of[score.attributes] = signature_hash(score.attributes)
            signatures[hash_of[score.attributes]] = score.attributes
        signature, grid_bin = hash_of[score.attributes], bin_of(score.score)
        bucket = unit_bucket(score.event_id if score.unit is None else score.unit)
        outcome = best[key][1] if key in best else None
        labelled, positives, unlabelled = pane.matured.get((bucket, signature, grid_bin), (0, 0, 0))
        pane.matured[bucket, signature, grid_bin] = (
            labelled + (outcome is not None),
            positives + (outcome == 1),
            unlabelled + (outcome is None),
        )
        pane.scored[signature, grid_bin] += 1
        outcome_of[key] = (score.time_ms, score.score, outcome)

    # How far panes close and mature.
    if not first_clocks:
        raise ValueError("no score partition holds a record: there are no panes")
    first_pane = int(min(first_clocks) - settings.score_lateness_ms) // pane_ms
    if all(clock == math.inf for clock in (*score_clocks, *label_clocks)):
        last_matured = max((key[1] for key in winners), default=first_pane - 1)
        last_closed = last_matured + horizon // pane_ms
    else:
        score_mark = min(score_clocks) - settings.score_lateness_ms
        mark = min(score_mark, min(label_clocks) - settings.label_lateness_ms)
        last_closed = last_full_pane(score_mark, pane_ms, first_pane)
        last_matured = last_full_pane(mark - horizon, pane_ms, first_pane)

    totals: Counter[str] = Counter(dict.fromkeys(CLASSES, 0))
    for pane in panes.values():
        totals.update(pane.classes)
    totals["winners"] = len(winners)
    totals["labelled"] = sum(label is not None for _, _, label in outcome_of.values())
    totals["positives"] = sum(label == 1 for _, _, label in outcome_of.values())
    totals["unlabelled"] = totals["winners"] - totals["labelled"]
    accepted = {place: (event_id, label_ms) for place, (event_id, label_ms, _, _) in accepted_labels.items()}
    return Result(dict(panes), first_pane, last_closed, last_matured, totals, signatures, outcome_of, accepted)


def _wins_over(score: Score, other: Score) -> bool:
    """Smallest (event time, raw score); among equal ones the smallest (signature hash, unit bucket)."""
    mine, theirs = (score.time_ms, score.score), (other.time_ms, other.score)
    if mine != theirs:
        return mine < theirs
    ranks = [
        (signature_hash(s.attributes), unit_bucket(s.event_id if s.unit is None else s.unit)) for s in (score, other)
    ]
    return ranks[0] < ranks[1]


def is_skewed(time_ms: int, append_ms: int | None, settings: Settings) -> bool:
    if settings.max_clock_skew_ms is None or append_ms is None:
        return False
    return time_ms > append_ms + settings.max_clock_skew_ms


def pane_of_clock(clock: float, pane_ms: int) -> int:
    if not math.isfinite(clock):
        raise ValueError("a record is skewed before its partition has a clock: it belongs to no pane")
    return int(clock) // pane_ms


def last_full_pane(mark: float, pane_ms: int, first_pane: int) -> int:
    """The last pane whose end is at or before the mark."""
    if mark == -math.inf:
        return first_pane - 1
    return max(int(mark) // pane_ms - 1, first_pane - 1)


def matured_before(clock: float, settings: Settings) -> float:
    """The end of the last pane that matures by a label partition's clock alone."""
    if clock == -math.inf:
        return -math.inf
    final = clock - settings.label_lateness_ms - settings.horizon_ms
    return final if final == math.inf else final // settings.pane_ms * settings.pane_ms


def is_sampled(event_id: str, rate: float) -> bool:
    """By a SplitMix64 finaliser of the id's fingerprint."""
    return rate == 1 or mixed(fingerprint(event_id) ^ 0xB492B66FBE98F273) < int(rate * 2**64)


def rank(label_ms: int, label: int | None) -> tuple[int, int]:
    """The greater wins: the newest; at equal times null before 0 before 1."""
    return (label_ms, {None: 2, 0: 1, 1: 0}[label])


def bin_of(score: float) -> int:
    """Grid v1: 0 and 401 for the scores 0.0 and 1.0, else 1 .. 400 by log-odds, the outer two open."""
    if score in (0.0, 1.0):
        return int(score) * 401
    log_odds = math.log(score) - math.log1p(-score)
    return min(max(bisect_right(EDGES, log_odds), 1), 400)


def signature_hash(values: Sequence[str]) -> int:
    text = b"".join(len(v.encode()).to_bytes(4, "little") + v.encode() for v in values)
    return int.from_bytes(blake2b(text, digest_size=8, key=b"stream-calib/signature/1").digest(), "little")


def fingerprint(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, key=b"stream-calib/id/1").digest(), "little")


def unit_bucket(unit: str) -> int:
    """One of 20, by a SplitMix64 finaliser of the unit's fingerprint."""
    return mixed(fingerprint(unit) ^ 0x9AE16A3B2F90404F) % 20


def mixed(z: int) -> int:
    """SplitMix64's finaliser."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & SIXTY_FOUR_ONES
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & SIXTY_FOUR_ONES
    return z ^ (z >> 31)


def read_score(value: bytes, attributes: Sequence[str]) -> Score:
    """A valid score event with the default field names; its attributes are texts at the top level."""
    event: Mapping[str, object] = json.loads(value)
    values = tuple(str(event[name]) if event.get(name) not in (None, "") else "__missing__" for name in attributes)
    return Score(str(event["event_id"]), int(str(event["ts"])), float(str(event["score"])), values)


def read_label(value: bytes) -> Label:
    """A valid label event with the default field names."""
    event: Mapping[str, object] = json.loads(value)
    label = event["label"]
    return Label(str(event["event_id"]), int(str(event["ts"])), None if label is None else int(str(label)))
