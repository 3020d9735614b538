"""The monitor on a real Apache Kafka, through both clients: partitions that are added, retention, resets by hand,
transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from stream_calib.config import Config
from stream_calib.errors import PositionLostError
from stream_calib.transport.port import Log, TopicPartition
from tests.windows.monitors import GROUP, PATIENCE_S, A, B, Monitored, monitored
from workers.deployment import open_log
from workers.monitor import Monitor

pytestmark = pytest.mark.services
_TIMES = {"session_timeout": "6s", "transaction_timeout": "2900ms", "metadata_max_age": "200ms"}


class OnKafka:
    """The operator of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self.admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._aborts: Any = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=f"aborts-{uuid4().hex}", metadata_max_age_ms=200
        )
        self._aborts.init_transactions()

    def open(self, config: Config) -> Log:
        return open_log(config)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions({topic: partitions})
        self.until(lambda: len(self._aborts.partitions_for(topic)) == partitions)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline

    def trim(self, partition: TopicPartition, before: int) -> None:
        self.admin.delete_records({KafkaPartition(*partition): before})

    def skip(self, partition: TopicPartition) -> None:
        self._aborts.begin_transaction()
        self._aborts.send(partition.topic, b"never to be seen", partition=partition.partition).get(timeout=10)
        self._aborts.abort_transaction()

    def silence(self, monitor: Monitor) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._aborts.close()
        self.admin.close()


@pytest.fixture
def operator(kafka_bootstrap: str) -> Iterator[OnKafka]:
    made = OnKafka(kafka_bootstrap)
    yield made
    made.close()


@pytest.fixture(params=["kafka", "librdkafka"])
def sections(request: pytest.FixtureRequest, kafka_bootstrap: str) -> dict[str, Any]:
    """Of the configuration: a deployment of its own on the shared broker."""
    run = uuid4().hex[:8]
    names = {name: f"{name}-{run}" for name in ("scores", "labels", "calibrated", "blocks", "dead_letters", "alerts")}
    log = {"kind": request.param, "bootstrap_servers": kafka_bootstrap, "group_prefix": f"test-{run}", **_TIMES}
    return {"topics": {**names, "live_blocks": f"live-{run}"}, "log": log}


def test_partitions_that_are_added_and_transactions_that_are_aborted(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, operator: OnKafka, sections: dict[str, Any]
) -> None:
    """Field case 35, with two monitors and two model keys: nothing of what came before anybody noticed is skipped."""
    with monitored(redis_url, monkeypatch, partitions=2, operator=operator, **sections) as m:
        m.aborts = 0.05
        m.clocks(0, ("blocks", "live", "labels"))
        m.traffic([A, B], 0, 60)
        m.start()
        m.start()
        m.until_applied(A, B)
        for topic in ("blocks", "labels"):
            m.grow(topic, 4)
        m.traffic([A, B], 60, 120, seed=2)
        m.clocks(None, ("blocks", "live", "labels"))
        m.skip("blocks", 3)
        m.until_applied(A, B)
        m.until_matured(110, A, B)
        assert m.check(A) >= 11
        assert m.check(B) >= 11
        ends = {p: m.end("blocks", p) for p in range(4)}
        m.until(lambda: m.log.group_positions(GROUP, m.topic["blocks"]) == ends, "positions to be committed")


def test_offsets_reset_by_hand_change_nothing(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, operator: OnKafka, sections: dict[str, Any]
) -> None:
    with monitored(redis_url, monkeypatch, partitions=2, operator=operator, **sections) as m:
        m.aborts = 0.05
        m.clocks(0, ("blocks", "live", "labels"))
        m.traffic([A, B], 0, 40)
        first = m.start()
        m.until_applied(A, B)
        m.stop(first)
        m.traffic([A, B], 40, 80, seed=2)
        m.clocks(None, ("blocks", "live", "labels"))
        group = f"{m.config.log.group_prefix}.{GROUP}"
        moved = {m.at(t, p): 0 if p else m.end(t, p) for t in ("blocks", "labels") for p in (0, 1)}
        operator.admin.alter_group_offsets(
            group, {KafkaPartition(*p): OffsetAndMetadata(offset, "", -1) for p, offset in moved.items()}
        )
        m.start()
        m.until_applied(A, B)
        m.until_matured(70, A, B)
        assert m.check(A) >= 7
        assert m.check(B) >= 7


def lose(m: Monitored) -> tuple[int, int]:
    """Writes on with no monitor there, and drops half of it. The gap."""
    for monitor in list(m.monitors):
        m.stop(monitor)
    first = m.end("blocks", 0)
    m.aborts = 0
    m.traffic([A, B], 40, 70, seed=2)
    end = first + (m.end("blocks", 0) - first) // 2
    m.operator.trim(m.at("blocks", 0), end)
    sizes = m.block_sizes[m.at("blocks", 0)]
    del m.written[m.at("blocks", 0)][sum(sizes[:first]) : sum(sizes[:end])]
    return first, end


def test_what_retention_took_ends_the_role(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, operator: OnKafka, sections: dict[str, Any]
) -> None:
    """Field case 31, live."""
    with monitored(redis_url, monkeypatch, partitions=1, operator=operator, **sections) as m:
        m.clocks(0, ("blocks", "live", "labels"))
        m.traffic([A, B], 0, 40)
        m.start()
        m.until_applied(A, B)
        first, end = lose(m)
        m.start()
        with pytest.raises(PositionLostError) as raised:
            m.until(lambda: False, "the error")
        assert raised.value.lost == {m.at("blocks", 0): (first, end)}
        assert m.gaps() == []


def test_what_retention_took_is_skipped_and_on_record_where_the_operator_wants_it(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, operator: OnKafka, sections: dict[str, Any]
) -> None:
    """Field case 31, with the explicit flag."""
    sections["log"]["on_position_lost"] = "skip"
    with monitored(redis_url, monkeypatch, partitions=1, operator=operator, **sections) as m:
        m.clocks(0, ("blocks", "live", "labels"))
        m.traffic([A, B], 0, 40)
        m.start()
        m.until_applied(A, B)
        first, end = lose(m)
        m.start()
        m.clocks(None, ("blocks", "live", "labels"))
        m.until_applied(A, B)
        m.until_matured(60, A, B)
        (gap,) = m.gaps()
        assert (gap.topic, gap.first, gap.end) == (m.topic["blocks"], first, end)
        assert m.check(A) >= 5
        assert m.check(B) >= 5


def test_a_new_deployment_begins_at_what_retention_has_left(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, operator: OnKafka, sections: dict[str, Any]
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1, operator=operator, **sections) as m:
        m.aborts = 0
        m.clocks(0, ("blocks", "live", "labels"))
        m.traffic([A], 0, 30)
        half = m.end("labels", 0) // 2
        operator.trim(m.at("labels", 0), half)
        del m.written[m.at("labels", 0)][:half]
        m.clocks(None, ("blocks", "live", "labels"))
        m.start()
        m.until_applied(A)
        m.until_matured(20, A)
        assert m.check(A) >= 2
