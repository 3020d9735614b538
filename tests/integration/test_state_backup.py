"""State exported from one server goes on in another, empty one, under the same processes and the same log."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.integration.expectation import check_cells_and_classes, check_one_output_each
from tests.integration.findings import find
from tests.integration.harness import deployment
from tests.integration.stream import EventDay, as_written, last_pane

pytestmark = pytest.mark.services


def test_what_was_exported_goes_on_in_an_empty_server(month: list[EventDay], tmp_path: Path) -> None:
    days = month[:4]
    with deployment(tmp_path, own_state=True) as deployed:
        deployed.start("calibrate")
        workers = [deployed.start(role) for role in ("monitor", "refit")]
        written = list(as_written(days))
        for day, records in zip(days[:2], written, strict=False):
            deployed.log.produce(records + deployed.clocks(day.end_ms))
        deployed.until(lambda: deployed.cursor("matured") > 0, "panes to mature")
        busy = deployed.command("state", "export", str(tmp_path / "busy.scs"))
        for worker in workers:
            worker.terminate()
        before = deployed.fields()
        done = deployed.command("state", "export", str(tmp_path / "backup.scs"))
        assert done.returncode == 0, done.stderr
        with redis.Redis.from_url(deployed.state_server.url) as client:
            client.flushall()
        done = deployed.command("state", "import", str(tmp_path / "backup.scs"))
        assert done.returncode == 0, done.stderr
        deployed.state = deployed.state_of(deployed.state.model_key)
        after = deployed.fields()
        for role in ("monitor", "refit"):
            deployed.start(role)
        for day, records in zip(days[2:], written[2:], strict=True):
            deployed.log.produce(records + deployed.clocks(day.end_ms))
        deployed.log.produce(deployed.clocks(days[-1].end_ms, end=True))
        deployed.until_served()
        deployed.until(lambda: deployed.cursor("decided") == last_pane(days), "the last pane to be decided")
        found = find(deployed)
    assert busy.returncode == 1
    assert "stop the roles monitor, refit, alert" in busy.stderr
    assert deployed.state.number == 1
    assert after == before
    check_one_output_each(found)
    check_cells_and_classes(found, deployed.config)
