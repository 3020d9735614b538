"""A model key's own state in a Redis-compatible server, under the hash tag ``{<model>/<version>}``.

Keys: ``f`` fields, ``l:<name>`` lists, ``b:<name>`` blobs, ``d<epoch>:<byte>`` signature dictionary, for each epoch in
256 hashes by the low byte, ``d`` set of the epochs that have one, ``lease:<name>``; ``replicated`` for a second, where
a replica is waited for.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from redis.exceptions import NoPermissionError, ResponseError

from stream_calib import fault_points
from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient, replies_to
from stream_calib.redis_connection import LuaScript, answering
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS, Commit, StateStore

_LOG = logging.getLogger(__name__)

_COMMIT = LuaScript("stream_calib.windows.lua", "commit.lua", error_class=StateUnavailableError)
_LEASE = LuaScript("stream_calib.windows.lua", "lease.lua", error_class=StateUnavailableError)
_ENTRIES = LuaScript("stream_calib.windows.lua", "read_entries.lua", error_class=StateUnavailableError)
_RELEASE = LuaScript("stream_calib.windows.lua", "release.lua", error_class=StateUnavailableError)


class RedisState(StateStore):
    """See StateStore. `client` answers bytes (`decode_responses=False`)."""

    def __init__(self, client: RedisClient, model_key: ModelKey, part: str = "") -> None:
        """`part`: of the generation, see generations.py; what belongs to none (the deployment's own) has none."""
        self._client, self._model_key = client, model_key
        self._tag = f"sc:{{{model_key}}}:{part}"
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
        deletes, trims = [], []
        for name in change.deletes:
            keys.append(f"{self._tag}b:{name}")
            deletes.append(len(keys))
        for name, first in change.trims.items():
            keys.append(f"{self._tag}l:{name}")
            trims.append((len(keys), f"from:{name}", first))
        packed = msgspec.msgpack.encode(
            {
                "expect": [(f, False if v is None else v) for f, v in change.expect.items()],
                "fields": list(change.fields.items()),
                "appends": appends,
                "blobs": blobs,
                "deletes": deletes,
                "trims": trims,
            }
        )
        answer = _COMMIT(self._client, keys, [packed, *arguments])
        if isinstance(answer, bytes):
            raise StateError(
                f"the key {answer.decode()} holds something of another type, so nothing was written: it was not made by"
                " this program; remove it or restore the state from a backup"
            )
        return bool(answer)

    def wait_for_replica(self, within_ms: int) -> bool | None:
        key = f"{self._tag}replicated"
        timeout_s = self._client.get_connection_kwargs().get("socket_timeout")
        if timeout_s is not None:  # an answer that comes later is a lost connection, and WAIT would be sent again
            within_ms = max(1, min(within_ms, int(timeout_s * 500)))
        with answering(StateUnavailableError, "waiting for a replica"):
            try:
                (info,) = replies_to(self._client, [(key, ("INFO", "replication"))])
                if not int(info.get("connected_slaves", 0)):
                    return None
                # WAIT is about the writes of its own connection: one is made there, behind all others of this process.
                asked = [(key, ("SET", key, 1, "PX", within_ms)), (key, ("WAIT", 1, within_ms))]
                return int(replies_to(self._client, asked)[1]) >= 1
            except ResponseError as error:
                # Some operators rename commands away in place of taking the right to them.
                if not isinstance(error, NoPermissionError) and "unknown command" not in str(error).lower():
                    raise
                _LOG.warning("nobody waits for the replica: %s; docs/operations.md, Rights, says what to allow", error)
                return None

    def entries(self, name: str, start: int, stop: int | None = None) -> list[bytes]:
        if stop is not None and stop <= start:
            return []
        keys = [self._fields_key, f"{self._tag}l:{name}"]
        return list(_ENTRIES(self._client, keys, [f"from:{name}", start, -1 if stop is None else stop]))

    def length(self, name: str) -> int:
        with answering(StateUnavailableError, f"reading the length of the list {name}"):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.hget(self._fields_key, f"from:{name}")
            pipeline.llen(f"{self._tag}l:{name}")
            dropped, kept = pipeline.execute()
        return int(dropped or 0) + int(kept)

    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        if not names:
            return []
        with answering(StateUnavailableError, "reading blobs"):
            found = self._client.mget([f"{self._tag}b:{name}" for name in names])
        return list(found)  # type: ignore[arg-type]  # sync client

    def put_signatures(self, signatures: Mapping[int, Sequence[str]], until_ms: int) -> None:
        if not signatures:
            return
        epoch = until_ms // SIGNATURE_EPOCH_MS
        with answering(StateUnavailableError, "adding signatures"):
            pipeline = self._client.pipeline(transaction=False)
            # First, so that whatever is in the epoch is found, and dropped with it.
            pipeline.sadd(self._epochs_key, epoch)
            for signature, values in signatures.items():
                encoded = msgspec.json.encode(list(values)).decode()
                pipeline.hsetnx(self._dictionary(epoch, signature & 0xFF), str(signature), encoded)
            fault_points.before("signatures.write")
            pipeline.execute()
            fault_points.after("signatures.write")

    def signatures(self, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        missing = list(dict.fromkeys(hashes))
        found: dict[int, tuple[str, ...]] = {}
        for epoch in self._epochs() if missing else ():
            found |= self._of_epoch(epoch, missing)
            missing = [signature for signature in missing if signature not in found]
            if not missing:
                break
        if missing:
            raise StateError(
                f"{len(missing)} signatures of {self._model_key} are not in the dictionary, the first is {missing[0]}:"
                " the model key's state is damaged; restore it from a backup"
            )
        return found

    def drop_signatures(self, before_ms: int) -> int:
        over = [epoch for epoch in self._epochs() if epoch < before_ms // SIGNATURE_EPOCH_MS]
        for epoch in over:
            with answering(StateUnavailableError, "dropping signatures"):
                self._client.delete(*(self._dictionary(epoch, byte) for byte in range(256)))
                self._client.srem(self._epochs_key, epoch)
        return len(over)

    def _epochs(self) -> list[int]:
        """Newest first: what comes all the time is found there."""
        with answering(StateUnavailableError, "reading the epochs of the signature dictionary"):
            members: Iterable[bytes] = self._client.smembers(self._epochs_key)  # type: ignore[assignment]  # sync client
        return sorted(map(int, members), reverse=True)

    def _of_epoch(self, epoch: int, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        wanted: dict[int, list[int]] = defaultdict(list)
        for signature in hashes:
            wanted[signature & 0xFF].append(signature)
        with answering(StateUnavailableError, "reading signatures"):
            pipeline = self._client.pipeline(transaction=False)
            for byte, some in wanted.items():
                pipeline.hmget(self._dictionary(epoch, byte), [str(s) for s in some])
            replies = pipeline.execute()
        return {
            signature: tuple(msgspec.json.decode(value, type=list[str]))
            for some, values in zip(wanted.values(), replies, strict=True)
            for signature, value in zip(some, values, strict=True)
            if value is not None
        }

    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        token = _LEASE(self._client, [self._fields_key, f"{self._tag}lease:{name}"], [name, owner, ttl_ms])
        return None if token is None else token.decode()

    def release_lease(self, name: str, owner: str) -> None:
        _RELEASE(self._client, [f"{self._tag}lease:{name}"], [owner])

    @property
    def _epochs_key(self) -> str:
        return f"{self._tag}d"

    def _dictionary(self, epoch: int, byte: int) -> str:
        return f"{self._tag}d{epoch}:{byte}"
