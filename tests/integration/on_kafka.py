"""Flights that are fed day by day, and processes caught in the middle of their work on them."""

from __future__ import annotations

import random
from collections.abc import Sequence

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

SETTINGS: Overrides = {"serving": {"max_batch_records": 50}, "windows": {"shards": 2}}
ROLES = ("calibrate", "monitor", "refit", "alert")


class Feed:
    """Writes days one after another, each with its clocks."""

    def __init__(self, deployed: Deployment, days: Sequence[EventDay], random_: random.Random) -> None:
        self._deployed, self._days, self._random = deployed, days, random_
        self._written = 0

    def write(self, count: int = 1) -> None:
        """So many days more; there must be as many."""
        days = self._days[self._written : self._written + count]
        assert len(days) == count, "the days have run out: take more"
        for day, records in zip(days, as_written(days), strict=True):
            self._deployed.write(records)
            self._deployed.log.produce(self._deployed.clocks(day.end_ms))
        self._written += count

    def catch(self, process: RoleProcess) -> None:
        """Writes a day and halts the process at a random place of it; another day where it was through with that one
        before it stood still."""
        deployed, (role,) = self._deployed, process.roles
        while True:
            begun = _done(deployed, role)
            self.write()
            target = begun + 1 + self._random.randrange(max(1, _to_do(deployed, role) // 3))
            deployed.until(lambda t=target: _done(deployed, role) >= t, f"{role} to get on", PATIENCE_S)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
            process.pause()
            if _to_do(deployed, role) > 0:
                return
            process.resume()

    def until_done(self, role: str) -> None:
        """Until all that is written is behind the role."""
        self._deployed.until(lambda: _to_do(self._deployed, role) == 0, f"{role} to do all", PATIENCE_S)

    def finish(self) -> Findings:
        """Writes the rest and the ends, waits until the last pane is decided, all is settled and every alert is
        delivered, and reads everything back."""
        deployed = self._deployed
        self.write(len(self._days) - self._written)
        deployed.log.produce(deployed.clocks(self._days[-1].end_ms, end=True))
        deployed.until_served(PATIENCE_S)
        last = last_pane(self._days)
        deployed.until(
            lambda: deployed.cursor("decided") == last and not deployed.fields()["open_request"],
            "the last pane to be decided",
            PATIENCE_S,
        )
        return find(deployed)


def _done(deployed: Deployment, role: str) -> int:
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


def _to_do(deployed: Deployment, role: str) -> int:
    topics = deployed.config.topics
    return deployed.end(topics.scores if role == "calibrate" else topics.labels) - _done(deployed, role)


def check_everything(found: Findings, deployed: Deployment) -> None:
    check_one_output_each(found)
    expected = check_cells_and_classes(found, deployed.config)
    check_reproduced(found, deployed.config)
    check_blocks_name_their_snapshot(found)
    # So that the comparison means something.
    kinds = ("scores_duplicate", "scores_late", "labels_matched", "labels_unmatched", "labels_late", "positives")
    assert all(expected.totals[kind] > 10 for kind in kinds), expected.totals
