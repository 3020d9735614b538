"""State exported from one server goes on in another, empty one, under the same processes and the same log."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from stream_calib.backtest.dumped_state import state_of_dump
from stream_calib.backtest.history import CellHistory
from stream_calib.windows.cells import EMPTY_SCORED
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import Commit
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
        deployed.until(lambda: deployed.cursor("closed") > deployed.cursor("first_pane") + 24, "a day to be closed")
        busy = deployed.command("state", "export", str(tmp_path / "busy.scs"))
        for worker in workers:
            worker.terminate()
        before = deployed.fields()
        done = deployed.command("state", "export", str(tmp_path / "backup.scs"))
        assert done.returncode == 0, done.stderr
        key, pane_ms = deployed.state.model_key, deployed.config.windows.pane_ms
        exported, generation = state_of_dump(tmp_path / "backup.scs", key)
        histories = [
            CellHistory.of_state(store, key, generation, pane_ms, "", {}) for store in (exported, deployed.state.store)
        ]
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
        verified = deployed.command("backtest", "--topics", "--verify")
        pane = last_pane(days) - 3
        deployed.state.store.commit(Commit(blobs={PaneNames.of(pane).scored: EMPTY_SCORED.pack()}))
        damaged = deployed.command("backtest", "--topics", "--verify")
    assert busy.returncode == 1
    assert "stop the roles monitor, refit, alert" in busy.stderr
    assert deployed.state.number == 1
    assert after == before
    assert histories[0] == histories[1]
    assert len(histories[0].panes) > 24
    assert verified.returncode == 0, verified.stderr + verified.stdout
    assert "the replay is the live run, to the byte" in verified.stdout
    assert damaged.returncode == 3, damaged.stderr
    assert f"differs: scored of pane {pane}: " in damaged.stdout
    check_one_output_each(found)
    check_cells_and_classes(found, deployed.config)
