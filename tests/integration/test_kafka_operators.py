"""What operators and others do to the topics and groups of roles that run on a real Kafka."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from stream_calib.config_file import load_config
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from tests.integration.expectation import check_cells, check_one_output_each, check_reproduced
from tests.integration.findings import outputs, read_topic
from tests.integration.harness import Deployment, Overrides, RoleProcess, deployment
from tests.integration.on_kafka import PATIENCE_S, SETTINGS, Feed, check_everything
from tests.integration.stream import EventDay
from tests.kafka_broker import KafkaBroker
from tests.kafka_services import fresh_name
from workers.deployment import open_gaps, open_log

pytestmark = [pytest.mark.services, pytest.mark.timeout(1_200)]

DEEP = b'{"event_id":"deep","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LARGE = b'{"event_id":"large","x":"' + b"x" * 10_000_000 + b'"}'


@pytest.fixture
def admin(kafka: KafkaBroker) -> Iterator[Any]:
    made = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    yield made
    made.close()


def said(deployed: Deployment, process: RoleProcess, text: str) -> None:
    deployed.until(lambda: text in process.output.read_text(), f"{process.output.name} to say {text!r}", PATIENCE_S)


def ended(deployed: Deployment, process: RoleProcess) -> str:
    """What the process said, once it has ended by itself with an error."""
    process.expected = False
    deployed.until(lambda: process.process.poll() is not None, f"{process.output.name} to end", PATIENCE_S)
    assert process.process.returncode == 1
    return process.output.read_text()


def test_open_transactions_bad_values_and_added_partitions(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random, admin: Any
) -> None:
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        running = deployed.start_all("calibrate", "monitor", "refit")
        feed = Feed(deployed, some_days, fault_random)
        feed.write()
        _hold_back(deployed, running, kafka, feed)
        _write_bad(deployed)
        feed.catch(running["calibrate"])
        feed.catch(running["monitor"])
        _grow(deployed, admin)
        feed.write()  # what is in the new partitions before anybody has noticed them
        assert all(deployed.log.end_offset(p) > 0 for p in _added(deployed))
        for process in running.values():
            process.resume()
        found = feed.finish()
    check_everything(found, deployed)
    reasons = Counter((topic, dict(r.headers)["stream-calib-reason"]) for r, (topic, *_) in _refused(found))
    topics = deployed.config.topics
    assert reasons == {(t, r): 1 for t in (topics.scores, topics.labels) for r in (b"too_large", b"too_deep")}
    assert {number for _, number in found.first_clocks} == {4, 5}


def _refused(found: Any) -> list[tuple[Record, tuple[str, int, int]]]:
    return list(zip(found.dead_letters, found.refused, strict=True))


def _hold_back(deployed: Deployment, running: dict[str, RoleProcess], kafka: KafkaBroker, feed: Feed) -> None:
    """Somebody else's transaction stays open on both inputs, then is aborted."""
    topics = deployed.config.topics
    foreign: Any = KafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=fresh_name("foreign"), transaction_timeout_ms=600_000
    )
    try:
        foreign.init_transactions()
        foreign.begin_transaction()
        for topic in (topics.scores, topics.labels):
            foreign.send(topic, b"never to be read", partition=0)
        foreign.flush(timeout=30)
        feed.write()
        for role in ("calibrate", "monitor"):
            said(deployed, running[role], "an open transaction of another producer has held back the records")
        foreign.abort_transaction()
    finally:
        foreign.close()


def _write_bad(deployed: Deployment) -> None:
    settings: Overrides = {**SETTINGS, "log.client": {"max_request_size": 20_000_000}}
    config = load_config(deployed.write_config("large.toml", settings), deployed.environ)
    topics = deployed.config.topics
    with open_log(config) as producer:
        producer.produce([Outgoing(t, None, v, (), 1) for t in (topics.scores, topics.labels) for v in (LARGE, DEEP)])


def _added(deployed: Deployment) -> list[TopicPartition]:
    topics = deployed.config.topics
    return [TopicPartition(topic, number) for topic in (topics.scores, topics.labels) for number in (4, 5)]


