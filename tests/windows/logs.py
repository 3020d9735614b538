"""Random input logs in the manner of a live deployment: duplicates, late and skewed events, slow and silent partitions,
labels of ids that were never scored, clock and end records. Nothing here knows the protocol.

Times below are in seconds after an arbitrary start; the moment at which a record becomes readable is also the time at
which the log took it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_calib.windows.panes import PaneSettings
from tests.oracle.offline import Clock, End, Label, Score
from tests.windows.records import Block, Item

START_MS = 1_700_000_000_000
PANE, HORIZON, LATE, LABEL_LATE, CLOCK_SKEW = 10, 15, 3, 4, 5
FAR = 60
SNAPSHOTS = ("", "v1", "v2")


class Written(NamedTuple):
    """An item and when it can be read (seconds)."""

    item: Item
    at: int


@dataclass(frozen=True)
class Logs:
    inputs: dict[str, list[Written]]
    """Input key -> its records in order."""
    settings: PaneSettings
    last_pane: int | None
    """The last pane that matures; None where every partition ends."""
    end: int
    """When everything can be read."""
    added: dict[str, int] = field(default_factory=dict)
    """Inputs that are not there from the start -> when they are (seconds)."""

    def items(self, side: str) -> list[list[Item]]:
        return [[w.item for w in log] for key, log in sorted(self.inputs.items()) if key.startswith(side)]


def ms(seconds: int) -> int:
    return START_MS + 1_000 * seconds


def settings_with(skew: bool = False, *, broker_clock: bool = False, sample_rate: float = 1.0) -> PaneSettings:
    """Half a pane of horizon beyond a whole one, so that the rounding of horizon to panes matters."""
    return PaneSettings(
        1_000 * PANE,
        1_000 * HORIZON,
        1_000 * LATE,
        1_000 * LABEL_LATE,
        1_000 * CLOCK_SKEW if skew else None,
        keep_panes=2,
        broker_clock=broker_clock,
        sample_rate=sample_rate,
    )


def generate(
    seed: int,
    *,
    silent_for_good: bool = False,
    wakes: bool = False,
    grows: bool = False,
    broker_clock: bool = False,
    sample_rate: float = 1.0,
) -> Logs:
    """`silent_for_good`: some label partitions say nothing any more at some point, also no end. `wakes`: all but one
    say nothing for so long that panes mature without them. `grows`: some partitions are added on the way.
    `broker_clock`: labels come in any order, and some before their time."""
    r = random.Random(seed)
    delays = (-12, -2, 0, 1, 4, 9, 20, 35) if broker_clock else (0, 0, 1, 2, 4, 7)
    n_scores, n_labels, length = r.choice([1, 2, 3]), r.choice([1, 2, 3]), r.choice([40, 60, 90])
    skew = r.random() < 0.5
    ends = not silent_for_good and r.random() < 0.6
    end = length + FAR + 80

    made: list[Score] = []
    inputs: dict[str, list[Written]] = {}
    stop = (r.randrange(5, length), r.choice([10, 30, 50])) if r.random() < 0.5 else None
    added = {
        f"{side}:t:{p}": r.randrange(2, length)
        for side, count in (("s", n_scores), ("l", n_labels))
        for p in range(1, count)
        if grows and r.random() < 0.7
    }
    for p in range(n_scores):
        delay, rate = r.choice([0, 0, 2, 8, 25]), r.choice([0.1, 0.5, 0.9])
        inputs[f"s:t:{p}"] = _score_log(r, made, length, delay, rate, stop)

    dead = {p: r.randrange(5, length) for p in range(1, n_labels) if silent_for_good and r.random() < 0.6}
    for p in range(n_labels):
        inputs[f"l:t:{p}"] = []
    silent = {p: (r.randrange(5, length), r.choice([15, 40, 70])) for p in range(n_labels) if r.random() < 0.5}
    if wakes:
        silent = {p: (r.randrange(3, 12), 110) for p in range(1, n_labels)}
    for label in _labels(r, made, length):
        number = int(label.event_id.split("-")[1])
        p = number % n_labels if r.random() < 0.7 else r.randrange(n_labels)
        dated = length if label.time_ms is None else (label.time_ms - START_MS) // 1_000
        at = max(1, dated + r.choice(delays))
        if p in silent and silent[p][0] <= at < sum(silent[p]):
            at = sum(silent[p])
        if at <= dead.get(p, at):
            if label.time_ms is not None and r.random() < 0.01:
                label = label._replace(time_ms=ms(at + CLOCK_SKEW + 9))
            inputs[f"l:t:{p}"].append(Written(label._replace(append_ms=ms(at)), at))

    for key, log in inputs.items():
        log.sort(key=lambda written: written.at)
        log[:] = [written for written in log if written.at >= added.get(key, 0)]
        while key in added and log and not _sets_clock(log[0].item):
            log.pop(0)
        if key not in added and (not log or not _sets_clock(log[0].item)):
            log.insert(0, Written(Clock(START_MS), 0))
        if ends:
            log.append(Written(End(), end))
        elif key.startswith("s") or int(key.split(":")[2]) not in dead:
            log.append(Written(Clock(ms(length + FAR)), end))
    last = (ms(length + FAR) - 1_000 * (max(LATE, LABEL_LATE) + HORIZON)) // (1_000 * PANE) - 1
    settings = settings_with(skew, broker_clock=broker_clock, sample_rate=sample_rate)
    return Logs(inputs, settings, None if ends else last, end, added)


def _score_log(
    r: random.Random, made: list[Score], length: int, delay: int, rate: float, stop: tuple[int, int] | None
) -> list[Written]:
    log: list[Written] = []
    last = 0
    for w in range(1, length + 1):
        at = sum(stop) if stop is not None and stop[0] <= w < sum(stop) else w
        if r.random() < rate:
            scores = tuple(_score(r, made, w, at, delay) for _ in range(r.choice([1, 1, 1, 2, 4])))
            log.append(Written(Block(scores, r.choice(SNAPSHOTS), r.random()), at))
            last = w
        elif w - last > 6 and at == w and r.random() < 0.5:
            log.append(Written(Clock(ms(max(0, w - delay - 6))), at))
            last = w
    return log


def _score(r: random.Random, made: list[Score], w: int, at: int, delay: int) -> Score:
    if made and r.random() < 0.2:
        again = r.choice(made[-12:])
        when = (again.time_ms - START_MS) // 1_000
        when = r.choice([when, when, when + r.randrange(-6, 40), w - delay])
        value = r.choice([again.score, again.score, r.choice([0.0, 0.2, 0.6, 1.0])])
        score = again._replace(time_ms=ms(max(0, when)), score=value)
    else:
        number = len(made) + 1
        when = w - delay - r.choice([0, 0, 0, 1, 2, 5])
        if r.random() < 0.02:
            when = w + CLOCK_SKEW + 3
        attributes = (("a", "b", "__missing__")[number % 3],)
        score = Score(f"id-{number}", ms(max(0, when)), r.choice([0.0, 0.1, 0.3, 0.7, 1.0]), attributes)
    score = score._replace(append_ms=ms(at))
    made.append(score)
    return score


def _labels(r: random.Random, made: list[Score], length: int) -> list[Label]:
    labels = []
    for score in made:
        for _ in range(r.choice([0, 1, 1, 1, 2, 3])):
            later = r.choice([-2, 0, 1, 2, 5, 9, HORIZON - 1, HORIZON, HORIZON + 1])
            time_ms = None if r.random() < 0.03 else max(START_MS, score.time_ms + 1_000 * later)
            label = Label(score.event_id, time_ms, r.choice([1, 0, 0, 1, None]) if time_ms is not None else None)
            labels += [label] * r.choice([1, 1, 1, 1, 2])
    labels += [Label(f"never-{w}", ms(w), 1) for w in range(0, length, 3)]
    return labels


def _sets_clock(item: Item) -> bool:
    """Whether a record at the start of a log gives its partition a clock."""
    if isinstance(item, Block):
        first = item.scores[0]
        return first.append_ms is None or first.time_ms <= first.append_ms + 1_000 * CLOCK_SKEW
    if isinstance(item, Label):
        return item.time_ms is not None and (item.append_ms is None or item.time_ms <= item.append_ms + 5_000)
    return isinstance(item, Clock)
