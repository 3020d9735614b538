"""What the embedded log does when its server dies, loses writes, or an answer is lost on the way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from stream_calib.errors import FencedError, TransportError
from stream_calib.redis_connection import LuaScript, connect
from stream_calib.transport import embedded_append
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.embedded_layout import group_key, stream_key, topic_key
from stream_calib.transport.embedded_lease import Membership
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import Consumer, Outgoing, PolledBatch, TopicPartition
from tests.contract.transports import drain, read_all

P0 = TopicPartition("in", 0)
OUT = TopicPartition("out", 0)


@pytest.fixture
def log(redis_url: str) -> Iterator[EmbeddedLog]:
    with EmbeddedLog(redis_url) as log:
        _fill(log, 100)
        yield log


def _fill(log: EmbeddedLog, count: int) -> None:
    for topic in ("in", "out", "blocks"):
        log.create_topic(topic, 1)
    log.produce([Outgoing("in", b"k", b"v%d" % i) for i in range(count)])


def _echo(batch: PolledBatch) -> list[Outgoing]:
    return [Outgoing(topic, r.key, r.value) for r in batch.records for topic in ("out", "blocks")]


def _commit(consumer: Consumer, batch: PolledBatch) -> None:
    consumer.commit(_echo(batch), {p: span.end for p, span in batch.ranges.items()})


def _values(log: EmbeddedLog, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(log, topic)]


@pytest.mark.parametrize("delay_ms", [0, 15, 30, 45, 60, 90])
def test_a_large_commit_is_all_or_nothing_when_the_server_is_killed(own_redis: EmbeddedServer, delay_ms: int) -> None:
    with EmbeddedLog(own_redis.url) as log:
        _fill(log, 5_000)
        consumer = log.consumer("g", ["in"], member="a")
        batch = consumer.poll(5_000, 0)
        assert len(batch.records) == 5_000
        killer = Timer(delay_ms / 1000, own_redis.kill)
        killer.start()
        try:
            _commit(consumer, batch)
            told = True
        except TransportError:
            told = False
        killer.join()
        own_redis.start()
        done = consumer.committed(P0) == 5_000
        assert done or not told
        expected = [b"v%d" % i for i in range(5_000)] if done else []
        assert _values(log, "out") == _values(log, "blocks") == expected
        again = consumer.poll(5_000, 0)
        assert len(again.records) == (0 if done else 5_000)
        _commit(consumer, again)
        assert _values(log, "out") == _values(log, "blocks") == [b"v%d" % i for i in range(5_000)]


def test_an_append_whose_answer_is_lost_is_done_once(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    real = embedded_append.APPEND

    def twice(*call: Any) -> Any:
        real(*call)
        return real(*call)

    monkeypatch.setattr(embedded_append, "APPEND", twice)
    log.produce([Outgoing("in", b"k", b"last")])
    assert log.end_offset(P0) == 101
    with log.consumer("g", ["in"], member="a") as consumer:
        batch = consumer.poll(1_000, 0)
        _commit(consumer, batch)
        assert len(_values(log, "out")) == 101
        assert consumer.committed(P0) == 101


def test_a_commit_that_may_have_happened_is_settled_by_the_log(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = embedded_append.APPEND

    def done_but_not_told(*call: Any) -> Any:
        real(*call)
        raise TransportError("no answer")

    with log.consumer("g", ["in"], member="a") as consumer:
        batch = consumer.poll(60, 0)
        with monkeypatch.context() as patch:
            patch.setattr(embedded_append, "APPEND", done_but_not_told)
            with pytest.raises(TransportError):
                _commit(consumer, batch)
        with pytest.raises(TransportError, match="go back to the committed positions"):
            _commit(consumer, batch)  # a caller that does not look first is refused, not believed
        assert consumer.position(P0) == 60
        rest = consumer.poll(1_000, 0)
        assert rest.ranges[P0].start == 60
        _commit(consumer, rest)
    assert _values(log, "out") == _values(log, "in")


def test_a_commit_that_arrives_late_changes_nothing(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Callable[[], Any]] = []
    real = embedded_append.APPEND

    def stuck(*call: Any) -> Any:
        held.append(lambda: real(*call))
        raise TransportError("no answer")

    with log.consumer("g", ["in"], member="a") as consumer:
        batch = consumer.poll(1_000, 0)
        with monkeypatch.context() as patch:
            patch.setattr(embedded_append, "APPEND", stuck)
            with pytest.raises(TransportError):
                _commit(consumer, batch)
        _commit(consumer, consumer.poll(1_000, 0))
        assert held[0]() == b"superseded"
    assert _values(log, "out") == _values(log, "in")


def test_a_server_that_lost_writes_makes_its_members_begin_again(own_redis: EmbeddedServer, tmp_path: Path) -> None:
    with EmbeddedLog(own_redis.url) as log:
        _fill(log, 100)
        consumer = log.consumer("g", ["in"], member="a")
        _commit(consumer, consumer.poll(40, 0))
        own_redis.restart()
        shutil.copytree(tmp_path / "redis", tmp_path / "earlier")
        _commit(consumer, consumer.poll(30, 0))
        assert consumer.committed(P0) == 70
        batch = consumer.poll(30, 0)
        own_redis.kill()
        shutil.rmtree(tmp_path / "redis")
        shutil.copytree(tmp_path / "earlier", tmp_path / "redis")
        own_redis.start()
        with pytest.raises(TransportError):
            _commit(consumer, batch)
        with pytest.raises(TransportError, match="lost the last writes"):
            consumer.poll(1_000, 0)
        rest = consumer.poll(1_000, 0)
        assert rest.ranges[P0].start == 40
        _commit(consumer, rest)
        assert _values(log, "out") == _values(log, "in")


def test_a_commit_that_was_lost_alone_is_noticed(log: EmbeddedLog, redis_url: str) -> None:
    """The heartbeat before it was kept: only the position itself shows it."""
    with connect(redis_url) as client, log.consumer("g", ["in"], member="a") as consumer:
        consumer.poll(40, 0)
        consumer.commit([], {P0: 40})
        consumer.poll(30, 0)
        consumer.commit([], {P0: 70})
        client.hset(group_key("g", "in"), "position:0", 40)
        with pytest.raises(TransportError, match="lost the last writes"):
            consumer.poll(1_000, 0)
        assert consumer.poll(1_000, 0).ranges[P0].start == 40


def test_a_loss_is_noticed_when_the_first_answer_after_it_is_lost(
    log: EmbeddedLog, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends the heartbeat again by itself; the second one must not hide what the first has found."""
    real = Membership.send_heartbeat

    def twice(membership: Membership, pipeline: Any) -> None:
        with connect(redis_url) as other, other.pipeline(transaction=False) as lost:
            real(membership, lost)
            lost.execute()
        real(membership, pipeline)

    with connect(redis_url) as client, log.consumer("g", ["in"], member="a") as consumer:
        for _ in range(3):
            consumer.poll(10, 0)
        (writer,) = (key for key in client.keys("log:writer:*") if client.hexists(key, "beat"))
        client.hincrby(writer, "beat", -1)
        monkeypatch.setattr(Membership, "send_heartbeat", twice)
        with pytest.raises(TransportError, match="lost the last writes"):
            consumer.poll(10, 0)
        assert consumer.poll(10, 0).ranges[P0].start == 0


