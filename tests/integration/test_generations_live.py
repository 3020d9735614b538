"""A deployment goes over to another configuration while its traffic goes on: rebuilt beside, switched, dropped."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from stream_calib.config import Config
from stream_calib.config_file import load_config
from stream_calib.errors import StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from tests.integration.expectation import check_cells_and_classes, check_one_output_each
from tests.integration.findings import find, outputs
from tests.integration.harness import Deployment, Overrides, deployment
from tests.integration.stream import EventDay, as_written, last_pane
from workers.deployment import state_of
from workers.generation_changes import drop_generation, switch_to
from workers.generation_facts import generation_facts
from workers.rebuild import Rebuild

pytestmark = pytest.mark.services

SOON: Overrides = {"refit": {"min_rows": 200}}
ANOTHER: Overrides = {"windows": {"horizon": "12h", "shards": 2}, **SOON}
WORKERS = ("monitor", "refit", "alert")


def rebuild(deployed: Deployment, config: Config) -> int:
    """What `state rebuild` does, in this process; the number of the generation."""
    with closing(Rebuild(deployed.state.client, deployed.log, config, deployed.state.model_key)) as work:
        while work.step():
            pass
        return work.number


def test_another_configuration_takes_over_while_traffic_goes_on(month: list[EventDay], tmp_path: Path) -> None:
    days = month[:5]
    with deployment(tmp_path, SOON) as deployed:
        key, client = deployed.state.model_key, deployed.state.client
        deployed.start("calibrate")
        old = deployed.start(*WORKERS)
        named = deployed.write_config("another.toml", ANOTHER)
        another = load_config(named, deployed.environ)
        written = [records + deployed.clocks(day.end_ms) for day, records in zip(days, as_written(days), strict=True)]
        for records in written[:3]:
            deployed.log.produce(records)
        deployed.until(lambda: deployed.fields()["current"], "a snapshot", 60)
        deployed.until_served()
        assert rebuild(deployed, another) == 1
        with pytest.raises(StateError, match=r"generation 0 is live; nothing was dropped"):
            drop_generation(client, key, 0)

        # What comes meanwhile is taken in by the live one only.
        deployed.log.produce(written[3])
        that_day = days[2].end_ms // another.windows.pane_ms
        deployed.until(lambda: deployed.cursor("closed") > that_day, "panes of that day to close")
        with pytest.raises(StateError, match=r"generation 1 of flights/1 is .* behind the live one"):
            switch_to(client, another, key, 1)
        deployed.until_served()
        assert rebuild(deployed, another) == 1
        old.expected = False
        assert switch_to(client, another, key, 1) == 0
        assert old.process.wait(60) == 1
        assert "generation 1 of flights/1 is live now, this process works on 0" in old.last_words()
        gone = {move["version"] for move in deployed.state.snapshots.history()}
        again = deployed.start("monitor")
        again.expected = False
        deployed.config, deployed.state = another, state_of(client, another, key)
        deployed.start(*WORKERS, config_file=named)
        assert again.process.wait(60) == 1
        assert "horizon" in again.last_words()
        rebuilt = deployed.fields()["current"]
        deployed.until(
            lambda: {status.facts["snapshot"] for status in deployed.statuses("calibrate")} == {rebuilt},
            "calibrate to serve by the rebuilt one",
        )
        served_before = {output.source for output in outputs(deployed)}
        deployed.log.produce([*written[4], *deployed.clocks(days[-1].end_ms, end=True)])
        deployed.until_served()
        deployed.until(lambda: deployed.cursor("decided") == last_pane(days), "the last pane to be decided")
        deployed.until(lambda: _dropped(client, key, 0), "the leases of the roles that have ended to end", 60)
        (left,) = generation_facts(client, another, key)
        found = find(deployed, gone)
    assert gone
    assert gone.isdisjoint(found.versions)
    assert (left.number, left.live, left.ours) == (1, True, True)
    check_one_output_each(found)
    check_cells_and_classes(found, another)
    since = [output for output in found.outputs if output.source not in served_before]
    assert len(since) > 500
    served = {output.served["snapshot"] for output in since}
    assert rebuilt in served
    assert served <= set(found.versions)


def _dropped(client: RedisClient, key: ModelKey, number: int) -> bool:
    """A role that ends by an error leaves its lease to time."""
    try:
        return drop_generation(client, key, number) > 0
    except StateError as error:
        if "is held" not in str(error):
            raise
        return False
