"""The state is wiped under running processes: it is derived from the log and bound to the configuration again."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.integration.expectation import check_cells_and_classes, check_one_output_each
from tests.integration.findings import find
from tests.integration.harness import deployment
from tests.integration.stream import EventDay, as_written, last_pane

pytestmark = pytest.mark.services


def test_a_wiped_state_is_derived_and_claimed_again(month: list[EventDay], tmp_path: Path) -> None:
    days = month[:4]
    with deployment(tmp_path, own_state=True) as deployed:
        for role in ("calibrate", "monitor", "refit"):
            deployed.start(role)
        written = list(as_written(days))
        for day, records in zip(days[:2], written, strict=False):
            deployed.log.produce(records + deployed.clocks(day.end_ms))
        deployed.until(lambda: deployed.cursor("matured") > 0, "panes to mature")
        before = deployed.fields()
        with redis.Redis.from_url(deployed.state_server.url) as client:
            client.flushall()
        for day, records in zip(days[2:], written[2:], strict=True):
            deployed.log.produce(records + deployed.clocks(day.end_ms))
        deployed.log.produce(deployed.clocks(days[-1].end_ms, end=True))
        deployed.until_served()
        deployed.until(lambda: deployed.cursor("decided") == last_pane(days), "the last pane to be decided")
        found = find(deployed)
        claimed = deployed.state.store.read(("generation", "topics"))
    check_one_output_each(found)
    check_cells_and_classes(found, deployed.config)
    assert found.fields["first_pane"] == before["first_pane"]
    assert claimed["generation"] == before["generation"] is not None
    assert claimed["topics"]
