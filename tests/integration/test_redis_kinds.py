"""Real roles over a Redis Cluster and over a primary under Sentinels, which fail over while they work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.findings import Findings
from tests.integration.harness import Deployment, deployment
from tests.integration.stream import HOUR_MS, EventDay
from tests.integration.test_crashes import ROLES, SETTINGS, check_everything, feed, finish
from tests.redis_servers import RedisClusterServers, WatchedPair

DAYS = 8


def start_on(deployed: Deployment, day: EventDay) -> None:
    """Writes the day and returns when the roles are at work on it."""
    begun = deployed.committed("monitor", "labels")
    feed(deployed, [day])
    deployed.until(lambda: deployed.committed("monitor", "labels") > begun, "monitor to get on")


def decided_alike(found: Findings, whole: Findings, days: list[EventDay]) -> bool:
    """Whether the panes that no later day can change are those of the run over the whole month."""
    panes = range(min(whole.matured), (days[-1].end_ms - 25 * HOUR_MS) // HOUR_MS)
    return all(found.matured[pane] == whole.matured[pane] for pane in panes)


def test_a_cluster_fails_over_under_the_roles(
    month: list[EventDay], month_run: tuple[Findings, object], tmp_path: Path, own_cluster: RedisClusterServers
) -> None:
    days = month[:DAYS]
    settings = {**SETTINGS, "windows": {"shards": 6}, "redis": {"cluster": True}}
    with deployment(tmp_path, settings, state_url=own_cluster.url) as deployed:
        deployed.start_all(*ROLES)
        for n, day in enumerate(days):
            start_on(deployed, day)
            of_shard = own_cluster.primary_of(f"sc:{{{deployed.state.model_key}/{n % 6}}}:m")
            if n in (2, 4):
                own_cluster.fail_over(of_shard, "TAKEOVER" if n == 2 else "")
                own_cluster.wait_until_whole()
            elif n == 6:
                own_cluster.primary_of(f"sc:{{{deployed.state.model_key}}}:f").kill()
                own_cluster.wait_until_whole()
        found = finish(deployed, days)
    check_everything(found, deployed)
    assert decided_alike(found, month_run[0], days)


@pytest.mark.parametrize("how", ["killed", "demoted"])
def test_sentinels_fail_over_under_the_roles(
    month: list[EventDay], month_run: tuple[Findings, object], tmp_path: Path, redis_sentinels: WatchedPair, how: str
) -> None:
    days = month[:DAYS]
    settings = {**SETTINGS, "redis": {"sentinels": redis_sentinels.addresses}}
    with deployment(tmp_path, settings, state_url="redis://named-by-sentinels") as deployed:
        deployed.start_all(*ROLES)
        for n, day in enumerate(days):
            start_on(deployed, day)
            if n == 3 and how == "demoted":
                redis_sentinels.fail_over()
            elif n == 3:
                primary = redis_sentinels.primary()
                primary.kill()
                redis_sentinels.wait_for_another_primary(primary)
        found = finish(deployed, days)
    check_everything(found, deployed)
    assert decided_alike(found, month_run[0], days)
