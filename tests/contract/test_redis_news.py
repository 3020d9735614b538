"""Readers hear of a snapshot at once: on a single server, on a cluster, and where they may not listen."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from stream_calib.config_connections import RedisSection
from stream_calib.live.snapshot_watch import SnapshotWatch
from stream_calib.redis_connection import connect
from stream_calib.windows.redis_news import PointerNews
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.integration.live_state import KEY, config_of, publish
from tests.redis_servers import RedisProcess, wait_until
from tests.windows.backends import MODEL

pytestmark = pytest.mark.services


@contextmanager
def listening(section: RedisSection) -> Iterator[tuple[PointerNews, threading.Event, list[str]]]:
    """News, after the word that it listens; whether, and each time that, it told of something."""
    told, heard = threading.Event(), list[str]()

    def tell() -> None:
        heard.append("news")
        told.set()

    news = PointerNews(section, tell)
    try:
        wait_until(news.came, "the listener to be there")
        told.clear()
        yield news, told, heard
    finally:
        news.close()


@pytest.mark.parametrize("kind", ["single", "cluster"])
def test_a_moved_pointer_is_heard_of_and_nothing_else(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "cluster":
        section = RedisSection(url=request.getfixturevalue("redis_cluster_url"), cluster=True)
    else:
        section = RedisSection(url=request.getfixturevalue("redis_url"))
    with connect(section) as client, listening(section) as (news, told, heard):
        state = RedisState(client, MODEL)
        heard.clear()
        state.commit(Commit({"current": "other"}, {"current": "never written"}))
        state.commit(Commit({}, {"decided": "7"}, {"history": [b"{}"]}))
        state.commit(Commit({}, {"current": "000001-0123456789ab"}))
        assert told.wait(30)
        assert news.came()
        assert not news.came()
        assert len(heard) == 1


def test_it_hears_again_after_the_server_was_away(tmp_path: Path) -> None:
    server = RedisProcess(tmp_path / "redis")
    server.start()
    section = RedisSection(url=server.url)
    try:
        with listening(section) as (news, told, _):
            server.kill()
            server.start()
            # It says so when it is back: what came meanwhile was missed.
            assert told.wait(30)
            news.came()
            told.clear()
            with connect(section) as client:
                RedisState(client, MODEL).commit(Commit({}, {"current": "000001-0123456789ab"}))
            assert told.wait(30)
    finally:
        server.kill()


def test_without_the_rights_everything_else_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = RedisProcess(tmp_path / "redis")
    server.start()
    try:
        with server.client() as client:
            rights = ("~sc:*", "resetchannels", "+@all", "-publish", "-psubscribe")
            client.execute_command("ACL", "SETUSER", "calib", "reset", "on", ">hunter2", *rights)
        section = RedisSection(url=f"redis://calib:hunter2@{server.address}")
        with caplog.at_level(logging.INFO):
            news = PointerNews(section)
            with connect(section) as limited:
                state = RedisState(limited, MODEL)
                assert state.commit(Commit({}, {"current": "000001-0123456789ab"}))
                assert state.read(["current"]) == {"current": "000001-0123456789ab"}
            wait_until(lambda: "docs/operations.md has the rights" in caplog.text, "the listener to give up")
        assert not news.came()
    finally:
        server.kill()


def test_what_serves_takes_a_new_snapshot_long_before_its_next_poll(redis_client: redis.Redis, redis_url: str) -> None:
    first = publish(redis_client)
    watch = SnapshotWatch(config_of(redis_url, serving={"snapshot_poll": "10m"}))

    def version() -> str | None:
        served = watch.serving(KEY)[0].served
        return None if served is None else served.version

    def another_is_served() -> bool:
        # Whether it listens by now is not seen from outside, and what is said before is missed; so it is said again.
        publish(redis_client)
        return version() != first

    try:
        assert version() == first
        wait_until(another_is_served, "a new snapshot to be served")
    finally:
        watch.close()
