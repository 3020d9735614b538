"""Reading much at once through kafka-python, which pauses partitions of which enough waits here."""

from __future__ import annotations

from collections import Counter

import pytest

from stream_calib.transport import kafka_consumer
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.port import Outgoing
from tests.kafka_services import fresh_name
from tests.transport.kafka_logs import log
from tests.transport.kafka_polling import poll_until

__all__ = ["log"]

PARTITIONS, RECORDS = 4, 3_000


@pytest.mark.parametrize("taken_at_once", [100, 700])
def test_every_partition_is_read_to_its_end(log: KafkaLog, monkeypatch: pytest.MonkeyPatch, taken_at_once: int) -> None:
    """Fetches hold more than is taken of the client at once, so it sets aside what is left of paused partitions."""
    monkeypatch.setattr(kafka_consumer, "_TAKEN_AT_ONCE", taken_at_once)
    topic = fresh_name("much")
    log.create_topic(topic, PARTITIONS)
    log.produce([Outgoing(topic, None, b"%d" % i, (), i % PARTITIONS) for i in range(PARTITIONS * RECORDS)])
    with log.consumer("g", [topic], member="a") as consumer:
        _, records = poll_until(consumer, lambda batch, _: len(batch.at_end) == PARTITIONS, max_records=50)
    assert Counter(record.source.partition for record in records) == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert len({record.value for record in records}) == PARTITIONS * RECORDS
