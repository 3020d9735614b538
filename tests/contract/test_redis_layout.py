"""What the join in Redis promises beyond the port: slots, declared keys, measured layout, nothing left, full memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import LuaScript, connect
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.windows import redis_shards, redis_state
from stream_calib.windows.join_entry import join_buckets
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.shard_store import Advance, Mark, ShardCall
from stream_calib.windows.state_store import Commit
from stream_calib.windows.walk import winners
from tests.oracle.offline import Clock, Label
from tests.windows.backends import MODEL, RedisBackend, redis_backend
from tests.windows.join import PANE_0, SETTINGS, Join, L, S, at, block, clock, label
from tests.windows.logs import settings_with
from tests.windows.records import Item, label_rows, score_rows

__all__ = ["redis_backend"]


def some_of_everything(join: Join) -> None:
    """Usual and general entries, early labels, drops; panes 0 to 5."""
    join.write(S, *(block((f"id-{i % 17}", i)) for i in range(60)))
    items: list[Item] = [label(f"id-{i % 23}", i + [0, 0.5, 3, 12, 17][i % 5], i % 3 % 2) for i in range(55)]
    join.write(L, *items, clock(62))
    join.write(S, block(("late", 12)))


def test_slots_are_those_of_the_cluster_specification() -> None:
    assert [key_slot(k) for k in (b"cal:iso", b"cal:patches", b"cal:{m1}:iso", b"cal:{m1}:patches")] == [
        8748,
        10276,
        6916,
        6916,
    ]


def test_each_call_is_on_one_slot_and_touches_only_the_keys_that_it_declares(redis_backend: RedisBackend) -> None:
    """Field case 46. What scripts do is seen by MONITOR, so a key made up inside a script is found too."""
    client = redis_backend.client
    for script in {**vars(redis_shards), **vars(redis_state)}.values():
        if isinstance(script, LuaScript):
            script.load(client)
    join = Join(redis_backend.shards(3, SETTINGS))
    state = redis_backend.state()
    with watching(client) as seen:
        some_of_everything(join)
        join.move_clocks(100)
        for pane in range(6):
            join.matured(pane)
            join.scored(pane)
        join.remove(0)
        join.remove(1)
        join.store.restart_wiped(0, {S: Mark(0, None)}, PANE_0)
        state.commit(Commit({"a": None}, {"a": "1"}, {"l": [b"x"], "m": [b"y"]}, {"b": b"z"}))
        state.acquire_lease("closer", "me", 1_000)
        state.release_lease("closer", "me")
    scripts = [words for kind, words in seen if kind != "lua" and words[0] == "EVALSHA"]
    assert len(scripts) > 30
    declared: set[str] = set()
    touched = 0
    for kind, words in seen:
        if kind != "lua":
            if words[0] == "EVALSHA":
                declared = set(words[3 : 3 + int(words[2])])
                assert len({key_slot(key.encode()) for key in declared}) == 1, declared
        else:
            keys = words[1:] if words[0] == "DEL" else words[1:2]
            assert set(keys) <= declared, words
            touched += 1
    assert touched > 500


@contextmanager
def watching(client: RedisClient) -> Iterator[list[tuple[str, list[str]]]]:
    """(kind of client, words of the command) of everything that the server did meanwhile."""
    assert isinstance(client, redis.Redis)
    seen: list[tuple[str, list[str]]] = []
    with client.monitor() as monitor:
        yield seen
        client.echo("that is all")
        while True:
            command = monitor.next_command()
            words = _words(command["command"])
            if words == ["ECHO", "that is all"]:
                return
            seen.append((command["client_type"], words))


def _words(command: str) -> list[str]:
    """The words as MONITOR separates them; binary ones are shown escaped, which is enough for keys made of text."""
    first, _, rest = command.partition(" ")
    return [first.upper(), *rest.split(" ")] if first.upper() != "ECHO" else ["ECHO", rest]


def test_state_keys_of_a_model_are_on_one_slot_and_of_shards_apart(redis_backend: RedisBackend) -> None:
    state = RedisState(redis_backend.client, MODEL)
    state.commit(Commit({}, {"a": "1"}, {"l": [b"x"]}, {"b": b"z"}))
    state.put_signatures({1: ("a",), 258: ("b",)}, 0)
    state.acquire_lease("closer", "me", 1_000)
    keys = redis_backend.keys(state._tag)
    assert len(keys) == 7
    assert len({key_slot(key) for key in keys}) == 1
    shards = RedisShards(redis_backend.client, MODEL, 8, SETTINGS)
    assert len({key_slot(keys.marks) for keys in shards._keys}) == 8


def test_keys_of_a_state_are_those_that_its_design_names(redis_backend: RedisBackend) -> None:
    state = RedisState(redis_backend.client, MODEL)
    blobs = dict.fromkeys(PaneNames.of(7), b"z")
    state.commit(Commit({}, {"a": "1"}, {"decisions": [b"x"], "outbox": [b"y"]}, blobs))
    state.put_signatures({1: ("a",), 258: ("b",)}, 0)
    state.acquire_lease("closer", "me", 1_000)
    page = (Path(__file__).parents[2] / "docs/architecture.md").read_text()
    table = page.partition("State of a model key, tag")[2].partition("\nOf the deployment itself")[0]
    documented = [
        "[^:]+".join(map(re.escape, re.split(r"<[^>]+>", name)))
        for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    ]
    keys = [key.decode().removeprefix(state._tag) for key in redis_backend.keys(state._tag)]
    assert [key for key in keys if not any(re.fullmatch(name, key) for name in documented)] == []
    assert {"d", "d0:1", "d0:2", "b:scored:7"} <= set(keys)


def test_only_the_marks_are_left_when_everything_was_removed(redis_backend: RedisBackend) -> None:
    store = redis_backend.shards(2, SETTINGS)
    assert isinstance(store, RedisShards)
    join = Join(store)
    some_of_everything(join)
    join.move_clocks(200)
    assert len(redis_backend.keys("sc:")) > 30
    for pane in range(15):
        assert join.remove(pane) == [True, True], pane
    # The clock entries of pane 20, where the clocks are now, cannot go yet.
    marks = {keys.marks for keys in store._keys}
    entries = {keys.entries(key) for keys in store._keys for key in (S, L)}
    assert set(redis_backend.keys("sc:")) == marks | entries
    assert all(redis_backend.client.hkeys(key) == [b"%d" % (PANE_0 + 20)] for key in entries)
    names: list[Any] = redis_backend.client.hkeys(store._keys[0].marks)
    assert {name.decode().partition(":")[0] for name in names} == {"n", "c", "f", "removed", "cleaned", "last"}


def test_the_usual_entry_has_ten_bytes_and_buckets_are_listpacks(redis_backend: RedisBackend) -> None:
    store = redis_backend.shards(1, SETTINGS)
    assert isinstance(store, RedisShards)
    join = Join(store)
    ids = [f"id-{i}" for i in range(3_000)]
    join.write(S, *(block(*((event_id, 1 + i / 1_000) for event_id in ids[i : i + 500])) for i in range(0, 3_000, 500)))
    client = redis_backend.client
    entries = all_entries(client, store)
    assert len(entries) == 3_000
    assert {len(value) for value in entries} == {10}

    join.write(L, *(label(event_id, 9) for event_id in ids[:2_000]))
    assert {len(value) for value in all_entries(client, store)} == {10}, "a label that joins fits in"
    join.write(L, *(label(event_id, 23) for event_id in ids[2_000:2_500]))
    assert sorted({len(value) for value in all_entries(client, store)}) == [10, 20], "one that does not is held"
    join.write(S, block(("id-2000", 21.5)))
    assert len(all_entries(client, store)) == 3_000
    keys = redis_backend.keys(store._keys[0].tag + b"j")
    assert {client.object("encoding", key) for key in keys} == {b"listpack"}


def test_a_label_that_cannot_reach_its_whole_horizon_is_held_so_only_while_that_matters(
    redis_backend: RedisBackend,
) -> None:
    """Broker clock: 17 bytes a held version in place of 11; the usual 10 once no score can come that it would join."""
    store = redis_backend.shards(1, settings_with(broker_clock=True))
    assert isinstance(store, RedisShards)
    join, client = Join(store), redis_backend.client
    held, whole = Label("a", at(14), 1, at(30)), Label("b", at(14), 1, at(14))
    join.write(L, whole, Clock(at(30)), held)
    assert sorted(len(value) for value in all_entries(client, store)) == [3 + 11, 3 + 17]
    join.write(S, block(("a", 12), ("b", 12)))
    assert sorted(len(value) for value in all_entries(client, store)) == [10, 3 + 6 + 17]
    join.write(S, clock(40))
    join.write(L, held)
    assert sorted(len(value) for value in all_entries(client, store)) == [10, 10]
    join.move_clocks(80)
    assert (join.sums(0), join.sums(1)) == ((0, 0, 0), (2, 2, 0))
    assert join.matured(1).counts["matched"] == 3


def all_entries(client: RedisClient, store: RedisShards) -> list[Any]:
    names = client.scan_iter(match=store._keys[0].tag.decode() + "j*", count=1_000)
    return [value for key in names for value in client.hgetall(key).values()]


@pytest.mark.parametrize("name", [b"m", b"c", b"n" + S.encode(), b"p%d" % (PANE_0 + 6), b"e%d" % (PANE_0 + 6), b"j"])
def test_a_key_of_another_type_is_an_error_before_anything_is_written(redis_backend: RedisBackend, name: bytes) -> None:
    store = redis_backend.shards(1, SETTINGS)
    assert isinstance(store, RedisShards)
    join = Join(store)
    some_of_everything(join)
    client, tag = redis_backend.client, store._keys[0].tag
    scores, labels = [block(("new", 63), ("other", 64))], [label("new", 63.5), label("other", 66)]
    wrong = [tag + name]
    if name == b"j":
        wrong = store._keys[0].joins(join_buckets(score_rows(scores).fingerprint))
    for key in wrong:
        client.delete(key)
        client.set(key, b"somebody else's")
    before = redis_backend.copy_shard(store, 0)
    advances = {S: Advance(61, 62, at(64), at(1)), L: Advance(56, 58, at(66), at(1))}
    call = ShardCall(0, advances, score_rows(scores), label_rows(labels))
    # Without its marks the shard is nowhere, which is seen first, and is an error of the server's own.
    with pytest.raises(StateError, match="WRONGTYPE" if name == b"m" else "another type"):
        store.apply([call], join.inputs)
    assert redis_backend.copy_shard(store, 0) == before


# --- interrupted and repeated calls


def removed_with_crashes(backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, crash_after: int) -> tuple[Join, int]:
    """Pane 0 is removed by a worker that dies after so many script calls, then by another one."""
    monkeypatch.setattr(redis_shards, "_FIELDS_A_CALL", 3)
    join = Join(backend.shards(1, SETTINGS))
    some_of_everything(join)
    join.move_clocks(200)
    calls = dying(monkeypatch, crash_after)
    with pytest.raises(KeyboardInterrupt):
        join.remove(0)
    return join, calls()


def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """The script that removes raises instead of its call number `after`; later calls work."""
    original, n = LuaScript.__call__, 0

    def call(self: Any, client: redis.Redis, keys: Sequence[bytes], args: Sequence[bytes] = ()) -> Any:
        nonlocal n
        if self is redis_shards._REMOVE:
            n += 1
            if n == after:
                raise KeyboardInterrupt
        return original(self, client, keys, args)

    monkeypatch.setattr(LuaScript, "__call__", call)
    return lambda: n


@pytest.mark.parametrize("crash_after", [2, 3, 4])
def test_a_removal_that_was_cut_off_is_finished_later(
    redis_backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, crash_after: int
) -> None:
    whole = Join(redis_backend.shards(1, SETTINGS))
    some_of_everything(whole)
    whole.move_clocks(200)
    assert whole.remove(0) == [True]

    join, _ = removed_with_crashes(redis_backend, monkeypatch, crash_after)
    assert join.store.progress()[0].removed is None
    assert join.remove(1) == [False]
    assert join.remove(0) == [True]
    assert join.store.progress()[0].removed == PANE_0
    for pane in range(1, 6):
        assert join.sums(pane) == whole.sums(pane)
        assert join.matured(pane).counts == whole.matured(pane).counts
    for pane in range(1, 15):
        assert join.remove(pane) == [True]
    assert redis_backend.size(join.store, 0) == 2, "but for where the clocks are"


def test_rows_that_come_again_while_their_pane_is_removed_are_not_kept(
    redis_backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that was rolled back catches up between the steps of a removal."""
    join = Join(redis_backend.shards(1, SETTINGS))
    join.write(S, block(("a", 1)))
    behind = redis_backend.copy_shard(join.store, 0)
    join.write(S, block(("b", 2), ("c", 12)), clock(200))
    join.write(L, label("b", 5), clock(200))
    assert join.try_matured(0) is not None
    redis_backend.put_shard(join.store, 0, behind)
    original, n = LuaScript.__call__, 0

    def call(self: LuaScript, client: redis.Redis, keys: Sequence[bytes], args: Sequence[bytes] = ()) -> Any:
        nonlocal n
        if self is redis_shards._REMOVE:
            n += 1
            if n == 2:
                join.deliver(S, 1, len(join.items[S]))
                join.deliver(L, 0, len(join.items[L]))
        return original(self, client, keys, args)

    monkeypatch.setattr(LuaScript, "__call__", call)
    first = join.remove(0)
    monkeypatch.undo()
    join.deliver(S, 1, len(join.items[S]))
    join.deliver(L, 0, len(join.items[L]))
    assert first == [False]
    for pane in range(15):
        assert join.remove(pane) == [True]
    assert redis_backend.size(join.store, 0) == 2, "but for where the clocks are"


