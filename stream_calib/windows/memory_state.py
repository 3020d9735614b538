"""A model key's own state in memory: the port of state_store.py. For tests and backtests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from stream_calib.errors import StateError
from stream_calib.windows.state_store import Commit, StateStore


class MemoryState(StateStore):
    """See StateStore. `clock_ms` gives the time by which leases expire."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self._clock_ms = clock_ms
        self._fields: dict[str, str] = {}
        self._lists: dict[str, list[bytes]] = defaultdict(list)
        self._blobs: dict[str, bytes] = {}
        self._signatures: dict[int, tuple[str, ...]] = {}
        self._leases: dict[str, tuple[str, int]] = {}

    def read(self, names: Sequence[str]) -> dict[str, str | None]:
        return {name: self._fields.get(name) for name in names}

    def commit(self, change: Commit) -> bool:
        if any(self._fields.get(name) != value for name, value in change.expect.items()):
            return False
        self._fields.update(change.fields)
        for name, entries in change.appends.items():
            self._lists[name] += entries
        self._blobs.update(change.blobs)
        return True

    def entries(self, name: str, start: int, stop: int | None = None) -> list[bytes]:
        return self._lists[name][start:stop]

    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        return [self._blobs.get(name) for name in names]

    def put_signatures(self, signatures: Mapping[int, Sequence[str]]) -> None:
        for signature, values in signatures.items():
            self._signatures.setdefault(signature, tuple(values))

    def signatures(self, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        wanted = list(hashes)
        missing = [h for h in wanted if h not in self._signatures]
        if missing:
            raise StateError(f"{len(missing)} signatures are not in the dictionary, the first is {missing[0]}")
        return {h: self._signatures[h] for h in wanted}

    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        now = self._clock_ms()
        holder, until = self._leases.get(name, ("", 0))
        holds = holder == owner and until > now
        if until > now and not holds:
            return None
        field = f"token:{name}"
        if not holds:
            self._fields[field] = str(int(self._fields.get(field, "0")) + 1)
        self._leases[name] = (owner, now + ttl_ms)
        return self._fields[field]

    def release_lease(self, name: str, owner: str) -> None:
        if self._leases.get(name, ("", 0))[0] == owner:
            del self._leases[name]
