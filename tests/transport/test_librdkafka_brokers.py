"""Brokers that go away, come back, or stand still."""

from __future__ import annotations

import socket
import time

import pytest

from stream_calib.errors import TransportError
from stream_calib.transport.librdkafka import LibrdkafkaLog
from stream_calib.transport.port import Outgoing, TopicPartition
from tests.kafka_broker import KafkaBroker
from tests.transport.kafka_polling import numbered, poll_until, raised_within_deadline, values, wait_until
from tests.transport.librdkafka_logs import log_section


def answers(log: LibrdkafkaLog) -> bool:
    try:
        return log.partitions("in") == 1
    except TransportError:
        return False


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_broker_that_goes_and_comes_back_is_waited_out(own_kafka: KafkaBroker, how: str) -> None:
    partition = TopicPartition("in", 0)
    with LibrdkafkaLog(log_section(own_kafka.bootstrap, session_timeout="6s", transaction_timeout="3s")) as log:
        log.create_topic("in", 1)
        log.create_topic("out", 1)
        log.produce(numbered(4, topic="in"))
        with log.consumer("g", ["in"], member="a") as consumer:
            _, records = poll_until(consumer, lambda _, records: len(records) == 4)
            consumer.commit([Outgoing("out", r.key, r.value) for r in records[:2]], {partition: 2})
            consumer.seek(partition, 2)
            _, held = poll_until(consumer, lambda _, records: len(records) == 2)
            own_kafka.kill() if how == "kill" else own_kafka.stop()
            with pytest.raises(TransportError):
                consumer.commit([Outgoing("out", r.key, r.value) for r in held], {partition: 4})
            raised_within_deadline(consumer, TransportError)
            own_kafka.start()

            def is_done() -> bool:
                try:
                    batch = consumer.poll(10, 100)
                    if not batch.records:
                        return partition in batch.at_end and consumer.committed(partition) == 4
                    outputs = [Outgoing("out", r.key, r.value) for r in batch.records]
                    consumer.commit(outputs, {p: span.end for p, span in batch.ranges.items()})
                except TransportError:
                    return False
                return False

            wait_until(is_done)
        log.produce([Outgoing("out", None, b"last")])
        with log.consumer("look", ["out"], member="a") as look:
            _, seen = poll_until(look, lambda _, records: bool(records) and records[-1].value == b"last")
    assert values(seen) == [b"v0", b"v1", b"v2", b"v3", b"last"]


def test_a_broker_that_stands_still_is_not_an_end_of_the_log(own_kafka: KafkaBroker) -> None:
    with LibrdkafkaLog(log_section(own_kafka.bootstrap)) as log:
        log.create_topic("in", 1)
        with log.consumer("g", ["in"], member="a") as consumer:
            poll_until(consumer, lambda batch, _: bool(batch.at_end))
            own_kafka.pause()
            assert raised_within_deadline(consumer, TransportError)
            own_kafka.resume()
            log.close()
        with LibrdkafkaLog(log_section(own_kafka.bootstrap)) as again:
            wait_until(lambda: answers(again))


def test_no_broker_at_all_is_said_soon() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        started = time.monotonic()
        with LibrdkafkaLog(log_section(address)) as log:
            with pytest.raises(TransportError, match="topic in: the brokers do not answer"):
                log.partitions("in")
            with log.consumer("g", ["in"], member="a") as consumer, pytest.raises(TransportError):
                consumer.poll(1, 0)
        assert time.monotonic() - started < 30
