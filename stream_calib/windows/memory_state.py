"""A model key's own state in memory: the port of state_store.py. For tests and backtests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from stream_calib.errors import StateError
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS, Commit, StateStore


class MemoryState(StateStore):
    """See StateStore. `clock_ms` gives the time by which leases expire."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self._clock_ms = clock_ms
        self._fields: dict[str, str] = {}
        self._lists: dict[str, list[bytes]] = defaultdict(list)
        self._blobs: dict[str, bytes] = {}
        self._signatures: dict[int, dict[int, tuple[str, ...]]] = {}
        """Epoch -> hash -> values."""
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
        for name in change.deletes:
            self._blobs.pop(name, None)
        for name, first in change.trims.items():
            dropped = max(0, first - self._dropped(name))
            del self._lists[name][:dropped]
            self._fields[f"from:{name}"] = str(self._dropped(name) + dropped)
        return True

    def entries(self, name: str, start: int, stop: int | None = None) -> list[bytes]:
        dropped = self._dropped(name)
        return self._lists[name][max(0, start - dropped) : None if stop is None else max(0, stop - dropped)]

    def length(self, name: str) -> int:
        return self._dropped(name) + len(self._lists[name])

    def _dropped(self, name: str) -> int:
        return int(self._fields.get(f"from:{name}", "0"))

    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        return [self._blobs.get(name) for name in names]

    def put_signatures(self, signatures: Mapping[int, Sequence[str]], until_ms: int) -> None:
        epoch = self._signatures.setdefault(until_ms // SIGNATURE_EPOCH_MS, {})
        for signature, values in signatures.items():
            epoch.setdefault(signature, tuple(values))

    def signatures(self, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        wanted = list(hashes)
        known = {h: epoch[h] for epoch in self._signatures.values() for h in wanted if h in epoch}
        missing = [h for h in wanted if h not in known]
        if missing:
            raise StateError(f"{len(missing)} signatures are not in the dictionary, the first is {missing[0]}")
        return known

    def drop_signatures(self, before_ms: int) -> int:
        over = [epoch for epoch in self._signatures if epoch < before_ms // SIGNATURE_EPOCH_MS]
        for epoch in over:
            del self._signatures[epoch]
        return len(over)

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
