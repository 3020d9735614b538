"""The decision log of a model key: every request, settlement, manual action, rollback and pin, each with its pane.

What is before the newest entries may have been dropped. What they came to, the tip among it, is then kept as the
*folded* log, from which the chain goes on.

The log is a list of canonical JSON entries under one hash chain, the *tip*. Whoever appends does so by
compare-and-set on the tip and on the last decided pane. Entries that come from outside the closer (settled, expired,
manual, rollback, pin, unpin) carry pane `decided + 1` of the moment at which they are written, and take effect there:
the closer cannot decide that pane without having seen them, because its own compare-and-set is on the tip. So "the
snapshot that was current at pane M" is a pure function of the log.

Everything here is pure; `store.py` does the reading and writing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from stream_calib.drift.policy import Kind, Reason
from stream_calib.errors import StateError
from stream_calib.snapshot.canonical import canonical_json

Outcome: TypeAlias = Literal["published", "refused", "failed", "held", "superseded"]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    pane: int
    """The pane at which the entry takes effect; of a request: the pane that was decided with it."""

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


class Request(_Entry):
    """The closer asks for a refit on the matured panes first_pane .. last_pane."""

    type: Literal["request"] = "request"
    id: str
    kind: Kind
    reason: Reason
    first_pane: int
    last_pane: int
    cells_sha256: str
    """Chain hash of the matured blobs up to `last_pane`; a worker that reads other bytes settles the request as
    failed."""
    parent: str | None
    """Version of the snapshot that was current at `pane`."""
    roles: dict[str, list[int]]
    """Role -> unit buckets."""
    config_hash: str


class Settled(_Entry):
    """The one answer to a request."""

    type: Literal["settled"] = "settled"
    request_id: str
    outcome: Outcome
    version: str | None = None
    """The version published."""
    reason: str = ""
    report_sha256: str
    """Hash of the kept report's entry in the list `reports`."""
    actor: str = "refit"


class Expired(_Entry):
    """No answer came; the closer goes on without."""

    type: Literal["expired"] = "expired"
    request_id: str


class Manual(_Entry):
    """Somebody asks for a structure refit."""

    type: Literal["manual"] = "manual"
    action: Literal["refit"] = "refit"
    actor: str
    reason: str
    time_ms: int


class Rollback(_Entry):
    """Somebody moves the pointer back to a version that was published before."""

    type: Literal["rollback"] = "rollback"
    version: str
    left: str
    """The version that was current before."""
    actor: str
    reason: str
    time_ms: int


class Pin(_Entry):
    """Somebody keeps the current version: no refit is published until somebody unpins it."""

    type: Literal["pin"] = "pin"
    version: str
    """Current at this entry; where another one was, a rollback stands before it."""
    actor: str
    reason: str
    time_ms: int


class Unpin(_Entry):
    """Refits are published again."""

    type: Literal["unpin"] = "unpin"
    version: str
    """The version that was pinned."""
    actor: str
    reason: str
    time_ms: int


Entry: TypeAlias = Request | Settled | Expired | Manual | Rollback | Pin | Unpin
_ADAPTER: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="type")])


def decode_entry(raw: bytes) -> Entry:
    """The entry. Raises StateError where the bytes are none."""
    try:
        return _ADAPTER.validate_json(raw)
    except ValidationError as error:
        raise StateError(f"entry of the decision log cannot be read ({error}): {raw[:200]!r}") from error


def link(tip: str | None, entry: bytes) -> str:
    """The tip after one more entry: sha256(hexadecimal tip, then the entry); the empty log's tip is the empty text."""
    return hashlib.sha256((tip or "").encode() + entry).hexdigest()


def chain(tip: str | None, entries: Sequence[bytes]) -> str | None:
    """The tip after the entries."""
    for entry in entries:
        tip = link(tip, entry)
    return tip


class FoldedLog(BaseModel):
    """What entries came to that were dropped, none of them an open request: the blob `folded:decisions`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    length: int
    tip: str | None
    moved_pane: int | None
    """Pane of the last move of the pointer, and the version that it is at since."""
    current: str | None
    open_failures: dict[str, int]
    pin: Pin | None

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def decode(cls, raw: bytes) -> FoldedLog:
        """Raises StateError where the bytes are none."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise StateError(f"the folded decision log cannot be read ({error}): {raw[:200]!r}") from error


