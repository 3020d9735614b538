"""The commands that set up, check and fill topics, over a real broker, through both clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.config_file import load_config
from stream_calib.events.control import is_control
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import Log, Outgoing, Record, TopicPartition
from tests.command_line import command_line
from tests.integration.harness import config_text
from tests.kafka_services import fresh_name
from workers.deployment import open_log

DAY_MS = 86_400_000
PURPOSES = ("scores", "labels", "blocks", "calibrated", "dead_letters", "alerts")


@dataclass
class Commands:
    """A deployment of the test's own topics, of which nothing runs yet."""

    folder: Path
    file: Path
    environ: Mapping[str, str]
    config: Config

    def run(self, *arguments: str, file: Path | None = None) -> subprocess.CompletedProcess[str]:
        return command_line(*arguments, "--config", str(file or self.file), environ=self.environ)

    def findings(self, *arguments: str) -> dict[str, list[dict[str, Any]]]:
        """By subject."""
        found: dict[str, list[dict[str, Any]]] = {}
        for finding in json.loads(self.run(*arguments, "--json").stdout):
            found.setdefault(finding["subject"], []).append(finding)
        return found


@pytest.fixture(scope="module")
def state_server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture(params=["kafka", "librdkafka"])
def commands(
    request: pytest.FixtureRequest, kafka_bootstrap: str, state_server: EmbeddedServer, tmp_path: Path
) -> Commands:
    settings: dict[str, dict[str, Any]] = {
        "topics": {purpose: fresh_name(purpose) for purpose in PURPOSES},
        "log": {
            "kind": request.param,
            "bootstrap_servers": kafka_bootstrap,
            "group_prefix": fresh_name("deployment"),
            "score_partitions": 3,
            "label_partitions": 2,
        },
    }
    file = tmp_path / "stream-calib.toml"
    file.write_text(config_text(settings))
    environ = {**os.environ, "STREAM_CALIB_REDIS_URL": state_server.url}
    return Commands(tmp_path, file, environ, load_config(file, environ))


def contents(log: Log, topic: str) -> dict[int, list[Record]]:
    return {p: log.read(TopicPartition(topic, p), 0, 10_000) for p in range(log.partitions(topic))}


def test_from_no_topics_to_checked_ones(commands: Commands) -> None:
    topics = commands.config.topics
    refused = commands.run("run", "--role", "calibrate")
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert "stream-calib topics create" in refused.stderr
    assert topics.blocks in refused.stderr, last
    assert commands.run("topics", "check").returncode == 1

    created = json.loads(commands.run("topics", "create", "--json").stdout)
    assert {t["topic"]: t["partitions"] for t in created["topics"] if t["created"]} == {
        topics.scores: 3,
        topics.labels: 2,
        topics.blocks: 3,
        topics.calibrated: 3,
        topics.dead_letters: 1,
        topics.alerts: 1,
    }
    assert commands.run("topics", "create").returncode == 0

    with open_log(commands.config) as log:
        settings = {purpose: log.topic_settings(getattr(topics, purpose)) or {} for purpose in PURPOSES}
    assert settings["calibrated"]["retention.ms"] == str(7 * DAY_MS)
    assert settings["blocks"]["retention.ms"] == str(9 * DAY_MS)  # two horizons of a day and a week
    assert settings["dead_letters"]["retention.ms"] == settings["alerts"]["retention.ms"] == str(30 * DAY_MS)
    assert {settings[purpose]["cleanup.policy"] for purpose in PURPOSES} == {"delete"}
    found = commands.findings("topics", "check")
    assert {f["level"] for findings in found.values() for f in findings} == {"ok"}


def test_doctor_before_and_after_a_topic_is_wrong(commands: Commands) -> None:
    topics = commands.config.topics
    missing = commands.run("doctor")
    assert missing.returncode == 1
    assert f"topic {topics.scores}: does not exist" in missing.stdout
    assert "Traceback" not in missing.stderr
    with open_log(commands.config) as log:
        log.create_topic(topics.blocks, 1, {"cleanup.policy": "compact", "retention.ms": "1000"})
        log.create_topic(topics.labels, 2, {"retention.ms": str(DAY_MS)})
    assert commands.run("topics", "create").returncode == 1

    found = commands.findings("doctor")
    assert [f["level"] for f in found["log"]] == ["ok"]
    assert [f["level"] for f in found["transactions"]] == ["ok"]
    assert {f["level"] for f in found[f"topic {topics.blocks}"]} == {"fail", "warn"}
    assert any("--partitions 3" in f["todo"] for f in found[f"topic {topics.blocks}"])
    assert any("cleanup.policy=delete" in f["todo"] for f in found[f"topic {topics.blocks}"])
    assert [f["level"] for f in found[f"topic {topics.labels}"]] == ["warn"]
    assert [f["level"] for f in found[f"topic {topics.scores}"]] == ["ok"]
    assert found["redis eviction"][0]["level"] == "ok"
    assert found["monitor"][0]["level"] == "warn"


