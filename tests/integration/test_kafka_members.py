"""The flights through a real Kafka, each role its own process: with one of each, and with several that come and go."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.harness import deployment
from tests.integration.on_kafka import PATIENCE_S, ROLES, SETTINGS, Feed, check_everything
from tests.integration.stream import EventDay
from tests.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.services, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("kind", ["kafka", "librdkafka"])
def test_one_process_a_role(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random, kind: str
) -> None:
    with deployment(tmp_path, {**SETTINGS, "log": {"kind": kind}}, kafka=kafka) as deployed:
        assert deployed.log.partitions(deployed.config.topics.scores) == 4
        deployed.start_all(*ROLES)
        found = Feed(deployed, some_days, fault_random).finish()
    assert found.dead_letters == []
    check_everything(found, deployed)
    assert len(found.versions) >= 1


def test_three_processes_while_members_join_and_leave(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random
) -> None:
    shared = {"calibrate": "partitions", "monitor": "inputs"}
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        members = {role: [deployed.start(role) for _ in range(3)] for role in shared}
        deployed.start("refit")
        for role, fact in shared.items():
            deployed.until(
                lambda r=role, f=fact: [bool(s.facts[f]) for s in deployed.statuses(r)] == [True] * 3,  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
                f"three of {role} to share the partitions",
                PATIENCE_S,
            )
        feed = Feed(deployed, some_days, fault_random)
        for role in shared:
            feed.catch(leaving := members[role].pop(0))
            leaving.resume()
            assert leaving.terminate(30) == 0
        for role in shared:
            feed.catch(dying := members[role].pop(0))
            dying.kill()
            members[role] += [deployed.start(role), deployed.start(role)]
        found = feed.finish()
    check_everything(found, deployed)
