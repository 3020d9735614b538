"""The join in a Redis-compatible server: the port of shard_store.py over the scripts in lua/.

Keys of shard s of a model key, all under the hash tag ``{<model>/<version>/<s>}``: ``m`` marks, ``c`` counters,
``n<input>`` clock entries, ``p<pane>`` rows, ``e<pane>`` held label versions, ``j<bucket>`` join entries. What each
holds, and for how long, stands at the head of lua/apply.lua.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from redis.exceptions import NoPermissionError

from stream_calib.errors import PaneGoneError, StateError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import LuaScript, answering
from stream_calib.windows import redis_calls
from stream_calib.windows.join_entry import JOIN_BUCKETS, fingerprint_bytes, join_buckets, label_codes
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.row_codec import decode_rows
from stream_calib.windows.shard_store import (
    COUNTER_KINDS,
    Entry,
    Inputs,
    Mark,
    PaneCounters,
    PaneRows,
    Progress,
    ReadGuard,
    ShardCall,
    ShardNotAt,
    ShardStore,
)

_CHUNKS_A_READ = 64
_FIELDS_A_CALL = 200
"""As for ShardStore.operations_a_call."""
_CALLS_A_ROUND_TRIP = 64
"""Of about 30 kB each."""
_JOIN_NAMES = [b"j%d" % bucket for bucket in range(JOIN_BUCKETS)]


def _script(*files: str) -> LuaScript:
    return LuaScript("stream_calib.windows.lua", *files, error_class=StateUnavailableError)


_REGISTER = _script("register.lua")
_APPLY = _script("clocks.lua", "entry.lua", "apply.lua")
_READ_ROWS = _script("clocks.lua", "read_rows.lua")
_READ_LABELS = _script("clocks.lua", "read_labels.lua")
_READ_COUNTERS = _script("clocks.lua", "read_counters.lua")
_REMOVE = _script("clocks.lua", "entry.lua", "remove.lua")


class ShardKeys:
    """Names of the keys of one shard."""

    def __init__(self, model_key: ModelKey, shard: int, part: str = "") -> None:
        self.tag = b"sc:{%s/%d}:%s" % (str(model_key).encode(), shard, part.encode())
        self.marks = self.tag + b"m"
        self.counters = self.tag + b"c"

    def joins(self, buckets: NDArray[np.intp]) -> list[bytes]:
        """The join hashes of the buckets."""
        return [self.tag + _JOIN_NAMES[bucket] for bucket in buckets.tolist()]

    def rows(self, pane: int) -> bytes:
        return self.tag + b"p%d" % pane

    def held(self, pane: int) -> bytes:
        return self.tag + b"e%d" % pane

    def entries(self, input_key: str) -> bytes:
        return self.tag + b"n" + input_key.encode()


class RedisShards(ShardStore):
    """See ShardStore. `client` answers bytes (`decode_responses=False`)."""

    def __init__(
        self, client: RedisClient, model_key: ModelKey, count: int, settings: PaneSettings, part: str = ""
    ) -> None:
        """`part`: of the generation, see generations.py."""
        super().__init__(count, settings)
        self._client = client
        self._keys = [ShardKeys(model_key, shard, part) for shard in range(count)]
        self._run: str | None = None

    def register(self, marks: Mapping[str, Mark], inputs: Inputs | None = None) -> None:
        calls = [redis_calls.register_call(keys, marks, inputs, None, self.settings) for keys in self._keys]
        _REGISTER.many(self._client, calls)

    def restart_wiped(self, shard: int, marks: Mapping[str, Mark], origin: int, inputs: Inputs | None = None) -> None:
        _REGISTER(self._client, *redis_calls.register_call(self._keys[shard], marks, inputs, origin, self.settings))

    def progress(self) -> list[Progress]:
        with answering(StateUnavailableError, "reading positions"):
            pipeline = self._client.pipeline(transaction=False)
            for keys in self._keys:
                pipeline.hgetall(keys.marks)
            found: list[dict[bytes, bytes]] = pipeline.execute()
        return [
            Progress(
                _marks(meta),
                _number(meta.get(b"cleaned")),
                _number(meta.get(b"last")),
                (_number(meta.get(b"scores")) or 0, _number(meta.get(b"labels")) or 0),
            )
            for meta in found
        ]

    def attach(self) -> None:
        if isinstance(self._client, ClusterClient):
            return  # a log that could be lost with the state is never kept in a cluster
        with answering(StateUnavailableError, "attaching to the shards"):
            try:
                info: dict[str, Any] = self._client.info("server")
            except NoPermissionError:
                return  # nor can the script look; connect() has warned
        self._run = str(info["run_id"])

    def apply(self, calls: Sequence[ShardCall], inputs: Inputs) -> list[ShardNotAt | None]:
        answers: list[ShardNotAt | None] = []
        for first in range(0, len(calls), _CALLS_A_ROUND_TRIP):
            some = calls[first : first + _CALLS_A_ROUND_TRIP]
            sent = [
                redis_calls.apply_call(self._keys[call.shard], call, inputs, self.settings, self._run) for call in some
            ]
            for reply in _APPLY.many(self._client, sent):
                if reply == b"ok":
                    answers.append(None)
                elif reply == b"restarted":
                    raise StateUnavailableError(
                        "the state's server was restarted: what was read before may be lost; read from the shards'"
                        " positions again"
                    )
                elif isinstance(reply, bytes):
                    raise StateError(
                        f"the key {reply.decode()} holds something of another type, so nothing was written: it was not"
                        " made by this program; remove it, or wipe the shard and let it be read again"
                    )
                else:
                    answers.append(ShardNotAt({i.decode(): Mark(int(n or 0), _number(c)) for i, n, c in reply}))
        return answers

    def read_rows(self, shard: int, pane: int, guard: ReadGuard) -> PaneRows | None:
        keys, chunks = self._keys[shard], list[bytes]()
        ask = redis_calls.guard_bytes(guard, pane, self.settings)
        cut: dict[str, int] | None = None
        while True:
            first = len(chunks)
            reply = _READ_ROWS(
                self._client, [keys.marks, keys.rows(pane)], [ask, str(first), str(first + _CHUNKS_A_READ - 1)]
            )
            found = self._cut(reply, shard, pane)
            if found is None or (cut is not None and found != cut):
                return None
            cut = found
            chunks += reply[3]
            if len(chunks) >= reply[2]:
                return PaneRows(decode_rows(chunks), cut)

    def read_labels(
        self, shard: int, pane: int, guard: ReadGuard, fingerprint: NDArray[np.uint64], event_time_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], dict[str, int]] | None:
        keys = self._keys[shard]
        ask = redis_calls.guard_bytes(guard, pane, self.settings)
        bucket, fields = join_buckets(fingerprint), fingerprint_bytes(fingerprint)[:, 1:]
        calls = []
        for first in range(0, max(len(fingerprint), 1), _FIELDS_A_CALL):
            part = slice(first, first + _FIELDS_A_CALL)
            hashes, counts = np.unique(bucket[part], return_counts=True)
            names = [keys.marks, *keys.joins(hashes)]
            calls.append((names, [ask, counts.astype("<u2").tobytes(), fields[part].tobytes()]))
        entries: list[bytes | None] = []
        cuts = []
        for reply in _READ_LABELS.many(self._client, calls):
            found = self._cut(reply, shard, pane)
            if found is None:
                return None
            cuts.append(found)
            entries += reply[2]
        if any(cut != cuts[0] for cut in cuts):
            return None
        return label_codes(entries, event_time_ms, self.settings.horizon_ms), cuts[0]

    def read_counters(self, shard: int, pane: int, guard: ReadGuard) -> PaneCounters | None:
        keys = self._keys[shard]
        inputs = (*guard.inputs.scores, *guard.inputs.labels)
        wanted = msgspec.msgpack.encode({"kinds": COUNTER_KINDS, "inputs": inputs})
        names = [keys.marks, keys.counters, *(keys.entries(i) for i in inputs)]
        reply = _READ_COUNTERS(self._client, names, [redis_calls.guard_bytes(guard, pane, self.settings), wanted])
        cut = self._cut(reply, shard, pane)
        if cut is None:
            return None
        counts = {kind: int(n) for kind, n in zip(COUNTER_KINDS, reply[2], strict=True) if int(n)}
        return PaneCounters(counts, {i: _entry(pane, place) for i, place in zip(inputs, reply[3], strict=True)}, cut)

    def counts_after(self, pane: int) -> dict[str, int]:
        return self._counts(lambda counted: counted > pane)

    def counts_before(self, pane: int) -> dict[str, int]:
        return self._counts(lambda counted: counted < pane)

    def _counts(self, wanted: Callable[[int], bool]) -> dict[str, int]:
        total = Counter[str]()
        with answering(StateUnavailableError, "reading counters"):
            pipeline = self._client.pipeline(transaction=False)
            for keys in self._keys:
                pipeline.hgetall(keys.counters)
            for counters in pipeline.execute():
                for name, n in counters.items():
                    kind, _, p = name.decode().partition(":")
                    total[kind] += int(n) if wanted(int(p)) else 0
        return {kind: n for kind, n in total.items() if n}

    def remove(self, shard: int, pane: int, guard: ReadGuard, recorded: Mapping[str, int] | None = None) -> bool:
        keys = self._keys[shard]

        def drop(some: NDArray[np.uint64], last: bool) -> bytes:
            call = redis_calls.remove_call(keys, pane, guard, self.settings, some, recorded, last=last)
            status: bytes = _REMOVE(self._client, *call)
            return status

        # Closed first, listed then: what is applied in between would stay for ever.
        status = drop(np.empty(0, dtype=np.uint64), False)
        if status != b"ok":
            return bool(status == b"done")
        with answering(StateUnavailableError, "reading a pane to remove"):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.lrange(keys.held(pane).decode(), 0, -1)
            pipeline.lrange(keys.rows(pane).decode(), 0, -1)
            held, chunks = pipeline.execute()
        rows = decode_rows(chunks).fingerprint
        fingerprint = np.unique(np.concatenate([rows, np.frombuffer(b"".join(held), dtype=">u8").astype(np.uint64)]))
        parts = range(0, max(len(fingerprint), 1), _FIELDS_A_CALL)
        for first in parts:
            status = drop(fingerprint[first : first + _FIELDS_A_CALL], first == parts[-1])
            if status == b"wait":
                return False  # the shard was rolled back in between
        return True

    def _cut(self, reply: list[Any], shard: int, pane: int) -> dict[str, int] | None:
        if reply[0] == b"gone":
            raise PaneGoneError(
                f"shard {shard} has dropped pane {pane}, which the model key's state still asks for: the state was"
                " restored to before what the shards have dropped; restore both from one backup, or rebuild the state"
            )
        if reply[0] == b"wait":
            return None
        return dict(msgspec.msgpack.decode(reply[1], type=list[tuple[str, int]]))


def _number(value: bytes | None) -> int | None:
    return None if value in (None, b"") else int(value)


def _entry(pane: int, place: bytes) -> Entry:
    position, clock = place.split(b":")
    return Entry(pane, int(position), _number(clock))


def _marks(meta: Mapping[bytes, bytes]) -> dict[str, Mark]:
    return {
        name[2:].decode(): Mark(int(value), _number(meta.get(b"c:" + name[2:])), _number(meta.get(b"f:" + name[2:])))
        for name, value in meta.items()
        if name.startswith(b"n:")
    }
