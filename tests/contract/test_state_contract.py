"""What every implementation of a model key's own state must do (windows/state_store.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.config_connections import RedisSection
from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.redis_connection import connect
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS, Commit, StateStore
from tests.windows.backends import BACKENDS, MODEL, RedisBackend, redis_backend

__all__ = ["redis_backend"]


@dataclass
class Stored:
    """A state, and time passing for its leases."""

    state: StateStore
    now_ms: int = 0
    backend: RedisBackend | None = None

    def let_expire(self, lease: str) -> None:
        """Time passes until the lease runs out."""
        if self.backend is None:
            self.now_ms += 10_000
        else:
            assert isinstance(self.state, RedisState)
            assert 0 < self.backend.client.pttl(f"{self.state._tag}lease:{lease}") <= 5_000
            self.backend.client.delete(f"{self.state._tag}lease:{lease}")


@pytest.fixture(params=BACKENDS)
def stored(request: pytest.FixtureRequest) -> Iterator[Stored]:
    if request.param == "memory":
        made = Stored(MemoryState())
        made.state = MemoryState(lambda: made.now_ms)
        yield made
        return
    backend = RedisBackend(request.getfixturevalue(f"{request.param}_client"))
    yield Stored(backend.state(), backend=backend)


@pytest.fixture
def state(stored: Stored) -> StateStore:
    return stored.state


def test_what_was_never_written_is_absent(state: StateStore) -> None:
    assert state.read(("a", "b")) == {"a": None, "b": None}
    assert state.entries("decisions", 0) == []
    assert state.blobs(["pane:1"]) == [None]
    assert state.blobs([]) == []
    assert state.signatures([]) == {}


def test_a_commit_writes_everything(state: StateStore) -> None:
    change = Commit(
        expect={"closed": None},
        fields={"closed": "4", "tip": ""},
        appends={"decisions": [b"x", b"\x00\xff"], "outbox": [b"y"]},
        blobs={"pane:4": b"\x00\x01", "scored:4": b""},
    )
    assert state.commit(change)
    assert state.read(("tip", "closed")) == {"tip": "", "closed": "4"}
    assert state.entries("decisions", 0) == [b"x", b"\x00\xff"]
    assert state.entries("outbox", 0) == [b"y"]
    assert state.blobs(["scored:4", "pane:5", "pane:4"]) == [b"", None, b"\x00\x01"]


@pytest.mark.parametrize("expect", [{"a": "2"}, {"a": None}, {"a": "1", "b": ""}, {"a": "1", "b": "1"}, {"a": ""}])
def test_where_one_expectation_fails_nothing_is_written(state: StateStore, expect: dict[str, str | None]) -> None:
    state.commit(Commit(fields={"a": "1"}))
    assert not state.commit(Commit(expect, {"c": "1"}, {"l": [b"1"]}, {"b": b"1"}))
    assert state.read(("a", "b", "c")) == {"a": "1", "b": None, "c": None}
    assert state.entries("l", 0) == []
    assert state.blobs(["b"]) == [None]


def test_expectations_on_present_and_absent_fields_hold(state: StateStore) -> None:
    assert state.commit(Commit({"a": None, "b": None}, {"a": "1"}))
    assert state.commit(Commit({"a": "1", "b": None}, {"a": "2", "b": "x"}))
    assert state.read(("a", "b")) == {"a": "2", "b": "x"}


def test_of_two_that_read_the_same_one_wins(state: StateStore) -> None:
    state.commit(Commit(fields={"decided": "7"}))
    commits = [Commit({"decided": "7"}, {"decided": "8"}, {"outbox": [b"%d" % i]}) for i in range(2)]
    assert [state.commit(change) for change in commits] == [True, False]
    assert state.entries("outbox", 0) == [b"0"]


def test_lists_keep_their_order_and_can_be_read_in_parts(state: StateStore) -> None:
    for i in range(4):
        state.commit(Commit(appends={"l": [b"%d" % (2 * i), b"%d" % (2 * i + 1)]}))
    whole = [b"%d" % i for i in range(8)]
    assert state.entries("l", 0) == whole
    for start, stop in ((0, 3), (2, 2), (5, 3), (6, 20), (8, None), (9, None), (3, None)):
        assert state.entries("l", start, stop) == whole[start:stop]


def test_an_empty_commit_is_done(state: StateStore) -> None:
    assert state.commit(Commit())


def test_blobs_are_replaced(state: StateStore) -> None:
    state.commit(Commit(blobs={"b": b"1", "c": b"1"}))
    state.commit(Commit(blobs={"b": b"2"}))
    assert state.blobs(["b", "c"]) == [b"2", b"1"]


def test_signatures_are_added_once_and_found(state: StateStore) -> None:
    state.put_signatures({}, 0)
    state.put_signatures({1: ("a", "b"), 2**64 - 1: ("é", "__missing__"), 257: ("x", "y")}, 0)
    state.put_signatures({1: ("a", "b"), 3: ("c", "d")}, 0)
    found = state.signatures([3, 2**64 - 1, 1, 257])
    assert found == {3: ("c", "d"), 2**64 - 1: ("é", "__missing__"), 1: ("a", "b"), 257: ("x", "y")}
    with pytest.raises(StateError, match="4"):
        state.signatures([1, 4])


def test_signatures_stay_with_their_newest_epoch(state: StateStore) -> None:
    state.put_signatures({1: ("old",), 2: ("kept",)}, SIGNATURE_EPOCH_MS - 1)
    state.put_signatures({2: ("kept",), 3: ("new",)}, SIGNATURE_EPOCH_MS)
    assert state.drop_signatures(SIGNATURE_EPOCH_MS - 1) == 0
    assert state.signatures([1, 2, 3]) == {1: ("old",), 2: ("kept",), 3: ("new",)}
    assert state.drop_signatures(2 * SIGNATURE_EPOCH_MS - 1) == 1
    assert state.signatures([2, 3]) == {2: ("kept",), 3: ("new",)}
    with pytest.raises(StateError, match="the first is 1"):
        state.signatures([1, 2])
    assert state.drop_signatures(2 * SIGNATURE_EPOCH_MS - 1) == 0


# --- dropping


def test_entries_keep_their_numbers_when_those_before_them_are_dropped(state: StateStore) -> None:
    state.commit(Commit(appends={"l": [b"%d" % i for i in range(8)]}))
    for first, kept in ((3, 3), (2, 3), (5, 5)):  # what is dropped stays dropped
        assert state.commit(Commit(trims={"l": first}))
        assert state.read(("from:l",)) == {"from:l": str(kept)}
        for start, stop in ((0, None), (0, 2), (0, kept), (0, 6), (6, 7), (4, 20), (8, None)):
            numbers = range(max(start, kept), min(8, 8 if stop is None else stop))
            assert state.entries("l", start, stop) == [b"%d" % i for i in numbers], (first, start, stop)
    state.commit(Commit(appends={"l": [b"8", b"9"]}, trims={"l": 9}))
    assert state.entries("l", 0) == [b"9"]
    state.commit(Commit(trims={"l": 20, "other": 4}))
    assert state.entries("l", 0) == []
    state.commit(Commit(appends={"l": [b"10"]}))
    assert state.entries("l", 10) == [b"10"]
    assert state.entries("other", 0) == []


def test_nothing_is_dropped_where_an_expectation_fails(state: StateStore) -> None:
    state.commit(Commit(fields={"a": "1"}, appends={"l": [b"1"]}, blobs={"b": b"1"}))
    assert not state.commit(Commit({"a": "2"}, deletes=["b"], trims={"l": 1}))
    assert state.blobs(["b"]) == [b"1"]
    assert state.entries("l", 0) == [b"1"]
    assert state.commit(Commit({"a": "1"}, blobs={"c": b"2"}, deletes=["b", "never there"], trims={"l": 1}))
    assert state.blobs(["b", "c"]) == [None, b"2"]
    assert state.entries("l", 0) == []


# --- leases


def test_a_lease_has_one_owner(state: StateStore) -> None:
    token = state.acquire_lease("closer", "a", 5_000)
    assert token is not None
    assert state.read(("token:closer",)) == {"token:closer": token}
    assert state.acquire_lease("closer", "b", 5_000) is None
    assert state.acquire_lease("closer", "a", 5_000) == token
    assert state.acquire_lease("refit", "b", 5_000) is not None
    assert state.read(("token:closer",)) == {"token:closer": token}


def test_a_released_lease_is_free_and_the_next_owner_has_a_larger_token(state: StateStore) -> None:
    first = state.acquire_lease("closer", "a", 5_000)
    state.release_lease("closer", "b")
    assert state.acquire_lease("closer", "b", 5_000) is None
    state.release_lease("closer", "a")
    second = state.acquire_lease("closer", "b", 5_000)
    assert first is not None
    assert second is not None
    assert int(second) > int(first)
    assert state.read(("token:closer",)) == {"token:closer": second}


def test_an_expired_lease_goes_to_another_and_fences_the_old_owner(stored: Stored) -> None:
    state = stored.state
    first = state.acquire_lease("refit", "a", 5_000)
    stored.let_expire("refit")
    second = state.acquire_lease("refit", "b", 5_000)
    assert first is not None
    assert second is not None
    assert int(second) > int(first)
    assert state.acquire_lease("refit", "a", 5_000) is None
    assert not state.commit(Commit({"token:refit": first}, {"current": "v1"}))
    assert state.commit(Commit({"token:refit": second}, {"current": "v2"}))


def test_an_owner_that_comes_back_after_its_lease_ran_out_has_a_new_token(stored: Stored) -> None:
    """It cannot know what happened in between."""
    first = stored.state.acquire_lease("closer", "a", 5_000)
    stored.let_expire("closer")
    second = stored.state.acquire_lease("closer", "a", 5_000)
    assert first is not None
    assert second is not None
    assert int(second) > int(first)


# --- Redis alone


@pytest.mark.parametrize("wrong", ["l:outbox", "l:decisions", "f"])
def test_a_key_of_another_type_is_refused_before_anything_is_written(redis_backend: RedisBackend, wrong: str) -> None:
    """Field case 45: half of a commit must not stay."""
    state = redis_backend.state()
    assert isinstance(state, RedisState)
    redis_backend.client.set(f"{state._tag}{wrong}", "text")
    before = redis_backend.copy_state(state)
    change = Commit({}, {"decided": "8"}, {"decisions": [b"1"], "outbox": [b"1"]}, {"pane:8": b"1"})
    with pytest.raises(StateError, match=f"{wrong} holds something of another type"):
        state.commit(change)
    assert redis_backend.copy_state(state) == before


def test_two_processes_share_the_state(redis_backend: RedisBackend) -> None:
    one, two = RedisState(redis_backend.client, MODEL), RedisState(redis_backend.client, MODEL)
    one.commit(Commit(fields={"a": "1"}, appends={"l": [b"1"]}))
    assert two.read(("a",)) == {"a": "1"}
    assert two.commit(Commit({"a": "1"}, {"a": "2"}, {"l": [b"2"]}))
    assert not one.commit(Commit({"a": "1"}, {"a": "3"}))
    assert one.entries("l", 0) == [b"1", b"2"]


def test_a_server_that_is_away_is_said_so(own_redis: EmbeddedServer) -> None:
    with connect(RedisSection(url=own_redis.url, retries=0)) as client:
        state = RedisState(client, MODEL)
        own_redis.kill()
        with pytest.raises(StateUnavailableError):
            state.read(("a",))
        with pytest.raises(StateUnavailableError):
            state.commit(Commit(fields={"a": "1"}))
        with pytest.raises(StateUnavailableError):
            state.acquire_lease("closer", "a", 1_000)


# --- memory against the plainest dictionary

NAMES = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["", "1", "2"])


@given(
    st.lists(
        st.tuples(st.dictionaries(NAMES, st.none() | VALUES), st.dictionaries(NAMES, VALUES), st.binary(max_size=2)),
        max_size=12,
    )
)
def test_commits_are_compare_and_set(changes: list[tuple[dict[str, str | None], dict[str, str], bytes]]) -> None:
    state, fields, entries = MemoryState(), dict[str, str](), list[bytes]()
    for expect, new, entry in changes:
        fits = all(fields.get(name) == value for name, value in expect.items())
        assert state.commit(Commit(expect, new, {"l": [entry]})) == fits
        if fits:
            fields.update(new)
            entries.append(entry)
        assert state.read(("a", "b")) == {"a": fields.get("a"), "b": fields.get("b")}
        assert state.entries("l", 0) == entries
