"""The test broker itself: what the tests of the Kafka transports rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from stream_calib.errors import StreamCalibError
from tests.kafka_broker import KafkaBroker
from tests.kafka_services import fresh_name

_DEADLINE_S = 30.0


def _create(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()


def _produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, value).get(timeout=_DEADLINE_S)
    producer.close()


def _values(bootstrap: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=int(_DEADLINE_S * 1000)
    )
    value = next(consumer).value
    consumer.close()
    return [value]


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_shared_broker_takes_and_gives_records(kafka_bootstrap: str) -> None:
    topic = fresh_name("records")
    _create(kafka_bootstrap, topic)
    _produce(kafka_bootstrap, topic, b"one")
    assert _values(kafka_bootstrap, topic) == [b"one"]


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_address_and_data_outlive_the_process(own_kafka: KafkaBroker, how: str) -> None:
    topic = fresh_name("records")
    _create(own_kafka.bootstrap, topic)
    _produce(own_kafka.bootstrap, topic, b"kept")
    before = own_kafka.pid
    if how == "kill":
        own_kafka.kill()
        assert _is_gone(before)
        own_kafka.start()
    else:
        own_kafka.restart()
    assert own_kafka.pid != before
    assert _values(own_kafka.bootstrap, topic) == [b"kept"]


def test_a_paused_broker_can_be_ended(own_kafka: KafkaBroker) -> None:
    own_kafka.pause()
    pid = own_kafka.pid
    own_kafka.stop()
    assert _is_gone(pid)


def test_a_broker_that_cannot_start_says_why() -> None:
    broker = KafkaBroker(properties={"log.dirs": "/proc/no-such-folder"})
    with pytest.raises(StreamCalibError, match="/proc/no-such-folder"):
        broker.start()
    broker.close()


def test_the_broker_ends_with_the_tests_that_started_it() -> None:
    script = (
        "import sys\n"
        "from tests.kafka_broker import KafkaBroker\n"
        "broker = KafkaBroker()\n"
        "broker.start()\n"
        "print(broker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        assert not _is_gone(pid)
        tests.kill()
    deadline = time.monotonic() + _DEADLINE_S
    while not _is_gone(pid):
        assert time.monotonic() < deadline, f"process {pid} outlives its parent"
        time.sleep(0.02)
