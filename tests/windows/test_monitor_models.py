"""One monitor process and several model keys: what each key gets is as if it were alone on the partitions' clocks."""

from __future__ import annotations

import logging

import pytest

from stream_calib.errors import GenerationMismatchError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.state_store import Commit
from tests.oracle.offline import Label, Score
from tests.windows.monitors import GROUP, A, B, at, monitored
from workers.deployment import open_registry

pytestmark = pytest.mark.services
CONSTANT = {"name_path": None, "version_path": None, "name": "m", "version": "1"}


def test_two_keys_in_the_same_blocks_each_have_the_oracles_cells(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 90)
        m.clocks(None)
        m.start()
        m.until_applied(A, B)
        m.until_matured(80, A, B)
        assert set(m.known()) == {A, B}
        assert m.check(A) >= 8
        assert m.check(B) >= 8


def test_two_monitors_and_a_change_of_hands_give_the_same(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 40)
        first = m.start()
        m.start()
        m.until_applied(A, B)
        m.stop(first)
        m.traffic([A, B], 40, 90, seed=2)
        m.clocks(None)
        m.until_matured(80, A, B)
        assert m.check(A) >= 8
        assert m.check(B) >= 8


def test_a_configured_key_is_served_before_its_first_score(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch, model=CONSTANT) as m:
        m.start()
        assert m.known() == [A]
        m.clocks(0)
        m.traffic([A], 0, 50)
        m.clocks(100)
        m.until_matured(40, A)
        assert m.check(A) >= 4


def test_a_retired_version_closes_its_panes_by_the_clock_of_the_others(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.scores(A, 0, Score("a", at(3), 0.5, ("x",)))
        m.labels(0, Label("a", at(4), 1))
        m.start()
        m.until_applied(A)
        m.scores(B, 0, Score("b", at(60), 0.5, ("x",)))
        m.labels(0, Label("b", at(61), 1))
        m.until_matured(20, A)
        assert m.check(A) == 1
        record = m.record(A, m.cursor(A, "first_pane"))
        assert (record.labelled, record.positives) == (1, 1)


def test_a_new_key_starts_where_the_others_are_and_misses_nothing_of_its_own(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch) as m:
        m.clocks(0)
        m.traffic([A], 0, 120)
        m.start()
        m.until_applied(A)
        m.until_matured(90, A)
        m.traffic([A, B], 120, 200, seed=2)
        m.clocks(None)
        m.until_applied(A, B)
        m.until_matured(180, A, B)
        assert m.check(A) >= 18
        first = at(120) // 10_000
        assert m.check(B, since=first) >= 6
        begun = min(m.positions(B, TopicPartition("blocks", 0)))  # type: ignore[type-var]  # no None after until_applied
        assert begun is not None
        assert m.cursor(B, "first_pane") >= at(100) // 10_000, "not from the start of the log"


def test_the_committed_positions_are_the_least_over_the_keys(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 30)
        m.start()
        m.until_applied(A, B)
        end = m.end("blocks", 0)
        m.until(lambda: m.log.group_positions(GROUP, "blocks") == {0: end}, "positions to be committed")


def test_blocks_of_one_key_too_many_are_dead_letters_and_the_others_go_on(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1, model={"max_keys": 1}) as m:
        m.scores(A, 0, Score("a", at(3), 0.5, ("x",)))
        m.start()
        m.until_applied(A)
        m.scores(B, 0, Score("b", at(4), 0.5, ("x",)))
        m.scores(A, 0, Score("a2", at(5), 0.5, ("x",)))
        m.until_applied(A)
        (letter,) = m.log.read(TopicPartition("dead-letters", 0), 0, 10)
        assert dict(letter.headers)["stream-calib-reason"] == b"too_many_models"
        assert m.known() == [A]


def test_a_key_whose_state_is_of_another_configuration_is_left_alone(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monitored(redis_url, monkeypatch) as m:
        m.state(A).store.commit(Commit(fields={"generation": "of another horizon"}))
        m.clocks(0)
        m.traffic([A, B], 0, 40)
        m.clocks(80)
        monitor = m.start()
        with caplog.at_level(logging.ERROR):
            m.until_matured(30, B)
        assert monitor.ready() is None
        assert any("m/1 is left alone" in record.getMessage() for record in caplog.records)
        m.until_applied(B)
        assert m.positions(A, TopicPartition("blocks", 0)) == {None}
        m.until(lambda: any("failed" in s.facts for s in m.state(A).board.all(at(0))), "the status to say so")


def test_an_older_version_under_other_settings_does_not_keep_a_new_one_from_starting(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monitored(redis_url, monkeypatch, model={**CONSTANT, "version": "2"}) as m:
        open_registry(m.client, m.config).add(A)  # it was the configured one, and is registered before the new one
        m.state(A).store.commit(Commit(fields={"generation": "of another horizon"}))
        m.clocks(0)
        m.traffic([B], 0, 40)
        m.clocks(80)
        with caplog.at_level(logging.ERROR):
            monitor = m.start()
            m.until_matured(30, B)
        assert m.known() == [A, B]
        assert monitor.ready() is None
        assert any("m/1 is left alone" in record.getMessage() for record in caplog.records)


def test_a_configured_key_whose_state_is_of_another_configuration_ends_the_role(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, model=CONSTANT) as m:
        m.state(A).store.commit(Commit(fields={"generation": "of another horizon"}))
        with pytest.raises(GenerationMismatchError, match="put the old values back"):
            m.start()


def test_the_only_key_ends_the_role_with_its_error(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch, model=CONSTANT) as m:
        m.clocks(0)
        m.traffic([A], 0, 80)
        m.start()
        m.until_matured(40, A)
        m.state(A).store.commit(Commit(fields={"tip": "ab" * 32, "log_length": "1"}))
        m.traffic([A], 80, 120, seed=3)
        with pytest.raises(StateError, match="decision log"):
            m.until(lambda: False, "the error")


def test_services_in_the_request_path_have_a_topic_that_can_come_later(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch) as m:
        m.clocks(0)
        m.traffic([A], 0, 60)
        first = m.start()
        m.until_matured(20, A)
        m.stop(first)
        m.config = m.config.model_copy(update={"topics": m.config.topics.model_copy(update={"live_blocks": "live"})})
        m.traffic([A], 60, 90, seed=2)
        m.start()
        m.until(lambda: m.positions(A, TopicPartition("live", 0)) == {0}, "the topic to be registered")
        before = m.cursor(A, "closed")
        m.clocks(200)
        m.until(
            lambda: all(m.positions(A, TopicPartition("blocks", p)) == {m.end("blocks", p)} for p in (0, 1)),
            "blocks to be read",
        )
        assert m.cursor(A, "closed") <= max(before, at(90) // 10_000), "the new topic is in the minimum"
        m.scores(A, 0, Score("live-1", at(95), 0.4, ("x",)), topic="live")
        m.clocks(200, ["live"])
        m.until_matured(150, A)
        assert m.check(A) >= 8


def test_a_damaged_block_is_a_dead_letter_once_for_all_keys(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.scores(A, 0, Score("a", at(3), 0.5, ("x",)))
        m.scores(ModelKey("other", "7"), 0, Score("b", at(4), 0.5, ("x",)))
        m.log.produce([Outgoing("blocks", None, b"no block", (), 0)])
        m.start()
        m.until_applied(A, ModelKey("other", "7"))
        (letter,) = m.log.read(TopicPartition("dead-letters", 0), 0, 10)
        assert letter.value == b"no block"
