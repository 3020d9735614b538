"""Roles on a real Kafka die, stand still, and lose their servers: outputs, classes and cells stay the oracle's."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stream_calib.alerts.outbox import waiting
from tests.integration.harness import Deployment, RoleProcess, deployment
from tests.integration.on_kafka import PATIENCE_S, ROLES, SETTINGS, Feed, check_everything
from tests.integration.stream import EventDay
from tests.integration.test_health import address, get
from tests.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.services, pytest.mark.timeout(1_200)]

AWAY_S = 20.0


def test_each_role_is_killed_in_the_middle_and_started_again(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random
) -> None:
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        running = deployed.start_all(*ROLES)
        feed = Feed(deployed, some_days, fault_random)
        feed.write(5)
        refit, alert = running["refit"], running["alert"]
        deployed.until(
            lambda: _halted(refit, lambda: bool(deployed.fields()["open_request"])), "a refit at work", PATIENCE_S
        )
        refit.kill()
        deployed.restart(refit)  # which waits half a minute, for the lease of the one that was killed
        for role in ("calibrate", "monitor", "calibrate", "monitor"):
            feed.catch(running[role])
            running[role].kill()
            running[role] = deployed.restart(running[role])
        feed.write(feed.left)
        # What there is to be alerted depends on the flights; where that is nothing, it is killed at rest.
        at_rest = time.monotonic() + 2 * AWAY_S
        deployed.until(
            lambda: _halted(alert, lambda: waiting(deployed.state.store) > 0) or time.monotonic() > at_rest,
            "an alert",
            PATIENCE_S,
        )
        alert.kill()
        deployed.restart(alert)
        found = feed.finish()
    check_everything(found, deployed)
    assert len(found.versions) >= 1
    assert list(dict.fromkeys(record.value for record in found.alerts)) == found.outbox


def _halted(process: RoleProcess, at_work: Callable[[], bool]) -> bool:
    """Whether the process stands still now, in the middle of what it is to do."""
    if not at_work():
        return False
    process.pause()
    if at_work():
        return True
    process.resume()
    return False


def test_processes_stand_still_beyond_their_session(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random
) -> None:
    """What another process has taken over meanwhile is not done twice by one that wakes up in the middle of it."""
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        pairs = {role: [deployed.start(role), deployed.start(role)] for role in ("calibrate", "monitor")}
        deployed.start("refit")
        for role, fact in (("calibrate", "partitions"), ("monitor", "inputs")):
            deployed.until(
                lambda r=role, f=fact: [bool(s.facts[f]) for s in deployed.statuses(r)] == [True] * 2,  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
                f"two of {role} to share the partitions",
                PATIENCE_S,
            )
        feed = Feed(deployed, some_days, fault_random)
        feed.catch(pairs["calibrate"][0])
        feed.catch(pairs["monitor"][0])
        feed.write()
        # All partitions have something to do, so this needs those that stand still to have lost theirs.
        for role in pairs:
            feed.until_done(role)
        matured = deployed.cursor("matured")
        feed.write()
        deployed.until(lambda: deployed.cursor("matured") > matured, "another closer to go on", PATIENCE_S)
        for role in pairs:
            pairs[role][0].resume()
        found = feed.finish()
    check_everything(found, deployed)


def test_kafka_and_then_redis_are_away_for_twenty_seconds(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random
) -> None:
    settings = {**SETTINGS, "http": {"listen": "127.0.0.1:0"}}
    with deployment(tmp_path, settings, kafka=kafka) as deployed:
        running = deployed.start_all(*ROLES)
        calibrate, monitor = running["calibrate"], running["monitor"]
        feed = Feed(deployed, some_days, fault_random)

        feed.catch(calibrate)
        _stop_kafka(kafka, deployed, calibrate, monitor)

        feed.write(4)
        deployed.until(lambda: deployed.fields()["current"], "a snapshot", PATIENCE_S)
        feed.catch(monitor)
        feed.until_done("calibrate")
        deployed.server.kill()
        away_since = time.monotonic()
        monitor.resume()
        served = deployed.end(deployed.config.topics.calibrated)
        feed.write()
        feed.until_done("calibrate")
        assert deployed.end(deployed.config.topics.calibrated) > served
        for process in (monitor, running["refit"], running["alert"]):
            deployed.until(
                lambda p=process: f"{p.roles[0]} pauses" in p.output.read_text(),  # type: ignore[misc]  # as above
                "it to say that it waits",
                PATIENCE_S,
            )
        deployed.until(lambda: time.monotonic() > away_since + AWAY_S, "the time to pass")
        assert _staleness_s(deployed, calibrate) > AWAY_S / 2
        assert "the state is away; what is held is served on" in calibrate.output.read_text()
        assert "calibrate pauses" not in calibrate.output.read_text().split("calibrate goes on")[-1]
        deployed.server.start()
        deployed.until(lambda: "monitor goes on" in monitor.output.read_text(), "monitor to go on", PATIENCE_S)
        found = feed.finish()
        deployed.until(lambda: _staleness_s(deployed, calibrate) < AWAY_S / 2, "the metric to fall", PATIENCE_S)
    check_everything(found, deployed)


def _stop_kafka(kafka: KafkaBroker, deployed: Deployment, calibrate: RoleProcess, monitor: RoleProcess) -> None:
    """While calibrate stands still in the middle of its work."""
    kafka.stop()
    try:
        calibrate.resume()
        away_since = time.monotonic()
        for process in (calibrate, monitor):
            deployed.until(
                lambda p=process: f"{p.roles[0]} pauses" in p.output.read_text(),  # type: ignore[misc]  # as above
                "it to say that it waits",
                PATIENCE_S,
            )
        deployed.until(lambda: time.monotonic() > away_since + AWAY_S, "the time to pass")
    finally:
        kafka.start()
    for process in (calibrate, monitor):
        deployed.until(
            lambda p=process: f"{p.roles[0]} goes on" in p.output.read_text(),  # type: ignore[misc]  # as above
            "it to go on",
            PATIENCE_S,
        )


def _staleness_s(deployed: Deployment, calibrate: RoleProcess) -> float:
    _, text = get(f"http://{address(deployed, calibrate)}/metrics")
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return max(s.value for s in samples if s.name == "stream_calib_snapshot_staleness_seconds")
