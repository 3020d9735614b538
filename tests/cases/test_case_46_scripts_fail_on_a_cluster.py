"""Scripts worked on one server and were refused in cluster mode: their keys were on several slots for want of a hash
tag, or values were passed as keys.
"""

from __future__ import annotations

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.crc import key_slot

from stream_calib.events.contracts import ModelKey
from stream_calib.redis_connection import connect
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from tests.cases.joined import joined, label, score
from tests.contract.test_redis_layout import watching
from tests.windows.join import SETTINGS

IDS = [f"id-of-an-event-{i}" for i in range(40)]


def test_the_slots_are_those_of_the_specification() -> None:
    assert [key_slot(key) for key in (b"cal:iso", b"cal:patches")] == [8748, 10276]
    assert [key_slot(key) for key in (b"cal:{m1}:iso", b"cal:{m1}:patches")] == [6916, 6916]


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


@given(names, names, st.integers(1, 16))
@settings(max_examples=30)
def test_a_model_keys_state_is_on_one_slot_and_so_is_each_shard(model: str, version: str, count: int) -> None:
    client = redis.Redis()  # never asked
    state, shards = (
        RedisState(client, ModelKey.of(model, version)),
        RedisShards(client, ModelKey(model, version), count, SETTINGS),
    )
    own = [state._tag + name for name in ("f", "l:history", "b:snapshot:1", "d7", "lease:closer")]
    assert len({key_slot(key.encode()) for key in own}) == 1
    for keys in shards._keys:
        parts = [keys.tag + name for name in (b"m", b"c", b"p17", b"e17", b"j5", b"ns:b:0")]
        assert len({key_slot(key) for key in parts}) == 1
        assert keys.marks in parts


@pytest.mark.services
def test_all_keys_of_every_script_that_a_run_calls_are_on_one_slot_and_hold_no_ids(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(redis_url, monkeypatch) as j, connect(redis_url) as client:
        with watching(client) as seen:
            j.scores(*(score(event_id, 3) for event_id in IDS))
            j.labels(*(label(event_id, 5) for event_id in IDS))
            j.matured(40)
        asked = [words for kind, words in seen if kind != "lua"]
        assert not [words for words in asked if words[0] == "MULTI"]
        called = [words for words in asked if words[0] == "EVALSHA"]
        assert len(called) > 20
        for words in called:
            keys = words[3 : 3 + int(words[2])]
            assert keys, words[:3]
            assert len({key_slot(key.encode()) for key in keys}) == 1, keys
            assert not [key for key in keys if "id-of-an-event" in key]
        assert j.pane(3).labelled == len(IDS)
