"""The processes that read a backtest's topics, on a real Kafka."""

from __future__ import annotations

from contextlib import closing
from multiprocessing import active_children

import pytest

from stream_calib.backtest.topics import reader_processes
from stream_calib.backtest.topics.feed import TopicFeed
from stream_calib.backtest.topics.partition_reading import (
    OwnReadings,
    PartitionPlan,
    ReadBatch,
    partition_readings,
)
from stream_calib.backtest.topics.reader_processes import ReaderProcesses
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.port import OffsetRange, Outgoing, TopicPartition
from tests.kafka_services import fresh_name
from tests.transport.kafka_logs import kafka_section
from tests.unit.backtest.test_topic_feed import CONFIG, KEY, MAY_2024_MS, Topics, rows
from tests.unit.backtest.test_topic_readers import all_of

PARTITIONS, TIMES_MS = 2, range(MAY_2024_MS, MAY_2024_MS + 700)


def written(log: KafkaLog) -> list[PartitionPlan]:
    """Blocks and labels on two partitions each, and what is to be read of them."""
    made, plans = Topics(PARTITIONS), []
    for partition in range(PARTITIONS):
        made.scores(partition, *TIMES_MS)
        made.labels(partition, *TIMES_MS)
    for topic in ("blocks", "labels"):
        name = fresh_name(topic)
        log.create_topic(name, PARTITIONS)
        for partition in range(PARTITIONS):
            records = made.log.read(TopicPartition(topic, partition), 0, len(TIMES_MS))
            log.produce([Outgoing(name, None, record.value, (), partition) for record in records])
            span = OffsetRange(5, len(TIMES_MS) - 7)
            plans.append(
                PartitionPlan(
                    f"{topic[0].replace('b', 's')}:x:{partition}", TopicPartition(name, partition), span, None
                )
            )
    return plans


def test_processes_give_the_batches_of_one(kafka_bootstrap: str) -> None:
    with KafkaLog(kafka_section(kafka_bootstrap)) as log:
        plans = written(log)
        own = all_of(OwnReadings(partition_readings(log, plans, CONFIG, KEY)), plans)
        with closing(ReaderProcesses(log.opener(), CONFIG, KEY, plans, 2)) as readings:
            found = all_of(readings, plans)
    assert found == own
    assert len(found) > len(plans)


def test_a_feed_that_reads_by_processes_is_the_feed_of_one(
    kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `backtest` has it, where there are records enough."""
    places: list[int] = []
    next_ = ReaderProcesses.next

    def counted(readings: ReaderProcesses, place: int) -> ReadBatch:
        places.append(place)
        return next_(readings, place)

    with KafkaLog(kafka_section(kafka_bootstrap)) as log:
        blocks, labels = dict.fromkeys(plan.source.topic for plan in written(log))
        topics = CONFIG.topics.model_copy(update={"blocks": blocks, "labels": labels})
        config = CONFIG.model_copy(update={"topics": topics})
        with TopicFeed(log, config, KEY) as feed:
            own = rows(feed)
        monkeypatch.setattr(reader_processes, "_FEWEST_OFFSETS", 0)
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
        monkeypatch.setattr(ReaderProcesses, "next", counted)
        with TopicFeed(log, config, KEY) as feed:
            assert rows(feed) == own
    assert set(places) == {0, 1, 2, 3}
    assert not active_children()
