"""Snapshots are swapped while scores flow: by refits, by hand, and back again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from stream_calib.snapshot.decision_log import Request, Settled, decode_entry
from stream_calib.snapshot.operator_entries import Manual, Rollback
from tests.integration.expectation import (
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    check_reproduced,
)
from tests.integration.findings import Findings, find, outputs
from tests.integration.harness import Deployment, Overrides, deployment
from tests.integration.stream import EventDay, as_written, last_pane
from workers.backtest_verify import verify_live

pytestmark = pytest.mark.services

SETTINGS: Overrides = {
    "log": {"session_timeout": "2s"},
    "serving": {"max_batch_records": 150, "output": "enrich"},
    "refit": {"max_age": "12h", "level_cadence": "3h", "gate_margin": 0.5},
}
FIRST_DAYS = 12
CHUNK = 200
PAUSE_SHARE = 0.06
"""Of the time so far, between two chunks."""


def test_swaps_while_scores_flow(month: list[EventDay], tmp_path: Path) -> None:
    days = month[:28]
    with deployment(tmp_path, SETTINGS) as deployed:
        for role in ("calibrate", "calibrate", "monitor", "refit", "alert"):
            deployed.start(role)
        _write(deployed, days[:FIRST_DAYS])
        deployed.until(lambda: deployed.fields()["current"], "a first snapshot")
        first = deployed.state.snapshots.history()[0]["version"]
        with _flowing(deployed, days[FIRST_DAYS:]):
            for n in range(3):
                _ask_for_a_refit(deployed, f"by hand, {n}")
            rollbacks = _roll_back(deployed, first)
            _ask_for_a_refit(deployed, "after the rollback")
        deployed.log.produce(deployed.clocks(days[-1].end_ms, end=True))
        deployed.until(
            lambda: deployed.cursor("decided") == last_pane(days) and not deployed.fields()["open_request"],
            "the last pane to be decided",
        )
        found = find(deployed)
        again = verify_live(deployed.log, deployed.config, deployed.state.model_key, deployed.state.store)
    # A backtest of the topics beside the decision log: what people did happens at its panes, and everything else again.
    assert again.differences == []
    assert (again.decided, again.entries) == (last_pane(days), len(found.decisions))
    check_one_output_each(found)
    check_cells_and_classes(found, deployed.config)
    check_blocks_name_their_snapshot(found)
    by_version = check_reproduced(found, deployed.config)
    assert len(by_version) >= 4
    _check_enriched(found)
    _check_log(found, first, rollbacks)


def _write(deployed: Deployment, days: list[EventDay]) -> None:
    for day, records in zip(days, as_written(days), strict=True):
        deployed.log.produce(records + deployed.clocks(day.end_ms))


@contextmanager
def _flowing(deployed: Deployment, days: list[EventDay]) -> Iterator[None]:
    """Scores and labels flow, as fast as they are served, as long as the block runs; then the rest at once."""
    stop = Event()
    began = time.monotonic() - 1.0

    def feed() -> None:
        for day, records in zip(days, as_written(days), strict=True):
            for start in range(0, len(records), CHUNK):
                deployed.log.produce(records[start : start + CHUNK])
                if not stop.is_set():
                    deployed.until(lambda: stop.is_set() or deployed.lag("calibrate", "scores") < CHUNK, "calibrate")
                    # The longer the block takes, the slower: so the days do not run out before it has ended.
                    stop.wait(PAUSE_SHARE * (time.monotonic() - began))
            deployed.log.produce(deployed.clocks(day.end_ms))
            if not stop.is_set():
                # So that the days do not run out before the block has ended.
                deployed.until(
                    lambda: (
                        stop.is_set()
                        or (
                            deployed.lag("monitor", "blocks") < 20
                            and not deployed.fields()["open_request"]
                            and deployed.cursor("decided") == deployed.cursor("matured")
                        )
                    ),
                    "the day's decisions",
                )

    with ThreadPoolExecutor(1) as pool:
        feeding: Future[None] = pool.submit(feed)
        try:
            yield
        finally:
            stop.set()
            feeding.result()


def _ask_for_a_refit(deployed: Deployment, reason: str) -> None:
    """By the command line; until it has an answer."""
    answered = len(deployed.state.snapshots.reports())
    done = deployed.command("refit", "--model", "flights", "--reason", reason, "--actor", "tester")
    assert done.returncode == 0, done.stderr
    assert "is asked for" in done.stdout
    deployed.until(
        lambda: any(r.reason == "manual" for r in deployed.state.snapshots.reports()[answered:]), "the manual refit"
    )


def _roll_back(deployed: Deployment, version: str) -> int:
    """By the command line, until it is served; again where a refit has replaced it before calibrate took it up. Returns
    how often."""
    before, times = {output.source for output in outputs(deployed)}, 0

    def is_served() -> bool:
        return any(o.served["snapshot"] == version for o in outputs(deployed) if o.source not in before)

    def rolled_back() -> bool:
        nonlocal times
        if deployed.fields()["current"] != version and not is_served():
            done = deployed.command("snapshot", "rollback", version, "--reason", "a test", "--actor", "tester")
            assert done.returncode == 0, done.stderr
            assert version in done.stdout
            times += 1
        return is_served()

    deployed.until(rolled_back, "outputs after the rollback")
    return times


def _check_enriched(found: Findings) -> None:
    """The user's fields are as they were."""
    events = {(r.source.partition, r.offset): r.value for part in found.scores for r in part}
    for output in found.outputs:
        rest = {name: value for name, value in output.event.items() if name != "stream_calib"}
        assert rest == json.loads(events[output.source] or b"")


