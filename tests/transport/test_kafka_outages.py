"""kafka-python's log while the brokers are away, stand still, and come back."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable

import pytest

from stream_calib.errors import TransportError
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.port import Consumer, Outgoing, TopicPartition
from tests.kafka_broker import KafkaBroker
from tests.transport.kafka_logs import kafka_section
from tests.transport.kafka_polling import DEADLINE_S, numbered, poll_until, raised_within_deadline, values

_NOBODY = "127.0.0.1:1"
_IN, _OUT = "in", "out"
_P0 = TopicPartition(_IN, 0)


def open_files() -> int:
    gc.collect()  # of sockets that were still connecting only the garbage collector knows
    return len(os.listdir("/proc/self/fd"))


def until_it_works(work: Callable[[], object]) -> None:
    """What a role does: tries again after each TransportError."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            work()
        except TransportError:
            assert time.monotonic() < deadline
        else:
            return


def read_again(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of the next `count` records, over whatever errors come first."""
    found: list[bytes | None] = []

    def read() -> None:
        found.extend(values(consumer.poll(count, 100).records))
        if len(found) < count:
            raise TransportError("not all of them yet")

    until_it_works(read)
    return found


def test_nobody_there_is_said_and_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kafka")  # records that are kept hold the sockets that they speak of
    with KafkaLog(kafka_section(_NOBODY, client={"bootstrap_timeout_ms": 200})) as log:
        for ask in (
            lambda: log.partitions(_IN),
            lambda: log.produce([Outgoing(_IN, None, b"v")]),
            lambda: log.consumer("g", [_IN], member="a").poll(1, 0),
            log.try_transaction,
        ):
            with pytest.raises(TransportError, match=_NOBODY):
                ask()
        threads, files = threading.active_count(), open_files()
        for _ in range(5):
            with pytest.raises(TransportError):
                log.partitions(_IN)
        assert threading.active_count() <= threads
        assert open_files() <= files


@pytest.mark.parametrize("how", [KafkaBroker.stop, KafkaBroker.kill])
def test_a_member_and_a_writer_go_on_when_the_broker_is_back(
    own_kafka: KafkaBroker, how: Callable[[KafkaBroker], None]
) -> None:
    with KafkaLog(kafka_section(own_kafka.bootstrap)) as log:
        for topic in (_IN, _OUT):
            log.create_topic(topic, 1)
        log.produce(numbered(5, topic=_IN))
        with log.consumer("g", [_IN], member="a") as consumer:
            _, records = poll_until(consumer, lambda _, records: len(records) == 5)
            consumer.commit([Outgoing(_OUT, r.key, r.value) for r in records[:3]], {_P0: 3})
            # The transaction is over to its last marker: a lone broker that dies before does not always end it later.
            assert consumer.committed(_P0) == 3
            how(own_kafka)
            raised_within_deadline(consumer, TransportError)
            with pytest.raises(TransportError):
                consumer.commit([Outgoing(_OUT, r.key, r.value) for r in records[3:]], {_P0: 5})
            with pytest.raises(TransportError):
                log.produce(numbered(1, topic=_IN))
            own_kafka.start()
            assert read_again(consumer, 2) == [b"v3", b"v4"]
            until_it_works(lambda: consumer.commit([Outgoing(_OUT, b"k", b"late")], {_P0: 5}))
            until_it_works(lambda: log.produce(numbered(1, topic=_IN, first=9)))
            assert read_again(consumer, 1) == [b"v9"]
            assert consumer.committed(_P0) == 5
        with log.consumer("look", [_OUT], member="a") as look:
            _, found = poll_until(look, lambda _, records: len(records) == 4)
        assert values(found) == [b"v0", b"v1", b"v2", b"late"]


def test_a_broker_that_stands_still_holds_no_commit_up_for_good(own_kafka: KafkaBroker) -> None:
    with KafkaLog(kafka_section(own_kafka.bootstrap)) as log:
        for topic in (_IN, _OUT):
            log.create_topic(topic, 1)
        log.produce(numbered(2, topic=_IN))
        with log.consumer("g", [_IN], member="a") as consumer:
            poll_until(consumer, lambda _, records: len(records) == 2)
            consumer.commit([Outgoing(_OUT, b"k", b"first")], {_P0: 1})
            threads = threading.active_count()
            own_kafka.pause()
            started = time.monotonic()
            with pytest.raises(TransportError):
                consumer.commit([Outgoing(_OUT, b"k", b"second")], {_P0: 2})
            assert time.monotonic() - started < 15.0  # of which the transaction has 4 s and its end 3 s
            own_kafka.resume()
            assert read_again(consumer, 1) in ([b"v1"], [])
            until_it_works(lambda: consumer.commit([Outgoing(_OUT, b"k", b"third")], {}))
            assert threading.active_count() <= threads
            position = consumer.committed(_P0)
        with log.consumer("look", [_OUT], member="a") as look:
            _, found = poll_until(look, lambda _, records: values(records)[-1:] == [b"third"])
        # The commit was lost as a whole, or it was done as a whole and only its answer was lost.
        assert (values(found), position) in (
            ([b"first", b"third"], 1),
            ([b"first", b"second", b"third"], 2),
        )
