from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.events.blocks import MAX_BLOCK_ROWS, BlockRows, pack
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Log
from tests.unit.workers.block_rows import widest_rows
from workers import topic_setup
from workers.topic_plan import KAFKA_MAX_MESSAGE_BYTES, largest_block_bytes, planned_topics
from workers.topic_setup import create_topics, ready_topics, topic_findings

DAY_MS = 86_400_000


def config_of(**sections: Any) -> Config:
    return Config.model_validate({"model": {"name": "m"}, "windows": {"horizon": "14d"}, **sections})


class SettingsLog(MemoryLog):
    """A log in memory that tells settings, as Kafka does: those given at creation, over the broker's own."""

    def __init__(self, broker: Mapping[str, str]) -> None:
        super().__init__()
        self.broker = dict(broker)
        self.settings: dict[str, dict[str, str]] = {}

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        super().create_topic(topic, partitions, settings)
        self.settings[topic] = {**self.broker, **(settings or {})}

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        self.partitions(topic)
        return self.settings[topic]


BROKER = {
    "cleanup.policy": "delete",
    "retention.ms": str(60 * DAY_MS),
    "retention.bytes": "-1",
    "max.message.bytes": str(KAFKA_MAX_MESSAGE_BYTES),
}


def test_what_is_created_fits() -> None:
    config = config_of(log={"score_partitions": 6, "label_partitions": 2, "output_retention": "3d"})
    log = SettingsLog(BROKER)
    results = create_topics(log, config)
    assert {r.planned.topic: r.partitions for r in results} == {
        "scores": 6,
        "labels": 2,
        "blocks": 6,
        "calibrated": 6,
        "dead-letters": 1,
        "alerts": 1,
    }
    assert all(r.created for r in results)
    assert log.settings["calibrated"]["retention.ms"] == str(3 * DAY_MS)
    assert log.settings["blocks"]["retention.ms"] == str(35 * DAY_MS)  # two horizons and a week
    assert log.settings["dead-letters"]["retention.ms"] == log.settings["alerts"]["retention.ms"] == str(30 * DAY_MS)
    assert log.settings["scores"] == log.settings["labels"] == BROKER
    assert {f.level for f in topic_findings(log, config)} == {"ok"}


def test_blocks_and_outputs_follow_the_partitions_that_scores_has() -> None:
    log = MemoryLog()
    log.create_topic("scores", 12)
    assert {r.planned.topic: r.partitions for r in create_topics(log, config_of())}["blocks"] == 12
    assert log.partitions("calibrated") == 12
    assert log.partitions("labels") == 4


def test_nothing_that_exists_is_changed() -> None:
    log = MemoryLog()
    create_topics(log, config_of())
    before = {topic: log.topic_id(topic) for topic in ("scores", "blocks", "alerts")}
    assert not any(r.created for r in create_topics(log, config_of(log={"score_partitions": 9})))
    assert {topic: log.topic_id(topic) for topic in before} == before


def test_live_blocks_only_where_configured() -> None:
    assert "live_blocks" not in {p.purpose for p in planned_topics(config_of())}
    planned = {p.purpose: p for p in planned_topics(config_of(topics={"live_blocks": "from-requests"}))}
    assert planned["live_blocks"].topic == "from-requests"
    assert planned["live_blocks"].settings == planned["blocks"].settings


@pytest.mark.parametrize(
    ("topic", "setting", "level", "part"),
    [
        ("blocks", {"cleanup.policy": "compact"}, "fail", "cleanup.policy=delete"),
        ("scores", {"cleanup.policy": "compact,delete"}, "fail", "lost when their key comes again"),
        ("blocks", {"retention.ms": str(7 * DAY_MS)}, "warn", "kept for 7d"),
        ("labels", {"retention.ms": str(14 * DAY_MS)}, "warn", "rebuild a lost shard"),
        ("scores", {"retention.ms": "3600000"}, "warn", "kept for 1h"),
        ("blocks", {"retention.bytes": "1000000"}, "warn", "retention.bytes=-1"),
        ("calibrated", {"max.message.bytes": "1000"}, "warn", "max.message.bytes is 1,000"),
    ],
)
def test_a_setting_that_loses_records_is_named(topic: str, setting: dict[str, str], level: str, part: str) -> None:
    log, config = SettingsLog(BROKER), config_of()
    create_topics(log, config)
    log.settings[topic].update(setting)
    wrong = [f for f in topic_findings(log, config) if f.level != "ok"]
    assert [(f.level, f.subject) for f in wrong] == [(level, f"topic {topic}")]
    assert part in f"{wrong[0].what} {wrong[0].todo}"
    assert f"--entity-name {topic}" in wrong[0].todo