def test_doctor_of_a_fresh_deployment_has_nothing_to_mend(commands: Commands) -> None:
    assert commands.run("topics", "create").returncode == 0
    with open_log(commands.config) as log:
        values = [Outgoing(commands.config.topics.scores, None, b"{}") for _ in range(100)]
        log.produce(values)
    done = commands.run("doctor", "--rate", "10")
    assert done.returncode == 0, done
    assert "0 to mend" in done.stdout
    assert "transactions: one was opened and aborted" in done.stdout
    found = commands.findings("doctor")
    assert "0.0 events/s" in found["memory needed"][0]["what"]
    assert found["calibrate lag"][0]["what"].startswith("100 offsets behind")
    with open_log(commands.config) as log:
        assert sum(map(len, contents(log, commands.config.topics.scores).values())) == 100
        assert log.end_offset(TopicPartition(commands.config.topics.alerts, 0)) == 0


def test_a_broker_that_is_away(commands: Commands) -> None:
    nowhere = commands.folder / "nowhere.toml"
    nowhere.write_text(commands.file.read_text().replace(commands.config.log.bootstrap_servers, "127.0.0.1:1"))
    for arguments in (("topics", "create"), ("topics", "check"), ("replay", str(nowhere), "--into", "scores")):
        done = commands.run(*arguments, file=nowhere)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert "127.0.0.1:1" in done.stderr or "brokers are down" in done.stderr
        assert "Traceback" not in done.stderr
    done = commands.run("doctor", "--json", file=nowhere)
    assert done.returncode == 1
    found = {f["subject"]: f for f in json.loads(done.stdout)}
    assert found["log"]["level"] == "fail"
    assert "127.0.0.1:1" in found["log"]["what"]
    assert found["redis version"]["level"] == "ok"  # what does not depend on the log is looked at all the same


def test_replay_a_range_of_a_topic(commands: Commands) -> None:
    """The records of a time on, with key, headers and partition; stopped and gone on with."""
    scores, old = commands.config.topics.scores, fresh_name("old")
    assert commands.run("topics", "create").returncode == 0
    with open_log(commands.config) as log:
        log.create_topic(old, 3)
        log.produce([Outgoing(old, b"k%d" % i, b"early-%d" % i, (), i % 3) for i in range(30)])
        log.produce([Outgoing(old, b"k%d" % i, b"v%d" % i, (("n", b"%d" % i),), i % 3) for i in range(3_000)])
        log.produce([Outgoing(old, b"gone", None, (), 2)])
        until = {p: log.end_offset(TopicPartition(old, p)) for p in range(3)}
    since = [text for p in range(3) for text in ("--from", f"{p}:10")]
    done = commands.run("replay", "--topic", old, "--into", scores, *since, "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert (told["written"], told["finished"], told["go_on_with"]) == (3_001, True, None)
    with open_log(commands.config) as log:
        found = contents(log, scores)
    expected = [(b"k%d" % i, b"v%d" % i, (("n", b"%d" % i),)) for i in range(3_000)]
    for partition, records in found.items():
        wanted = expected[partition::3] + ([(b"gone", None, ())] if partition == 2 else [])
        assert [(r.key, r.value, r.headers) for r in records] == wanted
    assert until == {0: 1_010, 1: 1_010, 2: 1_011}

    same = commands.run("replay", "--topic", old, "--into", old)
    assert same.returncode == 1
    assert "into another topic" in same.stderr.replace("\n", " ")


def test_a_replay_is_stopped_and_gone_on_with(commands: Commands) -> None:
    scores = commands.config.topics.scores
    assert commands.run("topics", "create").returncode == 0
    file = commands.folder / "scores.jsonl"
    file.write_text("".join(json.dumps({"event_id": f"s{i}", "score": 0.5}) + "\n" for i in range(3_000)))
    command = ("replay", str(file), "--into", scores, "--rate", "300", "--json", "--config", str(commands.file))
    replaying = subprocess.Popen(
        [sys.executable, "-m", "workers.cli", *command],
        env=dict(commands.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with open_log(commands.config) as log:
            while not any(log.end_offset(TopicPartition(scores, p)) for p in range(3)):
                assert replaying.poll() is None
        replaying.send_signal(signal.SIGINT)
        output, errors = replaying.communicate(timeout=30)
    finally:
        replaying.kill()
        replaying.wait(10)
    assert replaying.returncode == 1
    assert "Traceback" not in errors
    told = json.loads(output)
    assert not told["finished"]
    assert 0 < told["written"] < 3_000
    done = commands.run("replay", str(file), "--into", scores, *told["go_on_with"], "--json")
    assert json.loads(done.stdout)["written"] == 3_000 - told["written"]
    with open_log(commands.config) as log:
        ids = [json.loads(r.value or b"")["event_id"] for records in contents(log, scores).values() for r in records]
    assert sorted(ids) == sorted(f"s{i}" for i in range(3_000))
    assert not any(is_control(r) for records in contents_of(commands, scores).values() for r in records)


def contents_of(commands: Commands, topic: str) -> dict[int, list[Record]]:
    with open_log(commands.config) as log:
        return contents(log, topic)
