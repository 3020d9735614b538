"""Processes of serve: what they answered is what the monitor counts; ends, kills, and servers that are away."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stream_calib.events.blocks import unpack
from stream_calib.events.control import is_control
from stream_calib.events.identity import fingerprints
from stream_calib.transport.port import Outgoing, Record
from tests.integration.findings import find, read_topic
from tests.integration.harness import Deployment, Overrides, RoleProcess, deployment
from tests.integration.http_client import Answer, send
from tests.oracle import offline
from tests.redis_servers import free_ports

pytestmark = pytest.mark.services

LIVE = "live-blocks"
SETTINGS: dict[str, dict[str, Any]] = {
    "topics": {"live_blocks": LIVE},
    "serving": {"clock_records": "wall", "snapshot_poll": "50ms"},
    "redis": {"retries": 0, "socket_timeout": "1s"},
    "windows": {
        "pane": "1s",
        "horizon": "3s",
        "score_lateness": "1s",
        "label_lateness": "1s",
        "max_clock_skew": "5s",
        "idle_timeout": "1s",
        "shards": 2,
    },
}
SILENT = 3
"""The label partition that gets nothing."""


@dataclass
class Served:
    """One process of serve, and the ids of the events that it has answered."""

    deployed: Deployment
    process: RoleProcess
    url: str
    answered: set[str] = field(default_factory=set)

    def ask(self, events: list[dict[str, Any]]) -> Answer:
        answer = send(self.url + "/v1/calibrate", {"events": events})
        if answer.status == 200:
            self.answered.update(r["event_id"] for r in answer.content["results"])
        return answer

    def is_ready(self) -> bool:
        try:
            return send(self.url + "/readyz").status == 200
        except OSError:
            return False


def start(deployed: Deployment, settings: Overrides = SETTINGS) -> Served:
    (port,) = free_ports(1)
    file = deployed.write_config(f"serve-{port}.toml", {**settings, "http": {"listen": f"127.0.0.1:{port}"}})
    served = Served(deployed, deployed.start("serve", config_file=file), f"http://127.0.0.1:{port}")
    deployed.until(served.is_ready, "serve to be ready")
    return served


def until_written(served: Served) -> None:
    answered = set(fingerprints(served.answered).tolist())
    served.deployed.until(lambda: answered <= live_rows(served.deployed).keys(), "the rows of what was answered")


def event(event_id: str, i: int, time_ms: int | None) -> dict[str, Any]:
    attributes = {"carrier": f"C{i % 3}", "origin": "EWR", "dest": None if i % 7 else "X"}
    timed = {} if time_ms is None else {"event_time_ms": time_ms}
    return {"event_id": event_id, "score": (i % 97 + 1) / 99, "attributes": attributes, **timed}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def live_rows(deployed: Deployment) -> Counter[int]:
    """Fingerprint -> rows on the topic."""
    return Counter(
        fingerprint
        for part in read_topic(deployed, LIVE)
        for record in part
        if not is_control(record)
        for fingerprint in unpack(record.value or b"").fingerprint.tolist()
    )


def test_the_monitor_counts_what_two_processes_answered_one_of_them_killed(tmp_path: Path) -> None:
    with deployment(tmp_path, SETTINGS) as deployed:
        for role in ("calibrate", "monitor", "monitor"):
            deployed.start(role)
        one, killed = start(deployed), start(deployed)
        deployed.until(lambda: deployed.fields()["first_pane"], "clock records on all partitions")
        asked: dict[str, dict[str, Any]] = {}
        began = now_ms()
        for turn in range(12):
            now = now_ms()
            for served in (one, killed):
                if not served.process.expected:
                    continue
                name = "a" if served is one else "b"
                # Some with a time of their own, some dated when they come, some sent to both.
                events = [event(f"{name}{turn}-{i}", i, now - i * 5 if i % 2 else None) for i in range(30)] + [
                    event(f"both{turn}-{i}", i, now) for i in range(5)
                ]
                events += [event(f"{name}{turn}-future", 1, now + 60_000), event(f"{name}{turn}-past", 1, now - 60_000)]
                asked.update((e["event_id"], e) for e in events)
                assert served.ask(events).status == 200
            labels = [
                Outgoing("labels", b"x", label(f"{name}{turn}-{i}", now + 1 + i * 10, i % 2), (), i % SILENT)
                for name in ("a", "b", "both")
                for i in range(0, 30, 3)
            ]
            deployed.log.produce(labels)
            if turn == 6:
                until_written(killed)
            if turn == 7:
                killed.process.kill()
            deployed.until(lambda n=now: now_ms() >= n + 150, "a moment to pass")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults

        def label_and_look() -> bool:
            deployed.log.produce([Outgoing("labels", b"y", label("nothing", now_ms(), 1), (), 0)])
            return deployed.cursor("matured") >= now // 1_000

        deployed.until(label_and_look, "the last pane with a score to mature")
        assert one.process.terminate() == 0
        found = find(deployed)
        live = read_topic(deployed, LIVE)
    rows = Counter(
        f for part in live for r in part if not is_control(r) for f in unpack(r.value or b"").fingerprint.tolist()
    )
    by_fingerprint = dict(zip(fingerprints(asked).tolist(), asked.values(), strict=True))
    assert rows.keys() <= by_fingerprint.keys()
    # Only what the killed process had answered a moment ago may be missing; only what both were sent is there twice.
    missing = [e["event_id"] for f, e in by_fingerprint.items() if f not in rows]
    assert all(event_id.startswith("b7-") for event_id in missing), missing
    assert {e["event_id"][:4] for f, e in by_fingerprint.items() if rows[f] > 1} <= {"both"}
    assert found.dead_letters == []
    score_logs = [[clock(record) for record in part] for part in found.blocks]
    score_logs += [score_log(part, by_fingerprint, began) for part in live]
    label_logs = [
        [offline.read_label(r.value or b"")._replace(append_ms=r.append_time_ms) for r in part] for part in found.labels
    ]
    expected = offline.compute(score_logs, label_logs, offline.Settings(3_000, 1_000, 1_000, 1_000, 5_000))
    assert int(found.fields["first_pane"] or 0) == expected.first_pane
    assert len(found.matured) > 3
    for pane, cells in found.scored.items():
        assert cells == dict(expected.pane(pane).scored), pane
    for pane, matured in found.matured.items():
        assert matured == expected.pane(pane).matured, pane
    for mine, its in (
        ("accepted", "scores_accepted"),
        ("score_late", "scores_late"),
        ("score_skewed", "scores_skewed"),
    ):
        assert found.totals[mine] == expected.totals[its] > 0
    assert found.totals["labelled"] == expected.totals["labelled"] > 0
    assert found.totals["winners"] == expected.totals["winners"]


def label(event_id: str, time_ms: int, value: int) -> bytes:
    return json.dumps({"event_id": event_id, "ts": time_ms, "label": value}).encode()


def clock(record: Record) -> offline.Score | offline.Clock | offline.End:
    assert is_control(record)
    return offline.Clock(json.loads(record.value or b"")["clock_ms"])


def score_log(
    part: list[Record], asked: dict[int, dict[str, Any]], began_ms: int
) -> list[offline.Score | offline.Clock | offline.End]:
    """What the monitor read: rows with what was asked for, dated as asked for or else when they came."""
    log: list[offline.Score | offline.Clock | offline.End] = []
    for record in part:
        if is_control(record):
            log.append(clock(record))
            continue
        block = unpack(record.value or b"")
        for fingerprint, time_ms in zip(block.fingerprint.tolist(), block.event_time_ms.tolist(), strict=True):
            one = asked[fingerprint]
            if "event_time_ms" in one:
                assert time_ms == one["event_time_ms"]
            else:
                assert began_ms <= time_ms <= record.append_time_ms
            attributes = tuple(one["attributes"][name] or "__missing__" for name in ("carrier", "origin", "dest"))
            score = offline.Score(one["event_id"], time_ms, one["score"], attributes)
            log.append(score._replace(append_ms=record.append_time_ms))
    return log


def test_an_orderly_end_answers_what_comes_and_loses_no_row(tmp_path: Path) -> None:
    with deployment(tmp_path, SETTINGS) as deployed:
        served = start(deployed)
        statuses: list[int] = []
        told = threading.Event()

        def keep_asking() -> None:
            """As a balancer: until /readyz says that it ends."""
            n = 0
            while not told.is_set():
                statuses.append(served.ask([event(f"e{n}", n, None)]).status)
                n += 1
                if not served.is_ready():
                    told.set()

        asking = threading.Thread(target=keep_asking)
        asking.start()
        deployed.until(lambda: len(statuses) > 20, "some answers")
        assert served.process.terminate() == 0
        asking.join()
        assert told.is_set()
        assert set(statuses) == {200}
        assert live_rows(deployed) == Counter(fingerprints(served.answered).tolist())
        assert deployed.statuses("serve") == []


def test_the_log_away_holds_up_no_request_and_its_rows_come_when_it_is_back(tmp_path: Path) -> None:
    with deployment(tmp_path, SETTINGS, own_state=True) as deployed:
        served = start(deployed)
        assert served.ask([event("before", 1, None)]).status == 200
        deployed.until(lambda: live_rows(deployed), "the first row")
        deployed.server.kill()
        for n in range(50):
            assert served.ask([event(f"away{n}", n, None)]).status == 200
        assert served.is_ready()
        told = served.process.output
        deployed.until(lambda: f"rows wait for {LIVE}: " in told.read_text(), "what is wrong to be told")
        waiting = send(served.url + "/metrics").text
        assert "\nstream_calib_live_rows_waiting 50.0\n" in waiting
        deployed.server.start()
        expected = set(fingerprints(served.answered).tolist())
        deployed.until(lambda: live_rows(deployed).keys() == expected, "the rows that waited")
        assert served.process.terminate() == 0


def test_the_state_away_is_said_and_served_on(tmp_path: Path) -> None:
    with deployment(tmp_path, SETTINGS, own_state=True) as deployed:
        served = start(deployed)
        (status,) = deployed.until(lambda: deployed.statuses("serve"), "its status")
        assert status.facts["snapshot"] == ""
        deployed.state_server.kill()

        def stale() -> bool:
            answer = served.ask([event("e", 1, None)])
            assert answer.status == 200
            return bool(answer.content["staleness_ms"] > 1_500)

        deployed.until(stale, "staleness")
        for path in ("/healthz", "/readyz"):
            assert send(served.url + path).status == 200
        deployed.state_server.start()
        deployed.until(lambda: served.ask([event("e", 1, None)]).content["staleness_ms"] < 1_000, "the state")
        assert served.process.terminate() == 0


def test_without_a_topic_for_blocks_no_log_is_needed(tmp_path: Path) -> None:
    without = {name: values for name, values in SETTINGS.items() if name != "topics"}
    with deployment(tmp_path, without, own_state=True) as deployed:
        deployed.server.kill()
        served = start(deployed, without)
        assert served.ask([event("e", 1, None)]).status == 200
        assert served.process.terminate() == 0
        deployed.server.start()


def test_without_an_address_it_says_what_to_do(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        done = deployed.command("serve")
        assert done.returncode == 1
        assert "http.listen is off: give serve an address, with --http host:port or in the file" in done.stderr