def test_a_restarted_server_is_not_noticed(own_redis: EmbeddedServer) -> None:
    with EmbeddedLog(own_redis.url) as log:
        _fill(log, 100)
        consumer = log.consumer("g", ["in"], member="a")
        batch = consumer.poll(50, 0)
        own_redis.restart()
        _commit(consumer, batch)
        own_redis.restart()
        assert len(drain(consumer)) == 50
        log.produce([Outgoing("in", b"k", b"v")])
        own_redis.restart()
        assert len(drain(consumer)) == 1


def test_a_server_that_is_away_is_a_transport_error_everywhere(own_redis: EmbeddedServer) -> None:
    log = EmbeddedLog(own_redis.url)
    _fill(log, 1)
    consumer = log.consumer("g", ["in"], member="a")
    consumer.poll(1, 0)
    own_redis.kill()
    attempts: list[Callable[[], Any]] = [
        lambda: consumer.poll(1, 0),
        lambda: consumer.commit([], {P0: 1}),
        lambda: consumer.committed(P0),
        lambda: log.produce([Outgoing("in", None, b"v")]),
        lambda: log.end_offset(P0),
        lambda: log.read(P0, 0, 1),
        lambda: log.partitions("in"),
        lambda: log.create_topic("more", 1),
        lambda: EmbeddedLog(own_redis.url),
    ]
    for attempt in attempts:
        with pytest.raises(TransportError, match="no answer from"):
            attempt()
    consumer.close()  # leaving is a courtesy: it must not hide the error that ends the process
    log.close()


