"""A backlog of large records is read in parts, however many records a poll may bring."""

from __future__ import annotations

import pytest

from stream_calib.transport import embedded_consumer
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.port import Outgoing


def test_a_poll_is_bounded_in_bytes(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_consumer, "_BYTES_A_POLL", 200_000)
    values = [b"%03d" % i + b"x" * 20_000 for i in range(40)] + [b"%03d" % i for i in range(40, 140)]
    with EmbeddedLog(redis_url) as log:
        log.create_topic("in", 1)
        log.produce([Outgoing("in", None, value, (), 0) for value in values])
        with log.consumer("g", ["in"], member="a") as consumer:
            polls = [consumer.poll(1_000, 0).records for _ in range(9)]
    assert [record.value for records in polls for record in records] == values
    assert max(sum(len(record.value or b"") for record in records) for records in polls) < 250_000
    assert max(map(len, polls)) > 20, "small records after large ones come in large polls again"


def test_a_record_above_the_bound_comes_alone(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_consumer, "_BYTES_A_POLL", 1_000)
    with EmbeddedLog(redis_url) as log:
        log.create_topic("in", 1)
        log.produce([Outgoing("in", None, b"x" * 5_000, (), 0) for _ in range(3)])
        with log.consumer("g", ["in"], member="a") as consumer:
            assert [len(consumer.poll(1_000, 0).records) for _ in range(4)] == [1, 1, 1, 0]
