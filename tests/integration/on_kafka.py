"""Flights that are fed day by day, and processes caught in the middle of their work on them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from stream_calib.alerts.outbox import waiting
from stream_calib.transport.port import TopicPartition
from stream_calib.windows.input_partitions import input_key
from tests.integration.expectation import (
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    check_reproduced,
)
from tests.integration.findings import Findings, find
from tests.integration.harness import DEADLINE_S, Deployment, Overrides, RoleProcess
from tests.integration.stream import EventDay, as_written, last_pane

PATIENCE_S = 2.5 * DEADLINE_S
"""A broker, its clients and all roles on two cores: only a failure ever takes so long."""

SETTINGS: Overrides = {
    "serving": {"max_batch_records": 50},
    "windows": {"shards": 2},
    "refit": {"min_rows": 1_000},
}
ROLES = ("calibrate", "monitor", "refit", "alert")


class Feed:
    """Writes days one after another, each with its clocks."""

    def __init__(self, deployed: Deployment, days: Sequence[EventDay], random_: random.Random) -> None:
        self._deployed, self._days, self._random = deployed, days, random_
        self._written = 0

    @property
    def left(self) -> int:
        """Days that are not written yet."""
        return len(self._days) - self._written

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
        work = _Work(deployed, role)
        while True:
            begun = work.done()
            self.write()
            target = begun + 1 + self._random.randrange(max(1, work.to_do() // 3))
            deployed.until(lambda t=target: work.done() >= t, f"{role} to get on", PATIENCE_S)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
            process.pause()
            if work.to_do() > 0:
                return
            process.resume()

    def until_done(self, role: str) -> None:
        """Until all that is written is behind the role."""
        work = _Work(self._deployed, role)
        self._deployed.until(lambda: work.to_do() == 0, f"{role} to do all", PATIENCE_S)

    def finish(self) -> Findings:
        """Writes the rest and the ends, waits until the last pane is decided, all is settled and every alert is
        delivered, and reads everything back."""
        deployed = self._deployed
        self.write(self.left)
        deployed.log.produce(deployed.clocks(self._days[-1].end_ms, end=True))
        deployed.until_served(PATIENCE_S)
        last = last_pane(self._days)
        deployed.until(
            lambda: deployed.cursor("decided") == last and not deployed.fields()["open_request"],
            "the last pane to be decided",
            PATIENCE_S,
        )
        if any("alert" in process.roles for process in deployed.processes):
            deployed.until(lambda: not waiting(deployed.state.store), "all alerts to be delivered", PATIENCE_S)
        return find(deployed)


class _Work:
    """What a role has behind it for good, and what is left of what is written: offsets of `scores` for calibrate; for
    monitor those that every shard has of its inputs. What calibrate has still to do is left for monitor too."""

    def __init__(self, deployed: Deployment, role: str) -> None:
        topics, log = deployed.config.topics, deployed.log
        self._deployed, self._role = deployed, role
        read = {"calibrate": [], "monitor": [topics.blocks, topics.labels]}[role]
        self._inputs = [TopicPartition(topic, p) for topic in read for p in range(log.partitions(topic))]
        sides = {topics.blocks: "s", topics.labels: "l"}
        self._names = [input_key(log, sides[partition.topic], partition) for partition in self._inputs]

    def done(self) -> int:
        if self._role == "calibrate":
            return self._deployed.committed("calibrate", self._deployed.config.topics.scores)
        progress = self._deployed.state.shards.progress()
        return sum(min(one.marks[n].next if n in one.marks else 0 for one in progress) for n in self._names)

    def to_do(self) -> int:
        deployed = self._deployed
        unserved = deployed.lag("calibrate", deployed.config.topics.scores)
        if self._role == "calibrate":
            return unserved
        # In this order: what calibrate serves in between is seen among the ends.
        ends = sum(deployed.log.end_offset(partition) for partition in self._inputs)
        return unserved + ends - self.done()


def check_everything(found: Findings, deployed: Deployment) -> None:
    check_one_output_each(found)
    expected = check_cells_and_classes(found, deployed.config)
    check_reproduced(found, deployed.config)
    check_blocks_name_their_snapshot(found)
    # So that the comparison means something.
    kinds = ("scores_duplicate", "scores_late", "labels_matched", "labels_unmatched", "labels_late", "positives")
    assert all(expected.totals[kind] > 10 for kind in kinds), expected.totals
