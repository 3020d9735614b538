"""LiveCalibrator on a real Redis: the numbers of calibrate, swaps under way, outages, cold starts, forks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import redis

from stream_calib.errors import NoSnapshotError, RequestError, SnapshotError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.live import BlockWriter, Calibrated, LiveCalibrator
from stream_calib.redis_connection import connect
from stream_calib.snapshot.fit_documents import DerivedDocument
from stream_calib.snapshot.follower import Served
from stream_calib.snapshot.map_documents import FamilyDocument, OffsetDocument
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Record, TopicPartition
from stream_calib.windows.model_registry import ModelRegistry, deployment_scope
from stream_calib.windows.redis_state import RedisState
from tests.integration.live_state import ATTRIBUTES, KEY, config_of, map_of, publish
from workers.calibrate_transform import Transform

pytestmark = pytest.mark.services

DEADLINE_S = 60.0
EU_PHONE = {"region": "eu", "device": "phone"}


def until(condition: Callable[[], Any], what: str) -> Any:
    give_up = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < give_up, f"waited for {what}"
        time.sleep(0.005)
    return found


@pytest.fixture
def calibrator(redis_url: str) -> Iterator[LiveCalibrator]:
    with LiveCalibrator(config_of(redis_url)) as made:
        yield made


def serves(calibrator: LiveCalibrator, version: str) -> Callable[[], bool]:
    return lambda: calibrator.calibrate([0.5]).snapshot == version


# --- what is served


def test_the_same_bits_as_calibrate(redis_client: redis.Redis, redis_url: str) -> None:
    version = publish(redis_client)
    config = config_of(redis_url)
    random = np.random.default_rng(7)
    scores = [*random.random(5_000).tolist(), 0.0, 1.0, 1e-300, -0.0, 1 + 5e-7, 0.1]
    regions, devices = ["eu", "us", "", None, "é", 3], ["phone", "tv", True, None]
    events = [
        {"event_id": i, "score": s, "region": regions[i % 6], "device": devices[i % 4]} for i, s in enumerate(scores)
    ]
    records = [
        Record(TopicPartition("scores", 0), i, None, json.dumps(event).encode(), (), 1_700_000_000_000)
        for i, event in enumerate(events)
    ]
    transform = Transform(config)
    _, batch = transform.decode(records)
    served = Serving(Served(version, 1, map_of(redis_client, version)), "calibrated")
    expected = transform.calibrate(batch, lambda key: served)
    with LiveCalibrator(config) as calibrator:
        together = calibrator.calibrate(scores, events)
        assert (together.snapshot, together.status, together.key) == (version, "calibrated", KEY)
        assert together.refused == {}
        assert together.raw.tobytes() == batch.score.tobytes()
        assert together.probability.tobytes() == expected.probability.tobytes()
        assert len(np.unique(together.probability)) > 1_000
        columns = {name: [event[name] for event in events] for name in ATTRIBUTES}
        assert calibrator.calibrate(np.array(scores), columns).probability.tobytes() == together.probability.tobytes()
        one_by_one = [calibrator.calibrate([s], [e]).probability[0] for s, e in zip(scores[:300], events, strict=False)]
        assert np.array(one_by_one).tobytes() == together.probability[:300].tobytes()


def test_attributes_derived_from_the_event_time(redis_client: redis.Redis, redis_url: str) -> None:
    """Of events with a time the hour is that of their pane, in the zone; of the others it is the hour now."""
    hours = FamilyDocument(
        attributes=("hour_of_day",),
        offsets=tuple(OffsetDocument(values=(f"{hour:02d}",), offset=hour / 10) for hour in range(24)),
    )
    derived = DerivedDocument(names=("hour_of_day",), zone="America/New_York")
    version = publish(redis_client, families=(hours,), derived=derived, pane_ms=3_600_000)
    a_map = map_of(redis_client, version)

    def expected(*hours: str) -> list[float]:
        signatures = [("eu", "phone", hour) for hour in hours]
        return list(a_map.apply(np.full(len(hours), 0.3), np.arange(len(hours)), signatures))

    def hour_now() -> str:
        return datetime.now(ZoneInfo("America/New_York")).strftime("%H")

    times = [1_362_132_000_000, 1_362_132_000_000 - 1, 1_362_132_000_000 + 3_600_000]  # 05:00 and around
    with LiveCalibrator(config_of(redis_url)) as calibrator:
        then = calibrator.calibrate([0.3] * 3, [EU_PHONE] * 3, event_times_ms=times)
        assert then.probability.tolist() == expected("05", "04", "06")
        before, now, after = hour_now(), calibrator.calibrate([0.3], [EU_PHONE]), hour_now()
    assert now.probability[0] in expected(before, after)


def test_bad_events_cost_only_themselves(redis_client: redis.Redis, calibrator: LiveCalibrator) -> None:
    version = publish(redis_client)
    until(serves(calibrator, version), "the snapshot")
    answer = calibrator.calibrate([0.2, float("nan"), 2, "x", 0.4], event_ids=["a", "b", "c", "d", None])
    assert {place: reason.value for place, (reason, _) in answer.refused.items()} == {
        1: "score_invalid",
        2: "score_out_of_range",
        3: "score_invalid",
        4: "id_invalid",
    }
    assert np.isnan(answer.probability).tolist() == np.isnan(answer.raw).tolist() == [False, True, True, True, True]
    assert answer.event_id == ["a", "b", "c", "d", ""]
    assert 0 <= answer.staleness_ms < DEADLINE_S * 1_000
    assert calibrator.calibrate([]).probability.shape == (0,)
    assert calibrator.calibrate([float("nan")]).refused


def test_by_address_alone(redis_client: redis.Redis, redis_url: str) -> None:
    version = publish(redis_client)
    with LiveCalibrator.from_url(redis_url, "m", attributes=ATTRIBUTES) as calibrator:
        answer = calibrator.calibrate([0.5], [EU_PHONE])
    expected = map_of(redis_client, version).apply(np.array([0.5]), np.array([0]), [("eu", "phone")])
    assert answer.snapshot == version
    assert answer.probability.tobytes() == expected.tobytes()


def test_each_answer_is_wholly_by_one_snapshot_while_it_is_swapped(
    redis_client: redis.Redis, calibrator: LiveCalibrator
) -> None:
    scores = np.linspace(0, 1, 101)
    attributes = {"region": ["eu", "us", "x"] * 33 + ["eu", "us"], "device": ["phone"] * 101}
    versions = [publish(redis_client)]
    until(serves(calibrator, versions[0]), "the first snapshot")
    stop = threading.Event()

    def ask() -> list[Calibrated]:
        """One answer for each version that this thread saw, checked to be all alike."""
        seen: dict[str, Calibrated] = {}
        while not stop.is_set():
            answer = calibrator.calibrate(scores, attributes)
            known = seen.setdefault(answer.snapshot, answer)
            assert answer.probability.tobytes() == known.probability.tobytes()
        return list(seen.values())

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        try:
            for n in range(8):
                versions.append(publish(redis_client, level=0.1 * n))
                until(serves(calibrator, versions[-1]), "the swap")
        finally:
            stop.set()
        answers = [answer for future in asking for answer in future.result()]
    assert {answer.snapshot for answer in answers} == set(versions)
    for version in versions:
        signatures = [("eu", "phone"), ("us", "phone"), ("x", "phone")]
        index = np.array([("eu", "us", "x").index(region) for region in attributes["region"]])
        expected = map_of(redis_client, version).apply(scores, index, signatures)
        for answer in answers:
            if answer.snapshot == version:
                assert answer.probability.tobytes() == expected.tobytes()


# --- before the first snapshot, and without one that can be served


def test_before_the_first_snapshot_the_raw_score_is_served_and_marked(calibrator: LiveCalibrator) -> None:
    answer = calibrator.calibrate([0.25, -0.0])
    assert (answer.snapshot, answer.status) == ("", "identity")
    assert answer.probability.tobytes() == np.array([0.25, 0.0]).tobytes()
    assert calibrator.not_ready() is None


def test_waiting_for_the_first_snapshot(redis_client: redis.Redis, redis_url: str) -> None:
    with LiveCalibrator(config_of(redis_url, serving={"bootstrap": "wait", "snapshot_poll": "50ms"})) as calibrator:
        with pytest.raises(NoSnapshotError, match="m/1 has no snapshot yet"):
            calibrator.calibrate([0.5])
        assert "first snapshot of m/1" in (calibrator.not_ready() or "")
        version = publish(redis_client)
        until(lambda: calibrator.not_ready() is None, "the snapshot")
        assert calibrator.calibrate([0.5]).snapshot == version


def test_a_new_version_is_served_by_the_one_before_where_that_is_asked_for(
    redis_client: redis.Redis, redis_url: str
) -> None:
    sections: dict[str, Any] = {
        "model": {"name": "m", "version_path": "v"},
        "serving": {"bootstrap": "previous_version", "snapshot_poll": "50ms"},
    }
    with LiveCalibrator(config_of(redis_url, **sections)) as calibrator:
        first = publish(redis_client)
        assert calibrator.calibrate([0.5], version="1").snapshot == first
        assert not calibrator.answers_at_once(version="2")
        second = calibrator.calibrate([0.5], version="2")
        assert (second.snapshot, second.status) == (first, "previous_version")
        assert calibrator.answers_at_once(version="2")
        own = publish(redis_client, key=ModelKey("m", "2"))
        until(lambda: calibrator.calibrate([0.5], version="2").snapshot == own, "its own snapshot")
        assert calibrator.calibrate([0.5], version="2").status == "calibrated"


def test_a_damaged_snapshot_is_not_served_and_the_one_before_is_served_on(
    redis_client: redis.Redis, redis_url: str
) -> None:
    damaged = publish(redis_client, attributes=("other", "names"), families=())
    with LiveCalibrator(config_of(redis_url)) as calibrator:
        with pytest.raises(SnapshotError, match=damaged):
            calibrator.calibrate([0.5])
        assert damaged in (calibrator.not_ready() or "")
        good = publish(redis_client)
        until(lambda: calibrator.not_ready() is None, "a snapshot that can be served")
        publish(redis_client, attributes=("other", "names"), families=())
        until(lambda: _polls(calibrator, 3), "further looks")
        assert calibrator.calibrate([0.5]).snapshot == good


def _polls(calibrator: LiveCalibrator, count: int) -> bool:
    """Whether so many looks at the state have been taken, told by the staleness that falls back."""
    last = calibrator.calibrate([0.5]).staleness_ms
    for _ in range(count):
        while (now := calibrator.calibrate([0.5]).staleness_ms) >= last:
            last = now
        last = now
    return True


def test_new_keys_are_registered_and_bounded(redis_client: redis.Redis, redis_url: str) -> None:
    config = config_of(redis_url, model={"name_path": "n", "version": "1", "max_keys": 2})
    with LiveCalibrator(config) as calibrator:
        for name in ("a", "b"):
            assert calibrator.calibrate([0.5], model=name).key == ModelKey(name, "1")
        for _ in range(2):
            with pytest.raises(RequestError, match=r"c/1 would be one more than model\.max_keys = 2"):
                calibrator.calibrate([0.5], model="c")
        assert calibrator.calibrate([0.5], model="a").status == "identity"
    registry = ModelRegistry(RedisState(redis_client, deployment_scope(config.log.group_prefix)), 2)
    assert registry.known() == [ModelKey("a", "1"), ModelKey("b", "1")]


# --- outages


def test_redis_killed_and_back(own_redis: EmbeddedServer) -> None:
    with connect(own_redis.url) as client:
        version = publish(client)
    with LiveCalibrator(config_of(own_redis.url)) as calibrator:
        before = calibrator.calibrate([0.5], [EU_PHONE])
        assert before.snapshot == version
        own_redis.kill()
        stale = until(lambda: (a := calibrator.calibrate([0.5], [EU_PHONE])).staleness_ms > 1_000 and a, "staleness")
        assert stale.snapshot == version
        assert stale.probability.tobytes() == before.probability.tobytes()
        assert calibrator.not_ready() is None
        own_redis.start()
        with connect(own_redis.url) as client:
            later = publish(client, level=-1.0)
        until(serves(calibrator, later), "the new snapshot")
        assert calibrator.calibrate([0.5]).staleness_ms < stale.staleness_ms


def test_what_is_held_is_served_for_so_long_and_no_longer(own_redis: EmbeddedServer) -> None:
    with connect(own_redis.url) as client:
        version = publish(client)
    serving = {"snapshot_poll": "50ms", "max_snapshot_staleness": "1500ms"}
    with LiveCalibrator(config_of(own_redis.url, serving=serving)) as calibrator:
        assert calibrator.calibrate([0.5]).snapshot == version
        own_redis.kill()
        ages = []

        def serve_on() -> None:
            while True:
                ages.append(calibrator.calibrate([0.5]).staleness_ms)

        with pytest.raises(StateUnavailableError, match=r"longer than serving\.max_snapshot_staleness"):
            serve_on()
        assert 500 < max(ages) <= 1_500
        assert "max_snapshot_staleness" in (calibrator.not_ready() or "")
        own_redis.start()
        until(lambda: calibrator.not_ready() is None, "the state")
        assert calibrator.calibrate([0.5]).snapshot == version


def test_a_cold_start_without_the_state_is_refused_at_once_and_begins_when_it_is_there(
    own_redis: EmbeddedServer,
) -> None:
    with connect(own_redis.url) as client:
        version = publish(client)
    own_redis.kill()
    with LiveCalibrator(config_of(own_redis.url)) as calibrator:
        for _ in range(3):
            with pytest.raises(StateUnavailableError, match="state"):
                calibrator.calibrate([0.5])
        assert "waits for the state" in (calibrator.not_ready() or "")
        own_redis.start()
        until(lambda: calibrator.not_ready() is None, "the state")
        assert calibrator.calibrate([0.5]).snapshot == version


def test_a_state_that_hangs_holds_no_request_for_long(own_redis: EmbeddedServer) -> None:
    with connect(own_redis.url) as client:
        publish(client)
    sections: dict[str, Any] = {"redis": {"url": own_redis.url, "retries": 0, "socket_timeout": "5s"}}
    with LiveCalibrator(config_of(own_redis.url, **sections)) as calibrator:
        calibrator.calibrate([0.5])
        with connect(own_redis.url) as client:
            client.execute_command("CLIENT", "PAUSE", "4000", "ALL")
        slowest, began = 0.0, time.monotonic()
        while time.monotonic() - began < 2.0:
            asked = time.monotonic()
            staleness_ms = calibrator.calibrate([0.5]).staleness_ms
            slowest = max(slowest, time.monotonic() - asked)
        assert staleness_ms > 1_000
        assert slowest < 1.0


# --- a process's life


def test_a_forked_child_follows_by_itself_and_leaves_the_parents_connection_alone(
    redis_client: redis.Redis, calibrator: LiveCalibrator
) -> None:
    version = publish(redis_client)
    until(serves(calibrator, version), "the snapshot")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            first = calibrator.calibrate([0.5], [EU_PHONE])
            os.write(writer, f"{first.snapshot}\n".encode())
            until(lambda: calibrator.calibrate([0.5]).snapshot != version, "the next snapshot in the child")
            os.write(writer, f"{calibrator.calibrate([0.5]).snapshot}\n".encode())
            calibrator.close()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        assert lines.readline().strip() == version
        later = publish(redis_client, level=-1.0)
        assert lines.readline().strip() == later
    assert os.waitpid(child, 0)[1] == 0
    until(serves(calibrator, later), "the parent")
    last = publish(redis_client, level=1.0)
    until(serves(calibrator, last), "the parent, after the child has ended")


def test_closed(redis_url: str) -> None:
    before = threading.active_count()
    calibrator = LiveCalibrator(config_of(redis_url))
    calibrator.calibrate([0.5])
    calibrator.close()
    calibrator.close()
    with pytest.raises(StateUnavailableError, match="closed"):
        calibrator.calibrate([0.5])
    until(lambda: threading.active_count() == before, "the thread to end")


def test_where_blocks_are_written_ids_are_needed(redis_url: str) -> None:
    log = MemoryLog()
    log.create_topic("live", 1)
    blocks = BlockWriter(lambda: log, "live", lateness_ms=0, clock_records=False)
    with LiveCalibrator(config_of(redis_url), blocks) as calibrator:
        with pytest.raises(RequestError, match="event_ids are needed"):
            calibrator.calibrate([0.5])
        calibrator.calibrate([0.5, 7], event_ids=["a", "b"])
        calibrator.calibrate([8], event_ids=["c"])
    assert len(log.read(TopicPartition("live", 0), 0, 10)) == 1


def test_what_the_pages_show_runs(redis_client: redis.Redis, redis_url: str) -> None:
    version = publish(redis_client, key=ModelKey("churn", "1"))
    root = Path(__file__).parents[2]
    for page in ("README.md", "docs/live.md"):
        shown = re.findall(
            r"^```python\n(.*?)^```", (root / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        (script,) = [block for block in shown if "from_url" in block]
        address = "redis://127.0.0.1:6379"
        assert address in script
        done = subprocess.run(
            [sys.executable, "-c", script.replace(address, redis_url)], check=True, capture_output=True, text=True
        )
        assert done.stdout.split()[-2:] == [version, "calibrated"]
