"""One request saw two values of a setting that was changed in between; and a transaction of the store in which one
command failed kept what the others had done, so that the pointer named a model of which a part was missing.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import DamagedSnapshotError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.decision_log import chain
from stream_calib.snapshot.follower import SnapshotFollower
from stream_calib.snapshot.model import decode_snapshot, version_of
from stream_calib.snapshot.served_models import Serving
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.cases.served import served_by
from tests.integration.live_state import ATTRIBUTES, KEY, map_of, publish
from tests.unit.events.events_for_tests import T0, record
from tests.unit.snapshot.documents import report, request, structure

N = 1_000


class Served:
    """1,000 scores through calibrate's transform, by what a follower of the store gives."""

    def __init__(self, client: redis.Redis) -> None:
        self.now_ms = 0
        self.follower = SnapshotFollower(
            RedisState(client, KEY), ATTRIBUTES, poll_ms=1, max_staleness_ms=10**9, clock_ms=lambda: self.now_ms
        )
        self.transform = served_by(scores={"attributes": {"region": "r", "device": "d"}, "time": {"path": "ts"}})

    def outputs(self) -> list[tuple[str, float]]:
        """(snapshot named, probability) of each."""
        self.now_ms += 10
        records = [record({"event_id": str(i), "ts": T0, "score": i / N, "r": "eu", "d": "phone"}, i) for i in range(N)]
        decoded, scores = self.transform.decode(records)
        calibrated = self.transform.calibrate(scores, lambda key: Serving(self.follower.current(), "calibrated"))
        made = self.transform.encode(records, decoded, calibrated)
        members = [json.loads(o.value or b"")["stream_calib"]["m"] for o in made if o.topic == "calibrated"]
        return [(member["snapshot"], member["calibrated"]) for member in members]


def of_version(client: redis.Redis, version: str) -> list[tuple[str, float]]:
    scores, signature = np.arange(N) / N, np.zeros(N, dtype=np.intp)
    probability = map_of(client, version).apply(scores, signature, [("eu", "phone")])
    return [(version, p) for p in probability.tolist()]


@pytest.mark.services
def test_while_the_writer_pauses_every_output_is_wholly_of_one_version(redis_client: redis.Redis) -> None:
    first = publish(redis_client)
    served = Served(redis_client)
    assert served.outputs() == of_version(redis_client, first)
    second = structure("r", first, attributes=ATTRIBUTES, families=(), sequence=2, level=-1.0).encode()
    version = version_of(2, second)
    state = RedisState(redis_client, KEY)
    for part in (second[: len(second) // 2], second):  # the writer stops half-way, then before the pointer
        state.commit(Commit(blobs={f"snapshot:{version}": part}))
        assert served.outputs() == of_version(redis_client, first)
    state.commit(Commit(fields={"current": version}))
    assert served.outputs() == of_version(redis_client, version)
    assert version != first


@pytest.mark.services
@pytest.mark.parametrize("wrong", ["l:history", "l:decisions", "l:reports"])
def test_a_publication_of_which_one_write_would_fail_writes_nothing(redis_client: redis.Redis, wrong: str) -> None:
    state = RedisState(redis_client, ModelKey("m", "1"))
    state.commit(Commit(fields={"first_pane": "1", "decided": "9"}))
    token = state.acquire_lease("refit", "w", 60_000)
    assert token is not None
    store = SnapshotStore(state, KEY, "g", 1_000, lambda: 77)
    first = _published(state, store, token, 1)
    _ask(state, store, 2)
    redis_client.rename(f"{state._tag}{wrong}", "aside")
    redis_client.set(f"{state._tag}{wrong}", "a plain string")
    before = _everything(redis_client)
    with pytest.raises((StateError, redis.ResponseError)):
        store.publish(structure("r2", first, rows=2, sequence=2), report("r2"), token)
    assert _everything(redis_client) == before
    redis_client.rename("aside", f"{state._tag}{wrong}")
    assert store.current() == first


def _published(state: RedisState, store: SnapshotStore, token: str, number: int) -> str:
    _ask(state, store, number)
    return store.publish(structure(f"r{number}", None, rows=number), report(f"r{number}"), token)


def _ask(state: RedisState, store: SnapshotStore, number: int) -> None:
    """The closer's part: an open request."""
    raw = [request(f"r{number}", 9 + number, store.current()).encode()]
    found = state.read(["tip", "log_length"])
    fields = {
        "decided": str(9 + number),
        "tip": str(chain(found["tip"], raw)),
        "log_length": str(int(found["log_length"] or 0) + 1),
    }
    state.commit(Commit(fields=fields, appends={"decisions": raw}))


def _everything(client: redis.Redis) -> dict[bytes, bytes | None]:
    return {name: client.dump(name) for name in sorted(client.scan_iter(count=1_000))}


ENCODED = structure().encode()
VERSION = version_of(1, ENCODED)


@given(st.integers(0, len(ENCODED) - 1), st.integers(1, 255))
@settings(max_examples=50)
def test_a_blob_of_which_one_byte_is_other_is_refused(place: int, change: int) -> None:
    damaged = bytearray(ENCODED)
    damaged[place] ^= change
    with pytest.raises(DamagedSnapshotError, match="were damaged"):
        decode_snapshot(VERSION, bytes(damaged))


@given(st.integers(0, len(ENCODED) - 1))
@settings(max_examples=30)
def test_a_blob_that_was_cut_is_refused_also_under_the_hash_of_what_is_left(length: int) -> None:
    with pytest.raises(DamagedSnapshotError, match="were damaged"):
        decode_snapshot(VERSION, ENCODED[:length])
    with pytest.raises(DamagedSnapshotError, match="not of a known schema"):
        decode_snapshot(version_of(1, ENCODED[:length]), ENCODED[:length])


@pytest.mark.services
def test_a_damaged_blob_in_the_store_leaves_the_version_before(redis_client: redis.Redis) -> None:
    first = publish(redis_client)
    served = Served(redis_client)
    expected = served.outputs()
    second = publish(redis_client, level=-1.0)
    name = f"{RedisState(redis_client, KEY)._tag}b:snapshot:{second}"
    whole = redis_client.get(name)
    assert isinstance(whole, bytes)
    for damaged in (whole[:-40], whole.replace(b"-1.0", b"-1.5"), b""):
        redis_client.set(name, damaged)
        assert served.outputs() == expected
        assert served.follower.damaged == second
    redis_client.set(name, whole)
    assert served.outputs() == of_version(redis_client, second)
    assert expected == of_version(redis_client, first)