def _grow(deployed: Deployment, admin: Any) -> None:
    """To six partitions; blocks first."""
    topics = deployed.config.topics
    for topic in (topics.blocks, topics.calibrated, topics.scores, topics.labels):
        admin.create_partitions({topic: 6})
        deployed.until(lambda t=topic: deployed.log.partitions(t) == 6, f"{topic} to have grown", PATIENCE_S)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def test_offsets_are_reset_by_hand(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random, admin: Any
) -> None:
    """The monitor's: nothing changes. Calibrate's: outputs come again, which is what was asked for, and the join does
    not count them again."""
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        calibrate, monitor = deployed.start("calibrate"), deployed.start("monitor")
        deployed.start("refit")
        topics, feed = deployed.config.topics, Feed(deployed, some_days, fault_random)
        feed.write(2)
        feed.until_done("calibrate")
        feed.catch(monitor)
        monitor.resume()
        assert monitor.terminate(30) == 0
        everywhere = [TopicPartition(topic, n) for topic in (topics.blocks, topics.labels) for n in range(4)]
        _reset(
            deployed, admin, "monitor", {p: deployed.log.end_offset(p) if p.partition % 2 else 0 for p in everywhere}
        )
        deployed.start("monitor")

        feed.until_done("calibrate")
        assert calibrate.terminate(30) == 0
        again = TopicPartition(topics.scores, 0)
        until = (deployed.log.group_positions("calibrate", topics.scores) or {})[0]
        _reset(deployed, admin, "calibrate", {again: 0})
        deployed.start("calibrate")
        found = feed.finish()
    check_cells(found, deployed.config)
    check_reproduced(found, deployed.config)
    times = Counter(output.source for output in found.outputs)
    assert until > 300
    assert all(n == (2 if partition == 0 and offset < until else 1) for (partition, offset), n in times.items())


def _reset(deployed: Deployment, admin: Any, group: str, positions: dict[TopicPartition, int]) -> None:
    offsets = {KafkaPartition(*p): OffsetAndMetadata(offset, "", -1) for p, offset in positions.items()}
    admin.alter_group_offsets(f"{deployed.config.log.group_prefix}.{group}", offsets)


def test_retention_passes_the_positions(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random, admin: Any
) -> None:
    """Each role ends and says what is gone; where it is told to skip it goes on, with the gap on record."""
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        skip = deployed.write_config("skip.toml", {**SETTINGS, "log": {"on_position_lost": "skip"}})
        deployed.start("refit")
        running = [deployed.start("calibrate"), deployed.start("monitor")]
        topics, feed = deployed.config.topics, Feed(deployed, some_days, fault_random)
        feed.write(2)
        feed.until_done("calibrate")
        deployed.until(lambda: deployed.lag("monitor", topics.labels) == 0, "monitor to have all", PATIENCE_S)
        for process in running:
            assert process.terminate(30) == 0
        ends = {t: deployed.log.end_offset(TopicPartition(t, 0)) for t in (topics.scores, topics.labels)}
        feed.write()
        before = {t: read_topic(deployed, t) for t in ends}
        left_from = {t: end + 60 for t, end in ends.items()}
        admin.delete_records({KafkaPartition(t, 0): offset for t, offset in left_from.items()})

        for role, topic in (("calibrate", topics.scores), ("monitor", topics.labels)):
            gone = f"{topic}-0: the records {ends[topic]} to {left_from[topic] - 1} are gone"
            assert gone in ended(deployed, deployed.start(role))
            deployed.start(role, config_file=skip)
        found = feed.finish()
        gaps = {
            (g.role, g.topic, g.partition, g.first, g.end)
            for g in open_gaps(deployed.state.client, deployed.config).all()
        }
    assert gaps == {
        (role, topic, 0, ends[topic], left_from[topic])
        for role, topic in (("calibrate", topics.scores), ("monitor", topics.labels))
    }
    # What was read before it was trimmed counts.
    for part, topic in ((found.scores, topics.scores), (found.labels, topics.labels)):
        part[0][:0] = [record for record in before[topic][0] if record.offset < ends[topic]]
    check_everything(found, deployed)


