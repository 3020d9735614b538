"""Generations of state side by side: the pointer, rebuilding from the log, switching, dropping."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stream_calib.alerts.model import Alert, AlertState, make_alert
from stream_calib.config import Config
from stream_calib.config_identity import semantic_content
from stream_calib.config_models import ModelSection
from stream_calib.errors import (
    ConfigurationError,
    GenerationMismatchError,
    PositionLostError,
    StateError,
    StateFormatError,
)
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.transport.port import Record, TopicPartition
from stream_calib.windows.generations import (
    Generations,
    LiveStates,
    directory_of,
    directory_store,
    generation_of,
    key_part,
)
from stream_calib.windows.redis_removal import delete_state
from stream_calib.windows.registration import check_blocks
from stream_calib.windows.state_store import Commit
from tests.oracle.offline import Label, Score
from tests.windows import monitors
from tests.windows.monitors import A, B, Monitored, at, monitored
from workers import cli_state
from workers.calibrate import Calibrate
from workers.cli import app
from workers.deployment import state_of
from workers.generation_changes import drop_generation, switch_to
from workers.generation_facts import generation_facts
from workers.model_states import ModelStates
from workers.rebuild import Rebuild
from workers.role import wall_clock_ms

pytestmark = pytest.mark.services


@pytest.fixture
def m(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    """Two keys, one of them a constant of the configuration, have had traffic; the logs have not ended."""
    with monitored(redis_url, monkeypatch, partitions=2) as made:
        constant = ModelSection(name=A.model, version=A.version)
        made.config = made.config.model_copy(update={"model": constant})
        made.clocks(0)
        made.traffic([A, B], 0, 60)
        made.clocks(70)
        made.start()
        made.until_applied(A, B)
        made.until_matured(30, A, B)
        yield made


def changed(config: Config, **windows: Any) -> Config:
    return config.model_copy(update={"windows": config.windows.model_copy(update=windows)})


def rebuilt(m: Monitored, config: Config, key: ModelKey = A) -> Rebuild:
    work = Rebuild(m.client, m.log, config, key)
    _to_the_end(work)
    work.close()
    return work


def _to_the_end(work: Rebuild) -> None:
    while work.step():
        pass


# --- the pointer


def test_what_has_no_pointer_is_generation_0_and_its_keys_have_no_part(redis_client: RedisClient) -> None:
    assert directory_of(redis_client, A).look() == Generations(live=0, newest=0, kept=(0,))
    assert (key_part(0), key_part(12)) == ("", "12:")
    assert [generation_of(rest) for rest in (b"f", b"12:f", b"d7:3", b"g:f", b"status")] == [0, 12, 0, None, None]


def test_a_switch_is_made_by_one_only(redis_client: RedisClient) -> None:
    directory = directory_of(redis_client, A)
    one, two = directory.begin(), directory.begin()
    directory.switch(0, one)
    with pytest.raises(StateError, match=r"generation 1 is live.*somebody was faster"):
        directory.switch(0, two)
    with pytest.raises(StateError, match="somebody was faster"):
        directory.switch(one, 7)
    with pytest.raises(StateError, match="generation 1 is live; nothing was dropped"):
        directory.forget(one)
    with pytest.raises(StateError, match="generation 7 is not there; there are 0, 1, 2"):
        directory.forget(7)
    directory.forget(0)
    assert directory.look() == Generations(live=1, newest=2, kept=(1, 2))


def test_numbers_are_given_once(redis_client: RedisClient) -> None:
    with ThreadPoolExecutor(6) as pool:
        numbers = list(pool.map(lambda _: directory_of(redis_client, A).begin(), range(6)))
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]


def test_a_damaged_list_of_generations_is_refused(redis_client: RedisClient) -> None:
    directory_store(redis_client, A).commit(Commit(fields={"generations": "{"}))
    with pytest.raises(StateError, match=r"list of generations cannot be read.*put a backup back"):
        directory_of(redis_client, A).look()


def test_whoever_follows_the_live_state_gets_another_one_after_a_switch(redis_client: RedisClient) -> None:
    states = LiveStates(redis_client)
    before = states(A)
    assert states(A) is before
    before.commit(Commit(fields={"current": "old"}))
    directory = directory_of(redis_client, A)
    directory.switch(0, directory.begin())
    assert states(A) is not before
    assert states(A).read(("current",)) == {"current": None}


# --- another configuration


def test_roles_of_another_configuration_refuse_and_say_what_differs(m: Monitored) -> None:
    m.config = changed(m.config, horizon_ms=20_000)
    with pytest.raises(GenerationMismatchError, match=r"horizon_ms: 15000 -> 20000.*config plan.*state rebuild"):
        m.start()
    with pytest.raises(GenerationMismatchError, match=r"horizon_ms: 15000 -> 20000"):
        ModelStates(m.client, m.config, lambda: 0).all()


def test_state_of_an_unknown_format_is_refused_with_its_number(m: Monitored) -> None:
    m.state(A).store.commit(Commit(fields={"format": "2"}))
    with pytest.raises(StateFormatError, match="state is of format 2, this version reads and writes format 1"):
        m.start()
    with pytest.raises(StateFormatError, match="format 2"):
        ModelStates(m.client, m.config, lambda: 0).all()


def test_rebuilt_state_is_what_a_monitor_would_have_made_from_the_start(
    m: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = m.config, changed(m.config, horizon_ms=20_000, pane_ms=5_000, shards=3)
    with pytest.raises(StateError, match="there is no generation 1"):
        switch_to(m.client, new, A, 1)
    work = rebuilt(m, new)
    assert work.number == 1
    assert work.progress()[0] == work.progress()[1]
    assert work.begin().labels_from_ms is None
    with pytest.raises(StateError, match=r"made under .*name the file that it was rebuilt with"):
        switch_to(m.client, old, A, 1)
    assert switch_to(m.client, new, A, 1) == 0
    # The monitor at work is of the old configuration.
    (monitor,) = m.monitors
    m.until(lambda: A in monitor._models.failed, "the monitor to leave it")
    assert monitor._models.failed[A].startswith("generation 1 of m/1 is live now, this process works on 0")
    m.stop(monitor)
    m.config = new
    m.start()
    m.traffic([A], 70, 90, seed=2)
    m.clocks(None)
    m.until_applied(A)
    m.until(lambda: m.cursor(A, "matured") > m.cursor(A, "first_pane") + 15, "panes")
    monkeypatch.setattr(monitors, "HORIZON_S", 20)
    monkeypatch.setattr(monitors, "PANE_S", 5)
    assert m.check(A) >= 10
    assert whole(m, new) == 0


def whole(m: Monitored, config: Config) -> int:
    """Panes that differ from those of a state that is made of the whole logs at once."""
    live = m.state(A)
    fresh = rebuilt(m, config).state
    fields = ("first_pane", "matured", "matured_chain")
    assert fresh.number != live.number
    assert fresh.store.read(fields) == live.store.read(fields)
    names = [f"scored:{p}" for p in range(m.cursor(A, "first_pane"), m.cursor(A, "matured") + 1)]
    return sum(a != b for a, b in zip(live.store.blobs(names), fresh.store.blobs(names), strict=True))


def test_a_rebuild_that_was_interrupted_goes_on(m: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.rebuild._BLOCKS_A_READ", 5)
    monkeypatch.setattr("workers.rebuild._LABELS_A_READ", 5)
    new = changed(m.config, horizon_ms=20_000)
    first = Rebuild(m.client, m.log, new, A)
    for _ in range(4):
        assert first.step()
    assert 0 < first.progress()[0] < first.progress()[1]
    with pytest.raises(StateError, match=r"generation 1 of m/1 is .* behind the live one.*state rebuild` again"):
        switch_to(m.client, new, A, 1)
    first.close()
    stood = first.progress()
    second = Rebuild(m.client, m.log, new, A)
    assert (second.number, second.progress()) == (1, stood)
    second.close()
    assert rebuilt(m, new).number == 1
    switch_to(m.client, new, A, 1)
    with pytest.raises(StateError, match="generation 1 of m/1 is live already"):
        switch_to(m.client, new, A, 1)


def test_a_log_that_is_written_to_all_the_time_is_caught_up_with(m: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    read, seconds = m.log.read, iter(range(70, 10_000))

    def read_and_write(partition: TopicPartition, start: int, most: int) -> list[Record]:
        found = read(partition, start, most)
        m.clocks(next(seconds) / 100, ("blocks",))
        return found

    monkeypatch.setattr(m.log, "read", read_and_write)
    done, total = rebuilt(m, changed(m.config, horizon_ms=20_000)).progress()
    assert 0 < done < total


@pytest.mark.parametrize("missing_label", ["ignore", "negative_at_horizon"])
def test_a_label_partition_that_is_silent_holds_a_rebuild_up_no_more_than_the_monitors(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, missing_label: str
) -> None:
    windows = {"idle_timeout": "30s", "missing_label": missing_label}
    with monitored(redis_url, monkeypatch, partitions=2, windows=windows) as m:
        m.clocks(0, ("blocks",))
        m.scores(A, 0, *(Score(f"e{i}", at(i), 0.5, ("x",)) for i in range(60)))
        m.labels(0, *(Label(f"e{i}", at(i + 1), 1) for i in range(60)))
        m.clocks(70, ("blocks",))
        m.start()
        m.until_applied(A)
        seconds = iter(range(10_000))
        began = wall_clock_ms() + 60_000
        work = Rebuild(m.client, m.log, m.config, A, lambda: began + 1_000 * next(seconds))
        _to_the_end(work)
        work.close()
        fields = work.state.store.read(("first_pane", "matured"))
        first_pane, matured = (int(fields[name] or 0) for name in fields)
        # The newest label is of second 60: less its lateness (4 s) and the horizon (15 s) that is second 41.
        assert matured == (at(30) // 10_000 if missing_label == "ignore" else first_pane - 1)


def test_alerts_of_times_that_are_over_are_not_sent(m: Monitored) -> None:
    new = changed(m.config, horizon_ms=20_000)
    store = rebuilt(m, new).state.store
    waiting_before = len(store.entries("outbox", 0))
    states: list[AlertState] = ["open", "close"]
    events = [make_alert(A, "g", "psi", state, pane=1, since_ms=0, diagnosis="d") for state in states]
    store.commit(Commit(appends={"outbox": [event.encode() for event in events]}))
    m.state(A).store.commit(Commit(appends={"outbox": [events[0].encode()]}))
    switch_to(m.client, new, A, 1)
    assert store.read(("outbox_sent",)) == {"outbox_sent": str(waiting_before + 2)}
    # What only the other generation holds to be open is closed.
    (closing,) = [Alert.decode(entry) for entry in store.entries("outbox", waiting_before + 2)]
    assert (closing.dedup_key, closing.state) == (events[0].dedup_key, "close")
    assert closing.id not in {event.id for event in events}
    assert m.state(A).number == 1


def test_without_a_snapshot_it_does_not_take_the_place_of_one_that_has(m: Monitored) -> None:
    new = changed(m.config, horizon_ms=20_000)
    rebuilt(m, new)
    m.state(A).store.commit(Commit(fields={"current": "000001-abc"}))
    with pytest.raises(StateError, match="has no snapshot yet, so its raw scores would be served"):
        switch_to(m.client, new, A, 1)


def test_where_labels_are_gone_scores_of_their_time_are_left_out(m: Monitored) -> None:
    for p in range(2):
        m.operator.trim(m.at("labels", p), m.end("labels", p) // 2)
    work = rebuilt(m, changed(m.config, horizon_ms=20_000))
    begin = work.begin()
    assert begin.labels_from_ms is not None
    for partition, items in work._partitions.keys.items():
        if items.startswith("s:"):
            assert work._starts()[items].next == m.log.offset_at(partition, begin.labels_from_ms)


def test_where_retention_was_faster_it_says_so(m: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.rebuild._LABELS_A_READ", 2)
    work = Rebuild(m.client, m.log, changed(m.config, horizon_ms=20_000), A)
    m.operator.trim(m.at("labels", 0), m.end("labels", 0))
    with pytest.raises(PositionLostError, match=r"labels-0: the log begins at .*retention was faster"):
        _to_the_end(work)


@pytest.mark.parametrize("scores", [{"attributes": {"group": "g", "more": "h"}}, {"unit": "customer"}])
def test_what_is_packed_into_blocks_cannot_be_rebuilt(m: Monitored, scores: dict[str, Any]) -> None:
    new = m.config.model_copy(update={"scores": m.config.scores.model_copy(update=scores)})
    with pytest.raises(ConfigurationError, match=r"m/1 cannot be rebuilt, because of .*another version"):
        Rebuild(m.client, m.log, new, A)
    assert directory_of(m.client, A).look() == Generations()


def test_nothing_is_rebuilt_where_there_is_no_state(m: Monitored) -> None:
    with pytest.raises(StateError, match="x/1 has no state yet"):
        Rebuild(m.client, m.log, m.config, ModelKey("x", "1"))


# --- listing and dropping


def test_a_generation_is_dropped_whole_and_the_others_stay(m: Monitored) -> None:
    new = changed(m.config, horizon_ms=20_000)
    rebuilt(m, new)
    facts = generation_facts(m.client, new, A)
    assert [(one.number, one.live, one.ours) for one in facts] == [(0, True, False), (1, False, True)]
    assert all(one.keys > 5 and one.bytes > 500 for one in facts)
    assert facts[0].cursors["matured"] == m.cursor(A, "matured")
    with pytest.raises(StateError, match="generation 0 is live; nothing was dropped"):
        drop_generation(m.client, A, 0)
    with pytest.raises(StateError, match="there never was a generation 9"):
        drop_generation(m.client, A, 9)
    assert drop_generation(m.client, A, 1) == facts[1].keys
    (left,) = generation_facts(m.client, new, A)
    assert (left.number, left.keys) == (0, facts[0].keys)
    assert state_of(m.client, new, A, 1).store.read(("generation",)) == {"generation": None}


def test_a_generation_that_is_worked_on_is_not_dropped(m: Monitored) -> None:
    new = changed(m.config, horizon_ms=20_000)
    rebuilt(m, new)
    store = state_of(m.client, new, A, 1).store
    store.acquire_lease("refit", "another", 60_000)
    with pytest.raises(StateError, match="generation 1 of m/1 is worked on, its lease `refit` is held"):
        drop_generation(m.client, A, 1)
    assert 1 in directory_of(m.client, A).look().kept
    store.release_lease("refit", "another")
    assert drop_generation(m.client, A, 1) > 5


def test_a_retired_key_loses_all_generations(m: Monitored) -> None:
    rebuilt(m, changed(m.config, horizon_ms=20_000))
    assert delete_state(m.client, A, lambda: None) > 20
    assert list(m.client.scan_iter(match=f"sc:{{{A}*")) == []
    assert directory_of(m.client, A).look() == Generations()


def test_a_drop_that_was_interrupted_goes_on(m: Monitored) -> None:
    new = changed(m.config, horizon_ms=20_000)
    rebuilt(m, new)

    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drop_generation(m.client, A, 1, end)
    assert [one.number for one in generation_facts(m.client, new, A)] == [0, 1]
    assert drop_generation(m.client, A, 1) > 0
    assert [one.number for one in generation_facts(m.client, new, A)] == [0]


def test_the_commands(m: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    new = changed(m.config, horizon_ms=20_000)
    monkeypatch.setattr(cli_state, "load", lambda path: new)
    monkeypatch.setattr(cli_state, "open_log", lambda config: m.log)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["state", *arguments, "--config", str(Path("new.toml"))])

    done = run("rebuild")
    assert done.exit_code == 0, done.output
    assert "m/1: generation 1 has caught up" in done.stdout
    assert "m/2: generation 1 has caught up" in done.stdout
    done = run("switch", "1", "--version", "1")
    assert done.exit_code == 0, done.output
    assert "state drop 0" in done.stdout
    done = run("list", "--json")
    assert done.exit_code == 0, done.output
    assert done.stdout.count('"live": true') == 2
    done = run("drop", "0", "--version", "1", "--yes")
    assert done.exit_code == 1
    assert "its lease `closer` is held" in done.output
    for monitor in list(m.monitors):
        m.stop(monitor)
    done = run("drop", "0", "--version", "1", "--yes")
    assert done.exit_code == 0, done.output
    done = run("drop", "1", "--version", "1", "--yes")
    assert done.exit_code == 1


# --- those that write blocks


def test_whoever_writes_blocks_has_to_agree_with_the_state_on_them(m: Monitored) -> None:
    store = m.state(A).store
    for scores in ({"unit": "customer"}, {"sample_rate": 0.5}, {"attributes": {"group": "g", "more": "h"}}):
        new = m.config.model_copy(update={"scores": m.config.scores.model_copy(update=scores)})
        with pytest.raises(GenerationMismatchError, match=rf"state of m/1 is made of blocks.*{next(iter(scores))}"):
            check_blocks(A, store, semantic_content(new))
    check_blocks(A, store, semantic_content(changed(m.config, horizon_ms=20_000)))
    check_blocks(B, directory_store(m.client, A), {})  # no state yet


def test_calibrate_does_not_start_where_its_blocks_would_not_fit(m: Monitored) -> None:
    new = m.config.model_copy(update={"scores": m.config.scores.model_copy(update={"unit": "customer"})})
    calibrate = Calibrate(new)
    with pytest.raises(GenerationMismatchError, match=r'unit: the default -> "customer"'):
        calibrate.open()
    calibrate.close()