@pytest.mark.parametrize("part", ["_READ_ROWS", "_READ_LABELS"])
def test_a_pane_that_is_read_in_several_calls_is_read_under_one_cut(
    redis_backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(redis_shards, "_CHUNKS_A_READ", 1)
    monkeypatch.setattr(redis_shards, "_FIELDS_A_CALL", 1)
    join = Join(redis_backend.shards(1, SETTINGS), labels=2)
    join.write(S, block(("a", 1)))
    join.write(S, block(("b", 2)), clock(60))
    join.write("l:t:1", clock(5))
    join.write(L, clock(60))
    script, original, n = getattr(redis_shards, part), LuaScript.__call__, 0

    def call(self: LuaScript, client: redis.Redis, keys: Sequence[bytes], args: Sequence[bytes] = ()) -> Any:
        nonlocal n
        n += self is script
        if self is script and n == 2:
            join.write("l:t:1", label("x", 6))
        return original(self, client, keys, args)

    def one_by_one(self: LuaScript, client: redis.Redis, calls: Sequence[Any]) -> list[Any]:
        return [self(client, *one) for one in calls]

    monkeypatch.setattr(LuaScript, "__call__", call)
    monkeypatch.setattr(LuaScript, "many", one_by_one)
    guard = join.guard({"l:t:1": 1})
    if part == "_READ_ROWS":
        assert join.store.read_rows(0, PANE_0, guard) is None
        read = join.store.read_rows(0, PANE_0, guard)
        assert read is not None
        assert (len(read.rows), read.cut) == (2, {"l:t:1": 2})
    else:
        read = join.store.read_rows(0, PANE_0, guard)
        assert read is not None
        rows = winners(read.rows)
        assert join.store.read_labels(0, PANE_0, guard, rows.fingerprint, rows.event_time_ms) is None
    assert n >= 2


def test_a_call_that_is_sent_twice_is_applied_once(redis_backend: RedisBackend) -> None:
    """As the client does when the connection breaks before the answer."""
    join = Join(redis_backend.shards(1, SETTINGS))
    original = LuaScript.__call__

    def twice(self: Any, client: redis.Redis, keys: Sequence[bytes], args: Sequence[bytes] = ()) -> Any:
        original(self, client, keys, args)
        return original(self, client, keys, args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LuaScript, "__call__", twice)
        some_of_everything(join)
        join.move_clocks(100)
    expected = Join(redis_backend.shards(1, SETTINGS))
    some_of_everything(expected)
    expected.move_clocks(100)
    for pane in range(6):
        assert join.matured(pane).counts == expected.matured(pane).counts
        assert join.sums(pane) == expected.sums(pane)


def test_an_id_that_stands_for_everybody_is_read_and_written_once_a_call(redis_backend: RedisBackend) -> None:
    """All versions of its label are held in one entry: taken apart for each of them, it would block the server."""
    join = Join(redis_backend.shards(1, SETTINGS))
    others = [label(f"id-{i}", 1.5) for i in range(3)]
    join.write(S, block(("a", 1), ("a", 1.2), ("a", 11), ("a", 2)), clock(4))
    redis_backend.client.config_resetstat()
    join.write(L, *others, *(label("a", 1.5 + i / 100, i % 2) for i in range(400)), *others)
    calls: dict[str, dict[str, int]] = redis_backend.client.info("commandstats")
    assert calls["cmdstat_hget"]["calls"] < 40
    join.write(S, clock(100))
    join.write(L, clock(100))
    assert join.matured(0).counts["matched"] == 400
    assert join.sums(0) == (1, 1, 0)


# --- full memory


def test_what_was_read_under_an_earlier_run_of_the_server_is_refused(own_redis: EmbeddedServer) -> None:
    """Where the log is kept on the same server, the records may be lost with it, and be others when read again."""
    with connect(own_redis.url) as client:
        join = Join(RedisShards(client, MODEL, 1, SETTINGS))
        join.store.attach()
        join.write(S, block(("a", 1)))
        own_redis.restart()
        before = join.store.progress()
        with pytest.raises(StateUnavailableError, match="restarted"):
            join.write(S, block(("b", 2)))
        assert join.store.progress() == before
        join.store.attach()
        assert join.deliver(S, 1, 2) == {}
        assert join.store.progress()[0].marks[S].next == 2


def test_a_server_that_is_full_leaves_nothing_half_written(own_redis: EmbeddedServer) -> None:
    """Field case 41, with noeviction: the positions stop, and go on once there is room."""
    with connect(own_redis.url) as client:
        backend = RedisBackend(client)
        join = Join(backend.shards(2, SETTINGS))
        some_of_everything(join)
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", used - 100_000)
        before = [backend.copy_shard(join.store, shard) for shard in range(2)]
        tail: list[Item] = [block((f"more-{i}", 60 + i / 10), ("id-3", 60 + i / 10)) for i in range(30)]
        with pytest.raises(StateUnavailableError, match=r"no answer|refused"):
            join.write(S, *tail)
        with pytest.raises(StateUnavailableError):
            join.write(L, *(label(f"id-{i}", 63 + i / 10) for i in range(20)))
        assert [backend.copy_shard(join.store, shard) for shard in range(2)] == before

        client.config_set("maxmemory", 0)
        for key in (S, L):
            assert join.deliver(key, 0, len(join.items[key])) == {}
        join.move_clocks(200)
        expected = Join(backend.shards(1, SETTINGS))
        for key in (S, L):
            expected.write(key, *join.items[key])
        for pane in range(7):
            assert join.matured(pane).counts == expected.matured(pane).counts


def test_a_server_that_is_full_can_still_remove_panes(own_redis: EmbeddedServer) -> None:
    with connect(own_redis.url) as client:
        backend = RedisBackend(client)
        join = Join(backend.shards(1, SETTINGS))
        some_of_everything(join)
        join.move_clocks(200)
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 100_000)
        with pytest.raises(StateUnavailableError):
            join.store.register({"l:new:0": Mark(0, at(1))})
        for pane in range(10):
            assert join.remove(pane) == [True]
        assert join.store.counts_after(0) == {}