def test_topics_are_made_anew(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random, admin: Any
) -> None:
    """Going on would count other records, so each role ends and says so. Started again, monitor ends again: its
    positions are with the state. Kafka has dropped calibrate's positions with the topic, so it serves the new one."""
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        running = {"calibrate": deployed.start("calibrate"), "monitor": deployed.start("monitor")}
        topics, feed = deployed.config.topics, Feed(deployed, some_days, fault_random)
        feed.write()
        for role in running:
            feed.until_done(role)
        deployed.until(lambda: deployed.lag("monitor", topics.labels) == 0, "positions to be committed", PATIENCE_S)
        for role, topic in (("calibrate", topics.scores), ("monitor", topics.labels)):
            running[role].expected = False
            then = deployed.log.topic_id(topic)
            admin.delete_topics([topic])
            deployed.until(lambda t=topic, i=then: _made_anew(deployed, t, i), "the new topic", PATIENCE_S)  # type: ignore[misc]  # as above
            check_said_to_be_another(ended(deployed, running[role]), topic)
        check_said_to_be_another(ended(deployed, deployed.start("monitor")), topics.labels)
        before = Counter(output.source for output in outputs(deployed))
        deployed.start("calibrate")
        feed.write()
        feed.until_done("calibrate")
        due = _score_places(read_topic(deployed, topics.scores))
        assert Counter(output.source for output in outputs(deployed)) - before == dict.fromkeys(due, 1)


def check_said_to_be_another(words: str, topic: str) -> None:
    """By the transport, or by the state where the role has just looked at that again."""
    assert topic in words
    assert "topic was deleted and created again" in words or f"{topic} was deleted and created again" in words


def _made_anew(deployed: Deployment, topic: str, then: str) -> bool:
    deployed.log.create_topic(topic, 4)
    return deployed.log.topic_id(topic) != then


def test_two_processes_under_one_static_identity(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random
) -> None:
    """The older one says so and stands aside; nothing is served twice."""
    with deployment(tmp_path, SETTINGS, kafka=kafka) as deployed:
        named = deployed.write_config("named.toml", {**SETTINGS, "log": {"instance_id": "pod-0"}})
        deployed.start_all("monitor", "refit")
        older = deployed.start("calibrate", config_file=named)
        feed = Feed(deployed, some_days[:4], fault_random)
        feed.catch(older)
        older.resume()
        deployed.start("calibrate", config_file=named)
        said(deployed, older, "as pod-0: each process needs a log.instance_id of its own; end one of the two")
        found = feed.finish()
    check_one_output_each(found)
    check_cells(found, deployed.config)


def test_at_least_once(
    some_days: list[EventDay], kafka: KafkaBroker, tmp_path: Path, fault_random: random.Random
) -> None:
    """Killed between outputs and positions: some outputs come twice, none is missing, and the join counts each once."""
    settings = {**SETTINGS, "log": {"delivery": "at_least_once"}}
    with deployment(tmp_path, settings, kafka=kafka) as deployed:
        deployed.start_all("monitor", "refit")
        feed = Feed(deployed, some_days, fault_random)
        for _ in range(2):
            killed = deployed.start("calibrate", module="tests.integration.killed_between")
            killed.expected = False
            feed.write()
            deployed.until(lambda p=killed: p.process.poll() is not None, "calibrate to be killed", PATIENCE_S)  # type: ignore[misc]  # as above
            assert killed.process.returncode == -9
        calibrate = deployed.start("calibrate")
        feed.catch(calibrate)
        calibrate.kill()
        deployed.restart(calibrate)
        found = feed.finish()
    times = Counter(output.source for output in found.outputs)
    due = _score_places(found.scores)
    assert set(times) == due
    assert sum(n > 1 for n in times.values()) >= 2
    events: dict[tuple[int, int], set[str]] = {}
    for output in found.outputs:
        events.setdefault(output.source, set()).add(json.dumps([output.event["event_id"], output.served["raw"]]))
    assert all(len(same) == 1 for same in events.values())
    check_cells(found, deployed.config)
    check_reproduced(found, deployed.config)


def _score_places(scores: Sequence[Sequence[Record]]) -> set[tuple[int, int]]:
    return {
        (r.source.partition, r.offset) for part in scores for r in part if "stream-calib-kind" not in dict(r.headers)
    }
