"""Rows of requests on a real Kafka: a broker that stops and comes back, a forked child."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from stream_calib.events.blocks import unpack
from stream_calib.events.control import is_control
from stream_calib.events.identity import fingerprints
from stream_calib.live import BlockWriter
from stream_calib.transport.port import Log, Record, TopicPartition
from tests.kafka_broker import KafkaBroker
from tests.kafka_services import fresh_name
from tests.unit.live.requests_for_tests import config_of, rows_of
from workers.deployment import open_log

pytestmark = pytest.mark.services

DEADLINE_S = 120.0


def until(condition: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up, f"waited for {what}"
        time.sleep(0.05)


def read(log: Log, topic: str, partition: int) -> list[Record]:
    records: list[Record] = []
    while some := log.read(TopicPartition(topic, partition), records[-1].offset + 1 if records else 0, 1_000):
        records += some
    return records


def found(log: Log, topic: str) -> set[int]:
    return {
        fingerprint
        for partition in range(2)
        for record in read(log, topic, partition)
        if not is_control(record)
        for fingerprint in unpack(record.value or b"").fingerprint.tolist()
    }


@pytest.mark.parametrize("kind", ["kafka", "librdkafka"])
def test_rows_come_through_a_broker_that_stops(kafka: KafkaBroker, kind: str) -> None:
    topic = fresh_name("live")
    config = config_of(
        log={"kind": kind, "bootstrap_servers": kafka.bootstrap, "group_prefix": fresh_name("live")},
        topics={"live_blocks": topic},
    )
    with open_log(config) as log:
        log.create_topic(topic, 2)
        writer = BlockWriter(lambda: open_log(config), topic, lateness_ms=0)
        expected = [f"before{n}" for n in range(20)]
        writer.put(rows_of(expected))
        until(lambda: found(log, topic) == set(fingerprints(expected).tolist()), "the first rows")

        child = os.fork()
        if child == 0:
            writer.put(rows_of(["child"]))
            writer.close(within_s=60)
            os._exit(1 if writer.waiting else 0)
        assert os.waitpid(child, 0)[1] == 0
        expected.append("child")
        until(lambda: found(log, topic) == set(fingerprints(expected).tolist()), "the child's row")

        kafka.stop()
        away = [f"away{n}" for n in range(20)]
        for event_id in away:
            writer.put(rows_of([event_id]))
        assert writer.waiting == 20
        kafka.start()
        expected += away
        until(lambda: writer.waiting == 0, "what waited")
        writer.close()
    # Another client: one that was connected before answers with TransportError until it has found the broker again.
    with open_log(config) as log:
        assert found(log, topic) == set(fingerprints(expected).tolist())
        for partition in range(2):
            clock = 0
            for record in read(log, topic, partition):
                if is_control(record):
                    clock = max(clock, json.loads(record.value or b"")["clock_ms"])
                elif fingerprints(["child"])[0] not in unpack(record.value or b"").fingerprint:
                    assert unpack(record.value or b"").event_time_ms.min() >= clock
            assert clock > 0
