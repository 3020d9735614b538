"""The decision log of a model key: every request, settlement, manual action, rollback and pin, each with its pane.

What is before the newest entries may have been dropped. What they came to, the tip among it, is then kept as the
*folded* log, from which the chain goes on.

The log is a list of canonical JSON entries under one hash chain, the *tip*. Whoever appends does so by
compare-and-set on the tip and on the last decided pane. Entries that come from outside the closer (settled, expired,
and those of people) carry pane `decided + 1` of the moment at which they are written, and take effect there: the closer
cannot decide that pane without having seen them, because its own compare-and-set is on the tip. So "the snapshot that
was current at pane M" is a pure function of the log.

A candidate that was *held* waits for somebody. A publication, of another one or of itself, ends that of all: what they
were compared with is no longer served.

Everything here is pure; `store.py` does the reading and writing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from stream_calib.drift.policy import Kind, Reason
from stream_calib.errors import StateError
from stream_calib.snapshot.folded_log import FoldedLog, Held
from stream_calib.snapshot.operator_entries import (
    Approve,
    LogEntry,
    Manual,
    Pin,
    Reject,
    Rollback,
    Shadow,
    Unpin,
    Unshadow,
)

Outcome: TypeAlias = Literal["published", "refused", "failed", "held", "superseded"]

MOST_HELD = 20
"""Candidates of a kind that are held at once: one more supersedes the oldest, but for the shadow."""


class Request(LogEntry):
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


class Settled(LogEntry):
    """The one answer to a request."""

    type: Literal["settled"] = "settled"
    request_id: str
    outcome: Outcome
    version: str | None = None
    """The version published, or held."""
    reason: str = ""
    report_sha256: str
    """Hash of the kept report's entry in the list `reports`."""
    actor: str = "refit"


class Expired(LogEntry):
    """No answer came; the closer goes on without."""

    type: Literal["expired"] = "expired"
    request_id: str


Entry: TypeAlias = Request | Settled | Expired | Manual | Rollback | Pin | Unpin | Approve | Reject | Shadow | Unshadow
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
        """`refit_refused`, `refit_failed` -> pane of the first such settlement since the last candidate that passed."""
        self.pin: Pin | None = None
        """The pin that holds after the last entry."""
        self.held: dict[str, Held] = {}
        """Version -> candidate that is held after the last entry, oldest first."""
        self.held_since: int | None = None
        """Pane of the request since whose answer there has been a held candidate; None while there is none."""
        self.shadow: Shadow | None = None
        """What is evaluated beside what is served, after the last entry."""
        self.known_from_pane: int | None = None
        """The first pane of which `current_at` knows what was current, where a publication was dropped; None: all."""
        self._manual: dict[int, list[Manual]] = {}
        self._move_panes: list[int] = []
        self._move_versions: list[str] = []
        if folded is not None:
            self.dropped, self.tip, self.pin = folded.length, folded.tip, folded.pin
            self.open_failures = dict(folded.open_failures)
            self.held, self.held_since = {held.version: held for held in folded.held}, folded.held_since
            self.shadow = folded.shadow
            self.known_from_pane = folded.moved_pane
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
            held=tuple(self.held.values()),
            held_since=self.held_since,
            shadow=self.shadow,
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
        elif isinstance(entry, Settled | Expired):
            if self.open_request is None or entry.request_id != self.open_request.id:
                raise StateError(f"decision log: {entry.type} entry for request {entry.request_id}, which is not open")
            request, self.open_request = self.open_request, None
            if isinstance(entry, Settled):
                self._settle(request, entry)
        elif isinstance(entry, Manual):
            self._manual.setdefault(entry.pane, []).append(entry)
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
        elif isinstance(entry, Shadow):
            if entry.version == self.current:
                raise StateError(f"decision log: {entry.version} is made the shadow while it is current")
            self.shadow = entry
        elif isinstance(entry, Unshadow):
            if self.shadow is None:
                raise StateError(f"decision log: {entry.version} is no longer the shadow, while nothing was")
            self.shadow = None
        else:
            self._answer_held(entry)

    def _settle(self, request: Request, entry: Settled) -> None:
        if entry.outcome == "published":
            self._published(entry.pane, entry.version, entry.type)
        elif entry.outcome in ("refused", "failed"):
            self.open_failures.setdefault(f"refit_{entry.outcome}", entry.pane)
        elif entry.outcome == "held":
            if entry.version is None:
                raise StateError(f"decision log: request {entry.request_id} is held, without a version")
            self.open_failures = {}
            if not self.held:
                self.held_since = request.pane
            self.held[entry.version] = Held(
                version=entry.version,
                kind=request.kind,
                parent=request.parent,
                request_id=request.id,
                asked_pane=request.pane,
                pane=entry.pane,
            )
            if (oldest := self.held_beyond(request.kind, MOST_HELD)) is not None:
                del self.held[oldest]

    def _answer_held(self, entry: Approve | Reject) -> None:
        held = self.held.get(entry.version)
        if held is None:
            raise StateError(f"decision log: {entry.type} entry for {entry.version}, which is not held")
        if isinstance(entry, Approve):
            if not entry.left == held.parent == self.current:
                raise StateError(
                    f"decision log: {entry.version} replaces {held.parent}, and is approved while {self.current} is"
                    " current"
                )
            self._published(entry.pane, entry.version, entry.type)
            return
        del self.held[entry.version]
        self._drop_shadow(entry.version)
        if not self.held:
            self.held_since = None

    @property
    def waiting(self) -> set[str]:
        """Versions whose blobs are needed though no move of the pointer may name them: held ones, and the shadow."""
        shadow = () if self.shadow is None else (self.shadow.version, self.shadow.structure)
        return {*self.held, *(version for version in shadow if version is not None)}

    def held_beyond(self, kind: Kind, most: int) -> str | None:
        """The oldest held candidate of the kind where there are more than `most`, and it is not the shadow."""
        of_kind = [held.version for held in self.held.values() if held.kind == kind]
        spare = [version for version in of_kind if self.shadow is None or version != self.shadow.version]
        return spare[0] if len(of_kind) > most and spare else None

    def _published(self, pane: int, version: str | None, what: str) -> None:
        superseded = set(self.held)
        self._move(pane, version, what)
        self.open_failures, self.held, self.held_since = {}, {}, None
        for other in superseded:
            self._drop_shadow(other)

    def _move(self, pane: int, version: str | None, what: str) -> None:
        if version is None or (self._move_panes and pane < self._move_panes[-1]):
            raise StateError(f"decision log: {what} entry at pane {pane} with version {version} is out of order")
        self._move_panes.append(pane)
        self._move_versions.append(version)
        self._drop_shadow(version)

    def _drop_shadow(self, version: str) -> None:
        if self.shadow is not None and self.shadow.version == version:
            self.shadow = None

    def current_at(self, pane: int) -> str | None:
        """Version that is current when `pane` is decided, None before the first publication that is known of."""
        index = bisect_right(self._move_panes, pane)
        return self._move_versions[index - 1] if index else None

    def manual_at(self, pane: int) -> list[Manual]:
        """Manual refit actions that take effect at `pane`."""
        return list(self._manual.get(pane, ()))