def test_a_full_server_writes_nothing(log: EmbeddedLog, redis_url: str) -> None:
    with connect(redis_url) as client, log.consumer("g", ["in"], member="a") as consumer:
        batch = consumer.poll(1_000, 0)
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(TransportError, match="while running embedded_append"):
                _commit(consumer, batch)
        finally:
            client.config_set("maxmemory", "0")
        assert consumer.committed(P0) is None
        assert _values(log, "out") == _values(log, "blocks") == []
        _commit(consumer, consumer.poll(1_000, 0))
        assert _values(log, "out") == _values(log, "in")


def test_a_stream_that_somebody_wrote_to_is_refused_before_any_write(log: EmbeddedLog, redis_url: str) -> None:
    with connect(redis_url) as client, log.consumer("g", ["in"], member="a") as consumer:
        batch = consumer.poll(1_000, 0)
        client.xadd(stream_key(TopicPartition("blocks", 0)), {"foreign": "entry"})
        with pytest.raises(TransportError, match="does not know of"):
            _commit(consumer, batch)
        assert _values(log, "out") == []
        assert consumer.committed(P0) is None


def test_a_lease_of_an_older_token_is_fenced(log: EmbeddedLog, redis_url: str) -> None:
    with connect(redis_url) as client, log.consumer("g", ["in"], member="a") as consumer:
        batch = consumer.poll(10, 0)
        client.hincrby(group_key("g", "in"), "token:0", 1)
        with pytest.raises(FencedError):
            _commit(consumer, batch)
        assert consumer.poll(10, 0).ranges[P0].start == 0


def test_a_partition_that_was_anothers_in_between_begins_where_that_one_stopped(
    log: EmbeddedLog, redis_url: str
) -> None:
    with connect(redis_url) as client, log.consumer("g", ["in"], member="a") as consumer:
        consumer.poll(10, 0)
        client.hset(group_key("g", "in"), mapping={"token:0": 99, "position:0": 7})
        assert consumer.poll(10, 0).ranges[P0].start == 7


def test_trimming_stops_at_what_a_group_still_needs(log: EmbeddedLog) -> None:
    with log.consumer("g", ["in"], member="a") as consumer:
        assert log.trim(P0, 0) == 0
        consumer.poll(30, 0)
        assert log.trim(P0, 50) == 0
        consumer.commit([], {P0: 30})
        assert log.trim(P0, 50) == 30
        assert log.read(P0, 0, 1)[0].offset == 30
        assert len(drain(consumer)) == 70


def test_a_deleted_group_starts_anew_on_a_recreated_topic(log: EmbeddedLog, redis_url: str) -> None:
    with log.consumer("g", ["in"], member="a") as consumer:
        consumer.poll(1, 0)
    log.delete_topic("in")
    log.create_topic("in", 1)
    log.delete_group("g", "in")
    log.produce([Outgoing("in", None, b"new")])
    with log.consumer("g", ["in"], member="a") as consumer:
        assert [r.value for r in drain(consumer)] == [b"new"]
    with connect(redis_url) as client:
        assert client.hget(topic_key("in"), "end:0") == b"1"


def test_growing_a_topic_is_one_way(log: EmbeddedLog) -> None:
    log.grow_topic("in", 3)
    assert log.partitions("in") == 3
    for topic, partitions in (("in", 2), ("none", 4)):
        with pytest.raises(TransportError, match="cannot grow"):
            log.grow_topic(topic, partitions)


def test_scripts_survive_a_flush_of_the_servers_script_cache(log: EmbeddedLog, redis_url: str) -> None:
    with connect(redis_url) as client, log.consumer("g", ["in"], member="a") as consumer:
        client.script_flush()
        batch = consumer.poll(1_000, 0)
        client.script_flush()
        _commit(consumer, batch)
        assert len(batch.records) == 100


def test_scripts_are_package_data() -> None:
    for name in ("topic", "lease", "leave", "append"):
        assert LuaScript("stream_calib.transport", f"embedded_{name}.lua", error_class=TransportError).text