def test_settings_that_lose_nothing_are_not_named() -> None:
    log, config = SettingsLog(BROKER), config_of()
    create_topics(log, config)
    log.settings["scores"]["retention.ms"] = "-1"
    log.settings["labels"]["cleanup.policy"] = "compact"  # the newest label of an id is the one that counts
    log.settings["alerts"]["retention.bytes"] = "1000000"
    assert {f.level for f in topic_findings(log, config)} == {"ok"}


def test_blocks_with_fewer_partitions_than_scores_cannot_work() -> None:
    log, config = MemoryLog(), config_of()
    create_topics(log, config)
    log.grow_topic("scores", 6)
    wrong = {f.subject: f for f in topic_findings(log, config) if f.level != "ok"}
    assert set(wrong) == {"topic blocks", "topic calibrated"}
    assert all(f.level == "fail" and "--partitions 6" in f.todo for f in wrong.values())


def test_missing_topics_are_failures_with_the_command_that_creates_them() -> None:
    findings = topic_findings(MemoryLog(), config_of())
    assert {f.level for f in findings} == {"fail"}
    assert all("topics create" in f.todo for f in findings)


# --- sizes


def test_no_block_is_larger_than_its_bound() -> None:
    config = config_of(scores={"attributes": {"region": "r", "device": "d"}, "max_value_bytes": 200})
    rows: BlockRows = widest_rows(attributes=2, value_bytes=200)
    assert len(rows.fingerprint) == MAX_BLOCK_ROWS
    assert 0.9 * largest_block_bytes(config) < len(pack(rows)) <= largest_block_bytes(config)


def test_larger_records_get_a_larger_limit() -> None:
    attributes = {f"a{i}": f"a{i}" for i in range(12)}
    config = config_of(scores={"attributes": attributes}, records={"max_record_bytes": 5_000_000})
    planned = {p.purpose: p.settings for p in planned_topics(config)}
    assert int(planned["blocks"]["max.message.bytes"]) == largest_block_bytes(config) > KAFKA_MAX_MESSAGE_BYTES
    assert int(planned["calibrated"]["max.message.bytes"]) > 5_000_000
    assert "max.message.bytes" not in {p.purpose: p.settings for p in planned_topics(config_of())}["blocks"]


# --- what run does


@pytest.fixture
def kafka_log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    log = MemoryLog()

    def opened(config: Config) -> Log:
        return log

    monkeypatch.setattr(topic_setup, "open_log", opened)
    return log


def test_run_creates_missing_topics_on_the_embedded_log_only(kafka_log: MemoryLog) -> None:
    with pytest.raises(UnknownTopicError, match=r"scores, blocks, calibrated, dead-letters .* `stream-calib topics"):
        ready_topics(config_of(log={"kind": "kafka"}), ["calibrate"])
    with pytest.raises(UnknownTopicError):
        kafka_log.partitions("scores")
    ready_topics(config_of(), ["calibrate"])
    assert kafka_log.partitions("scores") == 4
    ready_topics(config_of(log={"kind": "kafka"}), ["calibrate", "monitor", "alert"])


def test_run_asks_only_for_the_topics_of_its_roles(kafka_log: MemoryLog) -> None:
    kafka_log.create_topic("alerts", 1)
    ready_topics(config_of(log={"kind": "kafka"}), ["alert", "refit"])
    with pytest.raises(UnknownTopicError, match="labels"):
        ready_topics(config_of(log={"kind": "kafka"}), ["alert", "monitor"])


def test_a_process_without_topics_needs_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(config: Config) -> Log:
        raise TransportError("away")

    monkeypatch.setattr(topic_setup, "open_log", away)
    ready_topics(config_of(log={"kind": "kafka"}), ["refit"])
