"""Work that is interrupted: what a role has done and has still to do, and processes caught in the middle of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from stream_calib.transport.port import TopicPartition
from tests.integration.expectation import (
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    check_reproduced,
)
from tests.integration.findings import Findings, find
from tests.integration.harness import DEADLINE_S, Deployment, Overrides, RoleProcess
from tests.integration.stream import EventDay, as_written, last_pane
from workers.deployment import input_key

PATIENCE_S = 2.5 * DEADLINE_S
"""A broker, its clients and all roles on two cores: only a failure ever takes so long."""

SETTINGS: Overrides = {"serving": {"max_batch_records": 100}, "windows": {"shards": 2}}
ROLES = ("calibrate", "monitor", "refit", "alert")


def feed(deployed: Deployment, days: Sequence[EventDay]) -> None:
    """Writes the days, each with its clocks."""
    for day, records in zip(days, as_written(days), strict=True):
        deployed.write(records)
        deployed.log.produce(deployed.clocks(day.end_ms))


def parts(days: Sequence[EventDay], count: int) -> Iterator[Sequence[EventDay]]:
    """All days, in so many parts."""
    bounds = [len(days) * i // count for i in range(count + 1)]
    return (days[start:end] for start, end in zip(bounds, bounds[1:], strict=False))


def done(deployed: Deployment, role: str) -> int:
    """How many offsets of its input the role has put behind it for good: of `scores`, or of `labels` on every shard."""
    topics = deployed.config.topics
    if role == "calibrate":
        return deployed.committed(role, topics.scores)
    progress = deployed.state.shards.progress()
    total = 0
    for number in range(deployed.log.partitions(topics.labels)):
        name = input_key(deployed.log, "l", TopicPartition(topics.labels, number))
        total += min(one.marks[name].next if name in one.marks else 0 for one in progress)
    return total


def to_do(deployed: Deployment, role: str) -> int:
    topics = deployed.config.topics
    return deployed.end(topics.scores if role == "calibrate" else topics.labels) - done(deployed, role)


def catch(deployed: Deployment, process: RoleProcess, random_: random.Random) -> None:
    """Halts the process at a random place of what lies before its role, and makes sure that some is left."""
    (role,) = process.roles
    begun, left = done(deployed, role), to_do(deployed, role)
    target = begun + 1 + random_.randrange(max(1, left // 2))
    deployed.until(lambda: done(deployed, role) >= target, f"{role} to be in the middle", PATIENCE_S)
    process.pause()
    assert to_do(deployed, role) > 0, f"{role} was through before it could be halted"


def finish(deployed: Deployment, days: Sequence[EventDay]) -> Findings:
    """Closes the topics, waits until the last pane is decided and all is settled, and reads everything back."""
    deployed.log.produce(deployed.clocks(days[-1].end_ms, end=True))
    deployed.until_served(PATIENCE_S)
    deployed.until(
        lambda: deployed.cursor("decided") == last_pane(days) and not deployed.fields()["open_request"],
        "the last pane to be decided",
        PATIENCE_S,
    )
    return find(deployed)


def check_everything(found: Findings, deployed: Deployment) -> None:
    check_one_output_each(found)
    expected = check_cells_and_classes(found, deployed.config)
    check_reproduced(found, deployed.config)
    check_blocks_name_their_snapshot(found)
    # So that the comparison means something.
    kinds = ("scores_duplicate", "scores_late", "labels_matched", "labels_unmatched", "labels_late", "positives")
    assert all(expected.totals[kind] > 10 for kind in kinds), expected.totals


def words(path: Path) -> str:
    return path.read_text(errors="replace")
