"""The calibrate role on a real Kafka with either client, and a real Redis: what the log does that memory cannot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from stream_calib.config import Config
from stream_calib.errors import PositionLostError, TransportError
from stream_calib.transport.port import Log, Outgoing, Record, TopicPartition
from tests.kafka_services import fresh_name
from workers.calibrate import GROUP, Calibrate
from workers.deployment import open_log

pytestmark = pytest.mark.services

WAIT_S = 60.0
TOPICS = ("scores", "blocks", "calibrated", "dead_letters")


class OnKafka:
    """A deployment of calibrate alone, stepped by the test."""

    def __init__(self, bootstrap: str, redis_url: str, kind: str) -> None:
        self.admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
        self.prefix = fresh_name("calibrate")
        self.log_section: dict[str, Any] = {
            "kind": kind,
            "bootstrap_servers": bootstrap,
            "group_prefix": self.prefix,
            "metadata_max_age": "200ms",
            "session_timeout": "6s",
            "transaction_timeout": "5s",
        }
        self.redis_url = redis_url
        self.log: Log = open_log(self.config())
        for name in TOPICS:
            settings = {"max.message.bytes": "20000000"} if name == "scores" else {}
            self.log.create_topic(self.topic(name), 1, settings)
        self.role: Calibrate | None = None

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def config(self, log: dict[str, Any] | None = None, **sections: Any) -> Config:
        base: dict[str, Any] = {
            "model": {"name": "m", "version_path": "v"},
            "topics": {name: self.topic(name) for name in (*TOPICS, "labels", "alerts")},
            "log": {**self.log_section, **(log or {})},
            "redis": {"url": self.redis_url},
            "serving": {"clock_records": "off"},
            "windows": {"horizon": "1h"},
        }
        return Config.model_validate({**base, **sections})

    def start(self, config: Config | None = None) -> Calibrate:
        self.role = Calibrate(config or self.config())
        self.role.open()
        return self.role

    def score(self, event_id: str, partition: int = 0, **fields: Any) -> Outgoing:
        event = {"event_id": event_id, "score": 0.25, "v": "1"} | fields
        return Outgoing(self.topic("scores"), b"k", json.dumps(event).encode(), (), partition)

    def until(self, met: Callable[[], bool]) -> None:
        """Steps until it holds."""
        assert self.role is not None
        deadline = time.monotonic() + WAIT_S
        while not met():
            assert time.monotonic() < deadline
            self.role.step()

    def read(self, name: str, partition: int = 0) -> list[Record]:
        return self.log.read(TopicPartition(self.topic(name), partition), 0, 10_000)

    def ids(self) -> list[str]:
        records = [r for p in range(self.log.partitions(self.topic("calibrated"))) for r in self.read("calibrated", p)]
        return [json.loads(record.value or b"")["event_id"] for record in records]

    def position(self, partition: int = 0) -> int | None:
        return (self.log.group_positions(GROUP, self.topic("scores")) or {}).get(partition)

    def close(self) -> None:
        if self.role is not None:
            self.role.close()
        self.admin.delete_topics([self.topic(name) for name in TOPICS])
        self.log.close()
        self.admin.close()


@pytest.fixture(params=["kafka", "librdkafka"])
def on_kafka(request: pytest.FixtureRequest, kafka_bootstrap: str, redis_url: str) -> Iterator[OnKafka]:
    made = OnKafka(kafka_bootstrap, redis_url, request.param)
    yield made
    made.close()


def test_values_of_ten_megabytes_and_deep_nesting_are_rejected_and_the_loop_goes_on(on_kafka: OnKafka) -> None:
    deep = on_kafka.score("b", nested=1)._replace(
        value=b'{"event_id":"b","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    )
    setting = {"kafka": "max_request_size", "librdkafka": "message.max.bytes"}[on_kafka.log_section["kind"]]
    with open_log(on_kafka.config({"client": {setting: 20_000_000}})) as producer:
        producer.produce([on_kafka.score("a", padding="x" * 10_000_000), deep, on_kafka.score("c")])
    on_kafka.start()

    on_kafka.until(lambda: on_kafka.ids() == ["c"])

    too_large, too_deep = on_kafka.read("dead_letters")
    headers = dict(too_large.headers)
    assert headers["stream-calib-reason"] == b"too_large"
    assert int(headers["stream-calib-truncated-from"]) > 10_000_000
    assert 800_000 < len(too_large.value or b"") < 900_000
    assert dict(too_deep.headers)["stream-calib-reason"] == b"too_deep"
    assert on_kafka.position() == 3


def test_two_versions_side_by_side_have_one_output_a_score(on_kafka: OnKafka) -> None:
    on_kafka.start(on_kafka.config(model={"name": "m", "version_path": "v", "max_keys": 2}))
    for part in range(5):
        scores = [on_kafka.score(f"{part}-{i}", v=str(1 + i % 2)) for i in range(100)]
        on_kafka.log.produce(scores)
        on_kafka.until(lambda part=part: len(on_kafka.ids()) == 100 * (part + 1))  # type: ignore[misc]  # bound now
    on_kafka.log.produce([on_kafka.score("beyond", v="3")])
    on_kafka.until(lambda: len(on_kafka.read("dead_letters")) == 1)

    served = [json.loads(record.value or b"")["stream_calib"]["m"] for record in on_kafka.read("calibrated")]
    assert sorted(on_kafka.ids()) == sorted(f"{part}-{i}" for part in range(5) for i in range(100))
    assert [mine["version"] for mine in served].count("2") == 250
    assert dict(on_kafka.read("dead_letters")[0].headers)["stream-calib-reason"] == b"too_many_models"


def test_a_partition_that_blocks_lacks_is_told_and_served_once_blocks_has_grown(on_kafka: OnKafka) -> None:
    role = on_kafka.start()
    on_kafka.log.produce([on_kafka.score("a")])
    on_kafka.until(lambda: on_kafka.ids() == ["a"])
    on_kafka.admin.create_partitions({on_kafka.topic("scores"): 2, on_kafka.topic("calibrated"): 2})
    with open_log(on_kafka.config()) as producer:
        producer.produce([on_kafka.score("b", partition=1)])

    with pytest.raises(TransportError, match=r"has only 1 partitions: add partitions to .*-blocks"):
        on_kafka.until(lambda: False)
    on_kafka.admin.create_partitions({on_kafka.topic("blocks"): 2})

    deadline = time.monotonic() + WAIT_S
    while on_kafka.ids() != ["a", "b"]:
        assert time.monotonic() < deadline
        with suppress(TransportError):  # until the new partition is seen
            role.step()
    assert on_kafka.position(1) == 1


@pytest.mark.parametrize("on_position_lost", ["stop", "skip"])
def test_retention_passed_the_position(on_kafka: OnKafka, on_position_lost: str) -> None:
    on_kafka.start()
    on_kafka.log.produce([on_kafka.score("a")])
    on_kafka.until(lambda: on_kafka.ids() == ["a"])
    assert on_kafka.role is not None
    on_kafka.role.close()
    on_kafka.log.produce([on_kafka.score(name) for name in "bcde"])
    on_kafka.admin.delete_records({KafkaPartition(on_kafka.topic("scores"), 0): 3})

    role = on_kafka.start(on_kafka.config({"on_position_lost": on_position_lost}))

    if on_position_lost == "stop":
        with pytest.raises(PositionLostError):
            on_kafka.until(lambda: False)
        return
    on_kafka.until(lambda: on_kafka.ids() == ["a", "d", "e"])
    assert on_kafka.position() == 5
    (gap,) = role._gaps.all()
    assert (gap.topic, gap.first, gap.end) == (on_kafka.topic("scores"), 1, 3)


def test_the_position_passes_what_is_no_record(on_kafka: OnKafka) -> None:
    """Ends of transactions are offsets too: who watches the lag must see it reach 0."""
    on_kafka.start()
    on_kafka.log.produce([on_kafka.score("a")])
    on_kafka.until(lambda: on_kafka.ids() == ["a"])
    end = on_kafka.log.end_offset(TopicPartition(on_kafka.topic("scores"), 0))
    on_kafka.until(lambda: on_kafka.position() == end)
