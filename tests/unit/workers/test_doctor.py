from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_calib.config import Config
from stream_calib.errors import TransportError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_checks import size_text
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.cells import ScoredCells
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from workers.deployment import connect_state, state_of
from workers.doctor import Doctor
from workers.doctor_log import events_per_s, log_findings
from workers.doctor_memory import Estimate, estimate, memory_finding, server_memory
from workers.doctor_state import counted_topic_findings, model_findings, server_findings
from workers.findings import Finding
from workers.status_board import MemberStatus
from workers.topic_setup import create_topics

NOW_MS = 1_714_557_600_000


def config_of(**sections: Any) -> Config:
    return Config.model_validate({"model": {"name": "m"}, "windows": {"horizon": "1d"}, **sections})


def by_subject(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


class KafkaLikeLog(MemoryLog):
    """A log in memory that has transactions and settings to be asked about."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now = now_ms
        super().__init__(now_ms=lambda: self.now)
        self.refusal: str | None = None
        self.settings: dict[str, str] = {}

    def try_transaction(self) -> None:
        if self.refusal is not None:
            raise TransportError(self.refusal)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        self.partitions(topic)
        return self.settings


def of_log(log: MemoryLog, config: Config) -> dict[str, Finding]:
    return by_subject(list(log_findings(log, config, "somewhere:9092", lambda: NOW_MS)))


KAFKA = config_of(log={"kind": "kafka"})


# --- the log


def test_a_sound_log_has_only_good_findings() -> None:
    log = KafkaLikeLog()
    create_topics(log, KAFKA)
    log.produce([Outgoing("scores", None, b"x")])
    found = of_log(log, KAFKA)
    assert {f.level for f in found.values()} == {"ok"}
    assert {"log", "transactions", "clock", "topic scores", "topic blocks"} <= found.keys()
    assert "somewhere:9092" in found["log"].what


def test_a_log_that_does_not_answer_is_one_finding() -> None:
    class Away(MemoryLog):
        def partitions(self, topic: str) -> int:
            raise TransportError("nobody there")

    (finding,) = log_findings(Away(), KAFKA, "somewhere:9092", lambda: NOW_MS)
    assert (finding.level, finding.subject) == ("fail", "log")
    assert "nobody there" in finding.what
    assert "somewhere:9092" in finding.what


def test_transactions_that_are_refused_say_what_to_do() -> None:
    log = KafkaLikeLog()
    create_topics(log, KAFKA)
    log.refusal = "not allowed"
    finding = of_log(log, KAFKA)["transactions"]
    assert finding.level == "fail"
    assert "at_least_once" in finding.todo
    assert KAFKA.log.group_prefix in finding.todo
    without = config_of(log={"kind": "kafka", "delivery": "at_least_once"})
    assert of_log(log, without)["transactions"].level == "ok"


def test_a_missing_topic_does_not_end_the_looks() -> None:
    log = KafkaLikeLog()
    create_topics(log, KAFKA)
    log.delete_topic("labels")
    found = of_log(log, KAFKA)
    assert found["topic labels"].level == "fail"
    assert found["transactions"].level == "ok"


def test_records_from_the_future_are_clocks_that_differ() -> None:
    log = KafkaLikeLog(NOW_MS + 90_000)
    create_topics(log, KAFKA)
    log.produce([Outgoing("labels", None, b"x")])
    finding = of_log(log, KAFKA)["clock"]
    assert finding.level == "warn"
    assert "labels has a record of 90 s ahead" in finding.what
    assert "NTP" in finding.todo


def test_a_record_that_came_while_the_log_was_asked_is_not_from_the_future() -> None:
    class Slow(KafkaLikeLog):
        def end_offset(self, partition: TopicPartition) -> int:
            self.now += 10_000
            self.produce([Outgoing(partition.topic, None, b"x", (), partition.partition)])
            return super().end_offset(partition)

    log = Slow()
    create_topics(log, KAFKA)
    found = by_subject(list(log_findings(log, KAFKA, "somewhere:9092", lambda: log.now)))
    assert found["clock"].level == "ok"


def test_a_topic_that_takes_more_than_is_read() -> None:
    log = KafkaLikeLog()
    create_topics(log, KAFKA)
    log.settings = {"max.message.bytes": "10000000"}
    assert of_log(log, KAFKA)["record size"].level == "warn"
    log.settings = {"max.message.bytes": "1048588"}
    assert "record size" not in of_log(log, KAFKA)


def test_the_rate_is_measured_over_the_shortest_span_that_has_events() -> None:
    log = KafkaLikeLog()
    log.create_topic("scores", 2)
    assert events_per_s(log, "scores", NOW_MS) is None
    log.now = NOW_MS - 5 * 3_600_000
    log.produce([Outgoing("scores", None, b"x") for _ in range(864)])
    assert events_per_s(log, "scores", NOW_MS) == (0.01, 86_400_000)
    log.now = NOW_MS - 60_000
    log.produce([Outgoing("scores", None, b"x") for _ in range(7_200)])
    assert events_per_s(log, "scores", NOW_MS) == (2.0, 3_600_000)


# --- memory


def test_memory_is_rate_times_horizon() -> None:
    """10^8 events a day x 14 days are 64 GB of join, where calls bring many rows; here they bring one or two."""
    config = config_of(windows={"horizon": "14d", "shards": 128})
    found = estimate(config, 1e8 / 86_400, [MemoryState()])
    assert 100e9 < found.join_bytes < 150e9
    assert found.cells_bytes_a_day is None
    half = estimate(config_of(windows={"horizon": "14d", "shards": 128}, scores={"sample_rate": 0.5}), 1e8 / 86_400, [])
    assert half.pending_scores == pytest.approx(found.pending_scores / 2, abs=1)
    assert 0.4 < half.join_bytes / found.join_bytes < 0.6


def test_each_score_of_a_record_is_held() -> None:
    both = Config.model_validate(
        {
            "model": {},
            "models": [{"name": "a", "score": "a"}, {"name": "b", "score": "b"}],
            "windows": {"horizon": "1d"},
        }
    )
    assert estimate(both, 10, []).pending_scores == 2 * estimate(config_of(), 10, []).pending_scores
    assert estimate(both, 10, []).total_bytes == pytest.approx(2 * estimate(config_of(), 10, []).total_bytes, abs=1)


def with_panes(first: int, last: int) -> MemoryState:
    """A state with cells of two signatures in each of the panes."""
    state = MemoryState()
    state.put_signatures({7: ("a", "b"), 8: ("a", "c")}, 0)
    scored = ScoredCells.count(np.array([7, 7, 8, 8], np.uint64), np.array([1, 2, 1, 2], np.uint16)).pack()
    blobs = {f"{kind}:{pane}": b"x" * 100 for kind in ("matured", "pane") for pane in range(first, last + 1)}
    blobs |= {f"scored:{pane}": scored for pane in range(first, last + 1)}
    state.commit(Commit(fields={"first_pane": str(first), "matured": str(last)}, blobs=blobs))
    return state


def test_what_cells_take_is_measured() -> None:
    state = with_panes(3, 8)
    (scored,) = state.blobs(["scored:3"])
    assert scored is not None
    found, without = estimate(config_of(), 1.0, [state, MemoryState()]), estimate(config_of(), 1.0, [])
    assert found.cells_bytes_a_day == (200 + len(scored)) * 24
    assert found.join_bytes == pytest.approx(without.join_bytes, rel=0.02)
    # 90 days of panes, and a week until the next checkpoint.
    cells = (found.cells_bytes_a_day or 0) * 97
    assert cells < found.kept_bytes < cells + 3_000_000


def test_nothing_has_matured_where_the_cursor_is_before_the_first_pane() -> None:
    assert estimate(config_of(), 1.0, [with_panes(3, 2)]).cells_bytes_a_day is None


@pytest.mark.parametrize(("limit", "level"), [(None, "ok"), (10**10, "ok"), (11 * 10**8, "warn"), (5 * 10**8, "fail")])
def test_memory_is_held_against_the_servers(limit: int | None, level: str) -> None:
    config = config_of()
    found = estimate(config, 100.0, [])
    assert 6 * 10**8 < found.total_bytes < 11 * 10**8
    finding = memory_finding(found, limit, "as given", config)
    assert finding.level == level
    assert bool(finding.todo) == (level != "ok")


@pytest.mark.parametrize("limit", [3 * 10**8, 5 * 10**8, 8 * 10**8])
def test_the_levers_do_what_they_say(limit: int) -> None:
    config = config_of(windows={"horizon": "1d", "keep_panes": 20})
    todo = memory_finding(estimate(config, 100.0, []), limit, "as given", config).todo
    (rate,) = re.findall(r"scores.sample_rate = ([\d.]+)", todo)
    (horizon,) = re.findall(r'windows.horizon = "(\d+h)"', todo) or ["1h"]
    changed = [config_of(windows={"horizon": "1d", "keep_panes": 20}, scores={"sample_rate": float(rate)})]
    if "windows.horizon" in todo:
        changed.append(config_of(windows={"horizon": horizon, "keep_panes": 20}))
    for keep in re.findall(r"windows.keep_panes = (\d+)", todo):
        changed.append(config_of(windows={"horizon": "1d", "keep_panes": int(keep)}))
    for other in changed:
        # The memory of a key is shared by fewer entries then, so it is not quite in proportion.
        assert 0.75 * limit < 1.5 * estimate(other, 100.0, []).total_bytes < 1.3 * limit


def test_shards_that_are_too_few_are_named() -> None:
    config = config_of(windows={"horizon": "7d", "shards": 2})
    found = estimate(config, 1_000.0, [])
    for limit, level in ((None, "warn"), (10**12, "warn"), (10**9, "fail")):
        finding = memory_finding(found, limit, "as given", config)
        assert finding.level == level
        (shards,) = re.findall(r"windows.shards = (\d+): with 2 a hash", finding.todo)
        more = estimate(config_of(windows={"horizon": "7d", "shards": int(shards)}), 1_000.0, [])
        assert 200 < more.entries_a_hash <= 256
        assert more.join_bytes < found.join_bytes


def test_where_no_sampling_helps_the_kept_panes_are_named() -> None:
    config = config_of()
    found = Estimate(1.0, 1_000, 50_000, 10**9, 95 * 10**9, 1.0)
    finding = memory_finding(found, 10**9, "as given", config)
    assert finding.level == "fail"
    assert "retention.archive (90d now)" in finding.todo
    assert "sample_rate" not in finding.todo


def test_sizes_as_people_read_them() -> None:
    assert [size_text(n) for n in (5_000, 34_000_000, 1_200_000_000, 64_000_000_000)] == [
        "5 kB",
        "34 MB",
        "1.2 GB",
        "64 GB",
    ]


# --- the state


def sections(server: EmbeddedServer) -> dict[str, Any]:
    return {"log": {"url": server.url}, "redis": {"url": server.url}}


def test_the_server_its_memory_and_its_clock(own_redis: EmbeddedServer) -> None:
    config = config_of(**sections(own_redis))
    client = connect_state(config)
    found = by_subject(list(server_findings(client, lambda: time.time_ns() // 1_000_000)))
    assert found["redis clock"].level == "ok"
    assert found["redis eviction"].level == "ok"
    late = by_subject(list(server_findings(client, lambda: time.time_ns() // 1_000_000 - 60_000)))
    assert late["redis clock"].level == "warn"
    assert "60 s ahead of the clock here" in late["redis clock"].what
    client.config_set("maxmemory", 123_000_000)
    assert server_memory(client) == 123_000_000
    client.config_set("maxmemory", 0)
    client.config_set("maxmemory-policy", "allkeys-lru")
    evicting = by_subject(list(server_findings(client, lambda: NOW_MS)))
    assert evicting["redis eviction"].level == "fail"


def test_generation_pin_and_processes_of_model_keys(own_redis: EmbeddedServer) -> None:
    config = config_of(**sections(own_redis))
    client = connect_state(config)
    one, other = ModelKey("m", "1"), ModelKey("m", "2")
    state_of(client, config, other).store.commit(Commit(fields={"generation": "0123456789abcdef"}))
    board = state_of(client, config, one).board
    board.put(MemberStatus("calibrate", "host-1", NOW_MS - 500, {}))
    board.put(MemberStatus("monitor", "host-2", NOW_MS - 120_000, {}))
    found = by_subject(list(model_findings(client, config, [one, other], lambda: NOW_MS)))
    assert found["model m/1"].level == "ok"
    assert found["model m/2"].level == "fail"
    assert "config plan" in found["model m/2"].todo
    assert found["calibrate"].level == "ok"
    assert (found["monitor"].level, found["refit"].level) == ("warn", "warn")
    assert "host-2 silent for" in found["monitor"].what
    assert "--role refit" in found["refit"].todo


def test_a_state_that_counts_other_topics_than_those_of_the_log(own_redis: EmbeddedServer) -> None:
    config = config_of(**sections(own_redis))
    client, log = connect_state(config), KafkaLikeLog()
    create_topics(log, config)
    fresh, sound, other = ModelKey("m", "1"), ModelKey("m", "2"), ModelKey("m", "3")
    blocks, labels = log.topic_id("blocks"), log.topic_id("labels")
    for key, topics in ((sound, f"blocks={blocks} labels={labels}"), (other, f"blocks=gone elsewhere={labels}")):
        state_of(client, config, key).store.commit(Commit(fields={"topics": topics}))
    found = list(counted_topic_findings(client, config, [fresh, sound, other], log))
    assert [(f.level, f.subject) for f in found] == [("fail", "model m/3")] * 2
    assert "blocks (gone), one of that name" in found[0].what
    assert "elsewhere" in found[1].what
    assert "[topics]" in found[1].what


# --- as a whole


def test_a_configuration_with_faults_is_a_finding_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    file.write_text('[model]\nname = "m"\nnaem = "m"\n[windows]\nhorizon = "soon"\n')
    found = list(Doctor(file, None, lambda: NOW_MS).findings())
    assert len(found) == 2
    assert {(f.level, f.subject) for f in found} == {("fail", "configuration")}


def test_what_does_not_depend_on_a_failure_is_looked_at(own_redis: EmbeddedServer, tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    away = "redis://someone:hunter2@127.0.0.1:1/0"
    file.write_text(
        f'[model]\nname = "m"\n[windows]\nhorizon = "1d"\n[log]\nurl = "{away}"\n[redis]\nurl = "{own_redis.url}"\n'
    )
    found = list(Doctor(file, 5.0, lambda: NOW_MS).findings())
    assert by_subject(found)["log"].level == "fail"
    assert by_subject(found)["redis version"].level == "ok"
    assert by_subject(found)["memory needed"].level == "ok"
    assert "hunter2" not in str(found)
    file.write_text(
        f'[model]\nname = "m"\n[windows]\nhorizon = "1d"\n[redis]\nurl = "{away}"\n[log]\nurl = "{own_redis.url}"\n'
    )
    found = list(Doctor(file, 5.0, lambda: NOW_MS).findings())
    assert by_subject(found)["log"].level == "ok"
    assert by_subject(found)["redis"].level == "fail"
    assert "hunter2" not in str(found)
