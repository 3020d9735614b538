"""A model key's own state in a Redis-compatible server, under the hash tag ``{<model>/<version>}``.

Keys: ``f`` fields, ``l:<name>`` lists, ``b:<name>`` blobs, ``d<byte>`` signature dictionary in 256 hashes by the low
byte, ``lease:<name>``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stream_calib import fault_points
from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import LuaScript, answering
from stream_calib.windows.state_store import Commit, StateStore

_COMMIT = LuaScript("stream_calib.windows.lua", "commit.lua", error_class=StateUnavailableError)
_LEASE = LuaScript("stream_calib.windows.lua", "lease.lua", error_class=StateUnavailableError)
_RELEASE = LuaScript("stream_calib.windows.lua", "release.lua", error_class=StateUnavailableError)


class RedisState(StateStore):
    """See StateStore. `client` answers bytes (`decode_responses=False`)."""

    def __init__(self, client: RedisClient, model_key: ModelKey) -> None:
        self._client, self._model_key = client, model_key
        self._tag = f"sc:{{{model_key}}}:"
        self._fields_key = self._tag + "f"

    def read(self, names: Sequence[str]) -> dict[str, str | None]:
        with answering(StateUnavailableError, "reading state fields"):
            values: list[bytes | None] = self._client.hmget(self._fields_key, list(names))  # type: ignore[assignment]  # bytes
        return {n: None if v is None else self._text(n, v) for n, v in zip(names, values, strict=True)}

    def _text(self, name: str, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise StateError(
                f"the field {name} of {self._model_key} is not UTF-8, so it was not written by this program: put a"
                " backup of the state back"
            ) from error

    def commit(self, change: Commit) -> bool:
        keys = [self._fields_key]
        appends, blobs, arguments = [], [], list[bytes]()
        for name, entries in change.appends.items():
            keys.append(f"{self._tag}l:{name}")
            appends += [len(keys)] * len(entries)
            arguments += entries
        for name, blob in change.blobs.items():
            keys.append(f"{self._tag}b:{name}")
            blobs.append(len(keys))
            arguments.append(blob)
        packed = msgspec.msgpack.encode(
            {
                "expect": [(f, False if v is None else v) for f, v in change.expect.items()],
                "fields": list(change.fields.items()),
                "appends": appends,
                "blobs": blobs,
            }
        )
        answer = _COMMIT(self._client, keys, [packed, *arguments])
        if isinstance(answer, bytes):
            raise StateError(
                f"the key {answer.decode()} holds something of another type, so nothing was written: it was not made by"
                " this program; remove it or restore the state from a backup"
            )
        return bool(answer)

    def entries(self, name: str, start: int, stop: int | None = None) -> list[bytes]:
        if stop is not None and stop <= start:
            return []
        with answering(StateUnavailableError, f"reading the list {name}"):
            found = self._client.lrange(f"{self._tag}l:{name}", start, -1 if stop is None else stop - 1)
        return list(found)  # type: ignore[arg-type]  # sync client

    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        if not names:
            return []
        with answering(StateUnavailableError, "reading blobs"):
            found = self._client.mget([f"{self._tag}b:{name}" for name in names])
        return list(found)  # type: ignore[arg-type]  # sync client

    def put_signatures(self, signatures: Mapping[int, Sequence[str]]) -> None:
        if not signatures:
            return
        with answering(StateUnavailableError, "adding signatures"):
            pipeline = self._client.pipeline(transaction=False)
            for signature, values in signatures.items():
                pipeline.hsetnx(self._dictionary(signature), str(signature), msgspec.json.encode(list(values)).decode())
            fault_points.before("signatures.write")
            pipeline.execute()
            fault_points.after("signatures.write")

    def signatures(self, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        wanted: dict[str, list[int]] = defaultdict(list)
        for signature in hashes:
            wanted[self._dictionary(signature)].append(signature)
        with answering(StateUnavailableError, "reading signatures"):
            pipeline = self._client.pipeline(transaction=False)
            for key, some in wanted.items():
                pipeline.hmget(key, [str(s) for s in some])
            replies = pipeline.execute()
        found = {}
        for some, values in zip(wanted.values(), replies, strict=True):
            for signature, value in zip(some, values, strict=True):
                if value is None:
                    raise StateError(f"signature {signature} is not in the dictionary {self._dictionary(signature)}")
                found[signature] = tuple(msgspec.json.decode(value, type=list[str]))
        return found

    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        token = _LEASE(self._client, [self._fields_key, f"{self._tag}lease:{name}"], [name, owner, ttl_ms])
        return None if token is None else token.decode()

    def release_lease(self, name: str, owner: str) -> None:
        _RELEASE(self._client, [f"{self._tag}lease:{name}"], [owner])

    def _dictionary(self, signature: int) -> str:
        return f"{self._tag}d{signature & 0xFF}"