class DecisionLog:
    """The log as read so far, folded. `extend` it with the raw entries from `length` on."""

    def __init__(self, folded: FoldedLog | None = None) -> None:
        """`folded`: where the log begins, if its first entries were dropped."""
        self.entries: list[Entry] = []
        """Without those that were dropped."""
        self.dropped = 0
        self.tip: str | None = None
        """As in the field `tip`: None while the log is empty."""
        self.open_request: Request | None = None
        """The request without an answer. At most one."""
        self.open_failures: dict[str, int] = {}
        """`refit_refused`, `refit_failed` -> pane of the first such settlement since the last publication."""
        self.pin: Pin | None = None
        """The pin that holds after the last entry."""
        self._manual: dict[int, list[Manual]] = {}
        self._move_panes: list[int] = []
        self._move_versions: list[str] = []
        if folded is not None:
            self.dropped, self.tip, self.pin = folded.length, folded.tip, folded.pin
            self.open_failures = dict(folded.open_failures)
            if folded.moved_pane is not None:
                self._move(folded.moved_pane, folded.current, "folded")

    @property
    def length(self) -> int:
        """With those that were dropped."""
        return self.dropped + len(self.entries)

    def folded(self) -> FoldedLog:
        """What all entries so far came to. Raises ValueError while a request is open."""
        if self.open_request is not None:
            raise ValueError(f"request {self.open_request.id} is open; the log cannot be folded behind it")
        return FoldedLog(
            length=self.length,
            tip=self.tip,
            moved_pane=self._move_panes[-1] if self._move_panes else None,
            current=self.current,
            open_failures=self.open_failures,
            pin=self.pin,
        )

    @property
    def current(self) -> str | None:
        """Version that the pointer is at after the last entry."""
        return self._move_versions[-1] if self._move_versions else None

    def extend(self, raw: Sequence[bytes]) -> None:
        """Folds further entries in. Raises StateError where one cannot be read or contradicts those before it."""
        for encoded in raw:
            entry = decode_entry(encoded)
            self._fold(entry)
            self.tip = link(self.tip, encoded)
            self.entries.append(entry)

    def _fold(self, entry: Entry) -> None:
        if isinstance(entry, Request):
            if self.open_request is not None:
                raise StateError(f"decision log: request {entry.id} while {self.open_request.id} is open")
            self.open_request = entry
            return
        if isinstance(entry, Settled | Expired):
            if self.open_request is None or entry.request_id != self.open_request.id:
                raise StateError(f"decision log: {entry.type} entry for request {entry.request_id}, which is not open")
            self.open_request = None
        if isinstance(entry, Manual):
            self._manual.setdefault(entry.pane, []).append(entry)
        elif isinstance(entry, Settled):
            if entry.outcome == "published":
                self._move(entry.pane, entry.version, entry.type)
                self.open_failures = {}
            elif entry.outcome in ("refused", "failed"):
                self.open_failures.setdefault(f"refit_{entry.outcome}", entry.pane)
        elif isinstance(entry, Rollback):
            self._move(entry.pane, entry.version, entry.type)
        elif isinstance(entry, Pin):
            if entry.version != self.current:
                raise StateError(f"decision log: {entry.version} is pinned while {self.current} is current")
            self.pin = entry
        elif isinstance(entry, Unpin):
            if self.pin is None:
                raise StateError(f"decision log: {entry.version} is unpinned while nothing is pinned")
            self.pin = None

    def _move(self, pane: int, version: str | None, what: str) -> None:
        if version is None or (self._move_panes and pane < self._move_panes[-1]):
            raise StateError(f"decision log: {what} entry at pane {pane} with version {version} is out of order")
        self._move_panes.append(pane)
        self._move_versions.append(version)

    def current_at(self, pane: int) -> str | None:
        """Version that is current when `pane` is decided, None before the first publication that is known of."""
        index = bisect_right(self._move_panes, pane)
        return self._move_versions[index - 1] if index else None

    def manual_at(self, pane: int) -> list[Manual]:
        """Manual refit actions that take effect at `pane`."""
        return list(self._manual.get(pane, ()))