def _check_log(found: Findings, first: str, rollbacks: int) -> None:
    """Each request has one answer; each manual action is in the log; a rollback stands until the next publication."""
    entries = [decode_entry(raw) for raw in found.decisions]
    asked = [entry.id for entry in entries if isinstance(entry, Request)]
    answered = [entry.request_id for entry in entries if isinstance(entry, Settled)]
    assert asked == answered
    assert sum(isinstance(entry, Request) and entry.reason == "manual" for entry in entries) == 4
    assert sum(isinstance(entry, Manual) for entry in entries) == 4
    assert [entry.version for entry in entries if isinstance(entry, Rollback)] == [first] * rollbacks
    kinds = {entry.kind for entry in entries if isinstance(entry, Request)}
    assert kinds == {"structure", "level"}
    moves = [(move["what"], move["version"]) for move in found.history]
    at = moves.index(("rollback", first))
    assert found.history[at]["actor"] == "tester"
    assert all(
        move["before"] == before["version"] for before, move in zip(found.history, found.history[1:], strict=False)
    )


def test_calibrate_waits_for_a_first_snapshot_where_it_is_told_to(month: list[EventDay], tmp_path: Path) -> None:
    """... and until somebody has approved it, where that is asked for."""
    with deployment(tmp_path, {"refit": {"publish": "approve"}}) as deployed:
        wait = deployed.write_config("wait.toml", {"serving": {"bootstrap": "wait"}})
        waiting = deployed.start("calibrate", config_file=wait)
        _write(deployed, month[:FIRST_DAYS])
        deployed.until(lambda: deployed.statuses("calibrate"), "calibrate to be there")
        assert outputs(deployed) == []
        # One that does not wait serves what is there, so that a snapshot can be made.
        ready = [deployed.start(role) for role in ("calibrate", "monitor", "refit")]
        deployed.until(lambda: deployed.state.snapshots.log().held, "a candidate that is held")
        assert deployed.statuses("calibrate")
        assert not deployed.fields()["current"]
        candidate = next(iter(deployed.state.snapshots.log().held))
        done = deployed.command("snapshot", "approve", candidate, "--reason", "looks right", "--actor", "tester")
        assert done.returncode == 0, done.stderr
        assert deployed.fields()["current"] == candidate
        deployed.until(lambda: all(s.facts["partitions"] for s in deployed.statuses("calibrate")), "both to serve")
        for one in (waiting, *ready):
            assert one.terminate() == 0
        before = outputs(deployed)
        version = deployed.fields()["current"]
        # Now it is there from the start, and serves it at once.
        _write(deployed, month[FIRST_DAYS : FIRST_DAYS + 1])
        deployed.start("calibrate", config_file=wait)
        deployed.until_served()
        known = {output.source for output in before}
        later = [output for output in outputs(deployed) if output.source not in known]
    assert len(later) > 900
    assert {output.served["snapshot"] for output in later} == {version}
