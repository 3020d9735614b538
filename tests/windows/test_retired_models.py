"""Model keys that are retired while monitors run, and that come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stream_calib.errors import ConfigurationError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.redis_removal import delete_state
from stream_calib.windows.state_store import Commit
from tests.oracle.offline import Label, Score
from tests.outbox import events
from tests.unit.alerts.receivers import event
from tests.windows.monitors import A, B, Monitored, at, monitored
from workers import cli_retirement, retirement
from workers.cli import app
from workers.deployment import open_deployment_store, open_registry
from workers.monitor_models import MonitorModels
from workers.retirement import Retirements
from workers.role import wall_clock_ms
from workers.status_board import MemberStatus

pytestmark = pytest.mark.services


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "QUIET_MS", 30_000)
    monkeypatch.setattr(retirement, "_SILENT_MS", 100)


@contextmanager
def deployed(redis_url: str, monkeypatch: pytest.MonkeyPatch, **sections: Any) -> Iterator[Monitored]:
    """Both keys have had traffic, and then only B."""
    with monitored(redis_url, monkeypatch, partitions=1, serving={"snapshot_poll": "100ms"}, **sections) as m:
        m.aborts = 0
        m.clocks(0)
        m.traffic([A, B], 0, 30)
        m.traffic([B], 30, 90, seed=2)
        m.start()
        m.until_applied(A, B)
        yield m


def retire(m: Monitored, key: ModelKey) -> None:
    Retirements(m.client, m.config).retire(key, m.log)


def models_of(m: Monitored) -> MonitorModels:
    (monitor,) = m.monitors
    return monitor._models


def until_let_go(m: Monitored, key: ModelKey) -> None:
    m.until(lambda: key not in models_of(m), f"{key} to be let go")


def test_a_retired_key_is_let_go_and_the_others_go_on(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with deployed(redis_url, monkeypatch) as m:
        stood = m.positions(A, m.at("blocks", 0))
        m.state(A).store.commit(Commit(appends={"outbox": [event("open", "no_scores", key=A).encode()]}))
        retire(m, A)
        until_let_go(m, A)
        (closed,) = events(open_deployment_store(m.client, m.config))
        assert (closed.state, closed.dedup_key) == ("close", event("open", "no_scores", key=A).dedup_key)
        assert m.known() == [B]
        assert m.state(A).board.all(at(0)) == []
        assert m.state(A).store.acquire_lease("closer", "another", 1_000) is not None
        m.traffic([B], 90, 130, seed=3)
        m.clocks(None)
        m.until_applied(B)
        m.until_matured(120, B)
        assert m.check(B) >= 10
        assert m.positions(A, m.at("blocks", 0)) == stood
        assert m.known() == [B]


def test_blocks_of_before_that_are_read_again_do_not_bring_it_back(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployed(redis_url, monkeypatch) as m:
        retire(m, A)
        until_let_go(m, A)
        m.stop(m.monitors[0])
        assert delete_state(m.client, B, lambda: None)
        m.start()
        m.clocks(None)
        m.until_applied(B)
        m.until_matured(80, B)
        assert m.check(B) >= 8, "by the clock of the blocks of the other, too"
        assert m.known() == [B]
        assert A not in models_of(m)
        assert m.log.end_offset(m.at("dead-letters", 0)) == 0


def test_new_traffic_brings_it_back_with_its_state_though_the_log_has_moved_on(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployed(redis_url, monkeypatch) as m:
        first_pane = m.cursor(A, "first_pane")
        retire(m, A)
        until_let_go(m, A)
        m.traffic([B], 90, 130, seed=3)
        m.until_applied(B)
        for topic in ("blocks", "labels"):
            m.operator.trim(m.at(topic, 0), m.end(topic, 0))
        m.scores(A, 0, *(Score(f"back-{n}", at(131 + n), 0.5, ("x",)) for n in range(3)))
        m.labels(0, Label("back-0", at(132), 1), Label("back-1", at(133), 0))
        m.clocks(None)
        m.until(lambda: A in m.known(), "the key to come back")
        m.until_applied(A, B)
        m.until_matured(130, A, B)
        m.until_matured(140, A)
        assert m.cursor(A, "first_pane") == first_pane
        record = m.record(A, at(131) // 10_000)
        assert (record.labelled, record.positives, record.unlabelled) == (2, 1, 1)
        assert open_registry(m.client, m.config).look().retired == {}
        assert m.known() == [B, A]
        assert m.gaps() == []


def test_the_only_key_comes_back_as_a_new_one_where_its_state_was_deleted(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1, serving={"snapshot_poll": "100ms"}) as m:
        m.clocks(0)
        m.traffic([A], 0, 30)
        m.clocks(100)
        m.start()
        m.until_applied(A)
        retire(m, A)
        until_let_go(m, A)
        assert Retirements(m.client, m.config).delete_state(A) > 10
        assert list(m.client.scan_iter(match=f"sc:{{{A}*")) == []
        m.scores(A, 0, Score("new", at(101), 0.5, ("x",)))
        m.labels(0, Label("new", at(102), 1))
        m.clocks(None)
        m.until(lambda: A in m.known(), "the key to come back")
        m.until_applied(A)
        m.until_matured(110, A)
        assert m.cursor(A, "first_pane") >= at(90) // 10_000
        assert m.record(A, at(101) // 10_000).positives == 1
        assert open_registry(m.client, m.config).look().retired == {}


def test_what_is_in_use_is_not_retired(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with deployed(redis_url, monkeypatch) as m:
        with pytest.raises(ConfigurationError, match=r"its newest score is .* old by the times of the events"):
            retire(m, B)
        now_ms = wall_clock_ms()
        m.state(A).board.put(MemberStatus("calibrate", "host-1", now_ms, {}))
        with pytest.raises(ConfigurationError, match="calibrate host-1 has served it within the hour"):
            retire(m, A)
        m.state(A).board.put(MemberStatus("calibrate", "host-1", now_ms - 60_000, {}))
        with pytest.raises(ConfigurationError, match=r"no model key m/3; there are: m/1, m/2|m/2, m/1"):
            retire(m, ModelKey("m", "3"))
        assert set(m.known()) == {A, B}
        retire(m, A)
        assert m.known() == [B]


def test_a_state_is_not_deleted_while_somebody_works_on_it(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "_LET_GO_WITHIN_MS", 300)
    with deployed(redis_url, monkeypatch) as m:
        retire(m, A)
        until_let_go(m, A)
        store = m.state(A).store
        assert store.acquire_lease("refit", "a long fit", 60_000)
        with pytest.raises(StateError, match="lease of refit is held"):
            Retirements(m.client, m.config).delete_state(A)
        assert m.cursor(A, "first_pane") > 0
        store.release_lease("refit", "a long fit")
        open_registry(m.client, m.config).add(A)
        with pytest.raises(StateError, match="come back"):
            Retirements(m.client, m.config).delete_state(A)
        assert m.cursor(A, "first_pane") > 0


def test_the_commands(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with deployed(redis_url, monkeypatch) as m:
        monkeypatch.setattr(cli_retirement, "load", lambda path: m.config)
        monkeypatch.setattr(cli_retirement, "open_log", lambda config: nullcontext(m.log))

        def models(*arguments: str, answer: str | None = None) -> Result:
            return CliRunner().invoke(app, ["models", *arguments], input=answer)

        listed = models("list").output
        assert "2 of at most 16" in listed
        assert "in use" in listed
        assert "no traffic" in listed
        refused = models("retire", "m", "1", answer="n\n")
        assert refused.exit_code == 1
        assert "Retire m/1 (newest score: before" in refused.output
        assert A in m.known()
        assert models("retire", "m", "2", "--yes").exit_code == 1
        assert models("retire", "no name", "2", "--yes").exit_code == 1
        done = models("retire", "m", "1", answer="y\n")
        assert done.exit_code == 0
        assert "m/1 is retired" in done.output
        assert m.known() == [B]
        until_let_go(m, A)
        assert "state kept" in models("list").output
        again = models("retire", "m", "1", "--yes")
        assert again.exit_code == 1
        assert "is retired already" in again.output
        deleted = models("retire", "m", "1", "--yes", "--delete-state")
        assert deleted.exit_code == 0
        assert "its state is deleted" in deleted.output
        assert '"state_deleted": true' in models("list", "--json").output
