"""The same cells and classes however the events are partitioned, ordered within the lateness, and delivered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stream_calib.config import Config
from tests.integration.expectation import (
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    decided_alike,
)
from tests.integration.findings import Findings, find
from tests.integration.harness import Deployment, Overrides, deployment
from tests.integration.stream import EventDay, last_pane, otherwise
from workers.backtest_verify import verify_live

pytestmark = pytest.mark.services

LABEL_PARTITIONS = 3
SETTINGS: Overrides = {
    "log": {"label_partitions": LABEL_PARTITIONS, "session_timeout": "2s"},
    "serving": {"max_batch_records": 400},
    "windows": {"shards": 3},
}


def test_everything_twice_with_other_partitions_and_order(
    month: list[EventDay], month_run: tuple[Findings, Config], tmp_path: Path
) -> None:
    days = month[:14]
    with deployment(tmp_path, SETTINGS) as deployed:
        for role in ("calibrate", "calibrate", "monitor", "monitor", "monitor"):
            deployed.start(role, module="tests.integration.twice")
        # What changes hands between its two deliveries would come once to each of two monitors.
        deployed.until(lambda: _shares(deployed) == [2, 2, 3], "the monitors to share the partitions")
        records = otherwise(days, LABEL_PARTITIONS)
        # In parts, so that batches end in many places and each monitor has its share.
        for start in range(0, len(records), 2_000):
            deployed.log.produce(records[start : start + 2_000])
        deployed.log.produce(deployed.clocks(days[-1].end_ms, end=True))
        deployed.until_matured(last_pane(days))
        deployed.until_served()
        for topic in (deployed.config.topics.blocks, deployed.config.topics.labels):
            # A position is committed when its batch has come twice.
            deployed.until(lambda t=topic: not deployed.lag("monitor", t), "the last batch to come again")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
        found = find(deployed)
        again = verify_live(deployed.log, deployed.config, deployed.state.model_key, deployed.state.store)
        _check_delivered_twice(deployed)
    check_one_output_each(found)
    expected = check_cells_and_classes(found, deployed.config)
    check_blocks_name_their_snapshot(found)
    assert decided_alike(found, month_run[0], days)
    # A backtest of the topics, which reads everything once, and decides up to the request that nobody answers.
    assert again.differences == []
    assert (again.matured, again.entries) == (max(found.matured), len(found.decisions))
    assert expected.totals["scores_duplicate"] > expected.totals["winners"]


def _shares(deployed: Deployment) -> list[int]:
    """Numbers of partitions that the monitors read."""
    return sorted(len(status.facts["inputs"]) for status in deployed.statuses("monitor"))


def _check_delivered_twice(deployed: Deployment) -> None:
    """The monitors themselves say how many records they were given. What one has read once when its partition goes to
    another is not given again, so it is not quite all."""
    given = 0
    for one in deployed.processes:
        if "monitor" in one.roles:
            assert one.terminate() == 0
            given += int(re.findall(r"given (\d+) records", one.output.read_text())[-1])
    topics = deployed.config.topics
    assert given >= 1.5 * (deployed.end(topics.blocks) + deployed.end(topics.labels))
