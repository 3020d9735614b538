"""docker compose up: every container at work, confined, watched, and ended in order."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from kafka import KafkaConsumer

from tests.compose.project import ROLES, Project, until
from tests.deploy.board import queries

pytestmark = pytest.mark.deploy

_POLLS = 20
_CONFINED = ("kafka", "redis", "prometheus", "demo-producer", *ROLES)
_READ_ONLY = ("redis", "prometheus", "demo-producer", *ROLES)
_NOTHING_WRONG = {
    # Panels of what does not happen here: no data is right.
    "Rejects",
    "Refusals, by reason",
    "Refit request open for",
    "Steps tried again",
    "Redis errors",
    "Records lost to retention",
    "Inputs read again",
    "Messages to hooks",
    "Oldest alert that a hook was not told of",
}


def test_every_container_becomes_healthy(project: Project) -> None:
    services = ("kafka", "redis", "prometheus", *ROLES)
    until(
        "every container is healthy",
        lambda: {service: project.health(service) for service in services},
        lambda health: set(health.values()) == {"healthy"},
        within_s=180,
    )
    assert project.health("topics") == "exited (0)"


def test_scores_come_out_calibrated(project: Project) -> None:
    consumer = KafkaConsumer(
        "calibrated",
        bootstrap_servers=f"127.0.0.1:{project.kafka_port}",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )
    seen: list[bytes] = []

    def read() -> str:
        for _ in range(_POLLS):
            for records in consumer.poll(timeout_ms=200, max_records=10_000).values():
                seen.extend(record.value for record in records)
        return f"{len(seen)} outputs, the last {seen[-1:]}"

    # Before the first snapshot the raw score is served: a snapshot needs some days of labels.
    until(
        "an output by a snapshot",
        read,
        lambda _: bool(seen) and _served(seen[-1])["status"] == "calibrated",
        within_s=240,
    )
    consumer.close()
    assert len(seen) > 2_000
    assert _served(seen[0])["status"] == "identity"
    last = _served(seen[-1])
    assert 0 < last["calibrated"] < 1
    assert last["calibrated"] != last["raw"]
    assert last["snapshot"] is not None


def _served(value: bytes) -> dict[str, Any]:
    (of_model,) = json.loads(value)["stream_calib"].values()
    return dict(of_model)


def test_no_container_can_do_more_than_it_needs(project: Project) -> None:
    for service in _CONFINED:
        container = project.inspect(service)
        host = container["HostConfig"]
        assert host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert not host["Privileged"], service
        assert 0 < host["Memory"] <= 1 << 30, service
        assert 0 < host["PidsLimit"] <= 512, service
        assert project.compose("exec", "-T", service, "id", "-u").strip() != "0", service
        assert host["ReadonlyRootfs"] == (service in _READ_ONLY), service
    for port in project.inspect("kafka")["NetworkSettings"]["Ports"].values():
        assert {binding["HostIp"] for binding in port} == {"127.0.0.1"}
    for role in ROLES:
        assert not project.inspect(role)["NetworkSettings"]["Ports"].get("9400/tcp"), role


def test_roles_write_nowhere_but_to_tmp(project: Project) -> None:
    for role in ROLES:
        written = project.compose(
            *("exec", "-T", role, "sh", "-c"),
            "for folder in / /etc/stream-calib /opt/stream-calib /tmp; do"
            " (: > $folder/x) 2> /dev/null && echo $folder; done; true",
        )
        assert written.split() == ["/tmp"], role


def test_the_image_has_both_clients_and_no_compiler(project: Project) -> None:
    project.compose(
        *("exec", "-T", "calibrate", "python", "-c"),
        "import stream_calib.transport.kafka, stream_calib.transport.librdkafka, opentelemetry.sdk.trace",
    )
    found = project.compose("exec", "-T", "calibrate", "sh", "-c", "command -v cc gcc make; true")
    assert found == ""


def test_the_password_is_in_no_log_and_no_list_of_processes(project: Project) -> None:
    password = project.compose("exec", "-T", "redis", "cat", "/run/secrets/redis_password").strip()
    assert password
    processes = project.compose("exec", "-T", "redis", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "redis-server" in processes
    assert password not in processes
    assert password not in project.compose("logs", "--no-color")
    for service in ("redis", *ROLES):
        assert password not in json.dumps(project.inspect(service)), service


def test_doctor_finds_nothing_to_mend(project: Project) -> None:
    """It would end with code 1."""
    findings = json.loads(project.compose("exec", "-T", "monitor", "stream-calib", "doctor", "--json"))
    assert {finding["subject"] for finding in findings} >= {"configuration", "log", "transactions", "redis persistence"}


def test_prometheus_sees_every_role_and_no_alert(project: Project) -> None:
    def seen() -> dict[str, str]:
        return {target["labels"]["instance"]: target["health"] for target in project.targets()}

    until("every target is up", seen, lambda up: len(up) == len(ROLES) + 1 and set(up.values()) == {"up"}, within_s=120)
    until(
        "every role is ready",
        lambda: {sample["metric"]["role"]: sample["value"][1] for sample in project.query("stream_calib_role_ready")},
        lambda ready: ready == dict.fromkeys(ROLES, "1"),
        within_s=120,
    )
    assert project.query('ALERTS{alertstate="firing", severity="critical"}') == []


def test_the_boards_queries_have_data(project: Project) -> None:
    """All but those that show what is wrong."""

    def without_data() -> set[str]:
        return {query.panel for query in queries("1m") if not project.query(query.expression)}

    until("each panel has data", without_data, lambda empty: empty <= _NOTHING_WRONG, within_s=240)


def test_a_container_that_has_only_just_started_can_be_stopped(project: Project) -> None:
    """137 would be a kill after the grace period."""
    exit_code = project.stop_at_once("alert")
    assert exit_code in (0, 128 + signal.SIGTERM)


def test_roles_end_in_order(project: Project) -> None:
    """Last: nothing runs afterwards."""
    project.compose("stop", "demo-producer", *ROLES)
    assert {role: project.inspect(role)["State"]["ExitCode"] for role in ROLES} == dict.fromkeys(ROLES, 0)
