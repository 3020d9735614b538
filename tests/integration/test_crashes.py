"""Processes and the server die, hang and come back: outputs, classes and cells stay the oracle's."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.expectation import (
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    check_reproduced,
    decided_alike,
)
from tests.integration.findings import Findings, find
from tests.integration.harness import Deployment, Overrides, deployment
from tests.integration.stream import HOUR_MS, EventDay, as_written, last_pane

pytestmark = pytest.mark.services

SETTINGS: Overrides = {
    "log": {"session_timeout": "1s"},
    "serving": {"max_batch_records": 300},
    "windows": {"shards": 2},
}
ROLES = ("calibrate", "monitor", "refit", "alert")


def feed(deployed: Deployment, days: Sequence[EventDay]) -> None:
    """Writes the days, each with its clocks."""
    for day, records in zip(days, as_written(days), strict=True):
        deployed.log.produce(records + deployed.clocks(day.end_ms))


def finish(deployed: Deployment, days: Sequence[EventDay]) -> Findings:
    """Closes the topics, waits until the last pane is decided and all is settled, and reads everything back."""
    deployed.log.produce(deployed.clocks(days[-1].end_ms, end=True))
    deployed.until_served()
    # A refit that was killed holds its lease for half a minute.
    deployed.until(
        lambda: deployed.cursor("decided") == last_pane(days) and not deployed.fields()["open_request"],
        "the last pane to be decided",
        90,
    )
    return find(deployed)


def check_everything(found: Findings, deployed: Deployment) -> None:
    check_one_output_each(found)
    check_cells_and_classes(found, deployed.config)
    check_reproduced(found, deployed.config)
    check_blocks_name_their_snapshot(found)


def test_each_role_is_killed_and_started_again(
    month: list[EventDay], month_run: tuple[Findings, object], tmp_path: Path
) -> None:
    random_, days = random.Random(20130301), month[:12]
    with deployment(tmp_path, SETTINGS) as deployed:
        running = deployed.start_all(*ROLES)
        for part, role in _parts(days, ("calibrate", "monitor", "refit", "monitor", "calibrate", "alert")):
            feed(deployed, part)
            _wait_for_work(deployed, role, random_)
            running[role].kill()
            running[role] = deployed.restart(running[role])
        found = finish(deployed, days)
    check_everything(found, deployed)
    assert decided_alike(found, month_run[0], days)
    assert len(found.versions) >= 1


def _parts(days: Sequence[EventDay], roles: Sequence[str]) -> Iterator[tuple[Sequence[EventDay], str]]:
    size = -(-len(days) // len(roles))
    for i, role in enumerate(roles):
        yield days[i * size : (i + 1) * size], role


def _wait_for_work(deployed: Deployment, role: str, random_: random.Random) -> None:
    """Until the role is at a random place of what it has to do just now."""
    topics = deployed.config.topics
    if role == "refit":
        deployed.until(lambda: deployed.fields()["open_request"], "a request")
    elif role == "alert":
        deployed.until(lambda: deployed.state.store.entries("outbox", 0), "an alert")
    else:
        topic = topics.scores if role == "calibrate" else topics.blocks
        begun = deployed.committed(role, topic)
        until = begun + random_.randrange(1, max(2, deployed.end(topics.scores) // 50))
        deployed.until(
            lambda: deployed.committed(role, topic) >= until or not deployed.lag(role, topic), f"{role} to get on"
        )


def test_processes_are_paused_beyond_their_session(
    month: list[EventDay], month_run: tuple[Findings, object], tmp_path: Path
) -> None:
    """What another process has taken over meanwhile is not done twice by one that wakes up in the middle of it."""
    with deployment(tmp_path, SETTINGS) as deployed:
        pair = {role: [deployed.start(role), deployed.start(role)] for role in ("calibrate", "monitor")}
        deployed.start("refit")
        for role, processes in pair.items():
            deployed.until(lambda role=role: len(deployed.statuses(role)) == 2, f"two of {role}")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
            assert len(processes) == 2
        thirds = [month[:5], month[5:10], month[10:14]]
        feed(deployed, thirds[0])
        deployed.until(lambda: deployed.committed("calibrate", "scores") > 1_000, "calibrate to be in the middle")
        pair["calibrate"][0].pause()
        deployed.until(lambda: deployed.committed("monitor", "labels") > 1_000, "monitor to be in the middle")
        pair["monitor"][0].pause()
        feed(deployed, thirds[1])
        for group, topics in (("calibrate", ("scores",)), ("monitor", ("blocks", "labels"))):
            for topic in topics:
                deployed.until(lambda g=group, t=topic: deployed.lag(g, t) == 0, f"{group} to take over {topic}")  # type: ignore[misc]  # as above
        matured = deployed.cursor("matured")
        last = (thirds[1][-1].end_ms - 25 * HOUR_MS) // HOUR_MS - 1
        deployed.until(lambda: deployed.cursor("matured") > min(matured, last - 1), "another closer to go on")
        pair["calibrate"][0].resume()
        pair["monitor"][0].resume()
        feed(deployed, thirds[2])
        found = finish(deployed, month[:14])
    check_everything(found, deployed)
    assert decided_alike(found, month_run[0], month[:14])


def test_the_server_is_killed(month: list[EventDay], month_run: tuple[Findings, object], tmp_path: Path) -> None:
    """A crash of the server alone loses nothing that it had answered."""
    days = month[:10]
    with deployment(tmp_path, SETTINGS) as deployed:
        deployed.start_all(*ROLES)
        for part, again in ((days[:3], "calibrate"), (days[3:6], "monitor"), (days[6:], "monitor")):
            feed(deployed, part)
            topic = "scores" if again == "calibrate" else "labels"
            begun = deployed.committed(again, topic)
            deployed.until(  # or it has been quicker than this
                lambda b=begun, g=again, t=topic: deployed.committed(g, t) > b or deployed.lag(g, t) == 0,  # type: ignore[misc]  # as above
                "it to get on",
            )
            deployed.server.kill()
            deployed.server.start()
        found = finish(deployed, days)
    check_everything(found, deployed)
    assert decided_alike(found, month_run[0], days)


def test_the_server_loses_its_last_writes(month: list[EventDay], tmp_path: Path) -> None:
    """As after a loss of power: the end of the append-only file is gone. Log and state go back together; producers are
    not told, so what is compared is what lies in the topics then."""
    random_, days = random.Random(20130302), month[:6]
    with deployment(tmp_path, SETTINGS) as deployed:
        deployed.start_all(*ROLES)
        for day in days:
            feed(deployed, [day])
            begun, more = deployed.committed("calibrate", "scores"), random_.randrange(1, 900)
            deployed.until(
                lambda n=begun + more: deployed.committed("calibrate", "scores") >= min(n, deployed.end("scores")),  # type: ignore[misc]  # as above
                "calibrate to get on",
            )
            deployed.server.kill()
            _cut(deployed.folder / "server", random_.choice([1_000, 10_000, 40_000, 100_000]))
            deployed.server.start()
        found = finish(deployed, days)
    check_everything(found, deployed)


def test_the_state_loses_its_last_writes_and_the_log_does_not(
    month: list[EventDay], month_run: tuple[Findings, object], tmp_path: Path
) -> None:
    """The shards, the cursors and the snapshots are older than what was read: everything is derived again."""
    days = month[:12]
    with deployment(tmp_path, SETTINGS, own_state=True) as deployed:
        deployed.start_all(*ROLES)
        for part, cut in ((days[:4], 100_000), (days[4:10], 400_000), (days[10:], 100_000_000)):
            feed(deployed, part)
            deployed.until(lambda: deployed.lag("monitor", "labels") < 500, "monitor to get on")
            deployed.state_server.kill()
            _cut(tmp_path / "state", cut)
            deployed.state_server.start()
        found = finish(deployed, days)
    check_everything(found, deployed)
    assert decided_alike(found, month_run[0], days)


def _cut(data: Path, size: int) -> None:
    """Takes the last bytes off the append-only file."""
    (file,) = (data / "appendonlydir").glob("*.incr.aof")
    with file.open("r+b") as stream:
        stream.truncate(max(0, file.stat().st_size - size))
