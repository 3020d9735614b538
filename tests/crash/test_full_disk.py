"""A server whose disk is full refuses writes, says so in each way of calling it, and takes them again later."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_connection import connect
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.crash.state_servers import SingleServer

pytestmark = pytest.mark.services

_DEADLINE_S = 30.0
_LARGE = Commit(fields={"large": "x" * 10_000})


def test_scripts_and_pipelines_wait_for_a_disk_that_is_full(tmp_path: Path) -> None:
    with SingleServer(tmp_path) as servers, connect(servers.url) as client:
        state = RedisState(client, ModelKey("m", "1"))
        assert state.commit(_LARGE)
        empty = servers.begin("disk_full", random.Random(1), [])
        assert empty is not None
        _until_written(state, False)
        with pytest.raises(StateUnavailableError, match=r"refused while running commit\.lua: MISCONF"):
            state.commit(_LARGE)
        with pytest.raises(StateUnavailableError, match=r"refused while adding signatures: .*MISCONF"):
            state.put_signatures({1: ("UA",)}, 0)
        empty()
        _until_written(state, True)
        state.put_signatures({1: ("UA",)}, 0)
        assert state.signatures([1]) == {1: ("UA",)}


def _until_written(state: RedisState, wanted: bool) -> None:
    give_up = time.monotonic() + _DEADLINE_S
    while _is_written(state) is not wanted:
        assert time.monotonic() < give_up
        time.sleep(0.05)


def _is_written(state: RedisState) -> bool:
    try:
        return state.commit(_LARGE)
    except StateUnavailableError:
        return False
