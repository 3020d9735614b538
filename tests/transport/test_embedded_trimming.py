"""What is dropped of the embedded log, and what is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_calib.config import Config
from stream_calib.errors import StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_connection import connect
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.input_partitions import input_key
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneNames, PaneRecord
from stream_calib.windows.registration import INPUTS
from stream_calib.windows.shard_store import Entry
from stream_calib.windows.state_store import Commit
from workers.deployment import state_of
from workers.embedded_trimming import EmbeddedTrimming, least_positions

KEY = ModelKey("m", "1")
DAY_MS = 86_400_000


def record(pane: int, entries: dict[str, Entry]) -> bytes:
    return PaneRecord(pane, {}, {}, {}, entries, 0, 0, 0, "").encode()


def test_a_shard_is_rebuilt_from_the_first_records_or_from_a_pane_s() -> None:
    young, old = MemoryState(), MemoryState()
    inputs = [b'["s:a:0",3,null]', b'["l:b:0",5,null]', b'["l:b:1",0,null]']
    for state in (young, old):
        assert least_positions([state], 4) == {}
        state.commit(Commit(fields={INPUTS: "3"}, appends={INPUTS: inputs}))
        assert least_positions([state], 4) == {"s:a:0": 3, "l:b:0": 5, "l:b:1": 0}
    young.commit(Commit(fields={"first_pane": "10", "matured": "14"}))
    assert least_positions([young], 4) == {"s:a:0": 3, "l:b:0": 5, "l:b:1": 0}
    old.commit(Commit(fields={"first_pane": "10", "matured": "30"}))
    with pytest.raises(StateError, match="pane 26 has no record"):
        least_positions([old], 4)
    entries = {"s:a:0": Entry(26, 70, 1), "l:b:0": Entry(26, 80, 1)}
    old.commit(Commit(blobs={PaneNames.of(26).record: record(26, entries)}))
    assert least_positions([old], 4) == {"s:a:0": 70, "l:b:0": 80, "l:b:1": 0}
    assert least_positions([old, young], 4) == {"s:a:0": 3, "l:b:0": 5, "l:b:1": 0}


@pytest.fixture
def log(redis_url: str) -> Iterator[EmbeddedLog]:
    with EmbeddedLog(redis_url) as made:
        yield made


def test_records_go_when_they_are_old_read_and_not_needed(log: EmbeddedLog, redis_url: str) -> None:
    config = Config.model_validate(
        {
            "model": {"name": KEY.model, "version": KEY.version},
            "windows": {"horizon": "1h", "shards": 1},
            "log": {"kind": "embedded", "url": redis_url},
            "redis": {"url": redis_url},
        }
    )
    topics = sorted(config.topics.model_dump(exclude_none=True).values())
    for topic in topics:
        log.create_topic(topic, 1)
        log.produce([Outgoing(topic, b"k", b"%d" % i) for i in range(100)])
    first_ms = log.read(TopicPartition("scores", 0), 0, 1)[0].append_time_ms
    now_ms = first_ms
    client = connect(config.redis)
    state = state_of(client, config, KEY).store
    trimming = EmbeddedTrimming(log, client, config, lambda: now_ms)

    def begins() -> dict[str, int]:
        trimming.look([KEY])
        found = {topic: log.read(TopicPartition(topic, 0), 0, 1) for topic in topics}
        return {topic: records[0].offset if records else 100 for topic, records in found.items()}

    now_ms += 6 * DAY_MS
    assert set(begins().values()) == {0}
    # What calibrate and monitor have read, and what a wiped shard needs.
    keys = {topic: input_key(log, side, TopicPartition(topic, 0)) for topic, side in (("blocks", "s"), ("labels", "l"))}
    inputs = [b'["%s",0,null]' % key.encode() for key in keys.values()]
    state.commit(Commit(fields={INPUTS: "2", "first_pane": "1", "matured": "20"}, appends={INPUTS: inputs}))
    entries = {keys["blocks"]: Entry(17, 30, 1), keys["labels"]: Entry(17, 60, 1)}
    state.commit(Commit(blobs={PaneNames.of(17).record: record(17, entries)}))
    for group, topic, position in (("calibrate", "scores", 40), ("monitor", "blocks", 50), ("monitor", "labels", 50)):
        with log.consumer(group, [topic], member="a") as consumer:
            consumer.poll(1, 0)
            consumer.commit([], {TopicPartition(topic, 0): position})
    assert set(begins().values()) == {0}
    now_ms += 2 * DAY_MS
    needed = {"scores": 40, "blocks": 30, "labels": 50}
    assert begins() == {topic: needed.get(topic, 100) for topic in topics}
    assert log.end_offset(TopicPartition("alerts", 0)) == 100
    client.close()
