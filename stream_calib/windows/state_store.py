"""The port to a model key's own state: small fields, append-only lists and blobs under one hash tag, one
compare-and-set.

Everything that the closer, refit, the operators and the alert outbox change goes through `commit`, so each change is
one atomic step: all expectations hold and everything is written, or nothing is.

Fields in use (all text; a missing field reads as None)

| field | meaning |
|---|---|
| generation | hash of the semantic configuration that the state was made under |
| topics | identities of the topics that the positions belong to |
| first_pane, closed, matured, decided | the generation's first pane, and the three cursors (last pane done) |
| matured_chain | hash chain over the packed matured cells up to `matured` |
| tip, log_length | hash chain and length of the list `decisions` |
| detector | the step's carried state, canonical JSON |
| open_request | id of the request in flight, empty when there is none |
| current, sequence | served snapshot version; highest sequence number ever given |
| inputs | number of entries of the list `inputs` |
| token:<lease> | fencing token of the last owner of a lease |
| outbox_sent | number of entries of `outbox` that were delivered |

Lists: `inputs` (input partitions with their first marks), `decisions` (decision log), `history` (snapshot pointer
moves), `outbox` (alert events), `reports` (gate reports).
Blobs: `scored:<pane>`, `matured:<pane>` (packed cells), `pane:<pane>` (pane record, JSON), `snapshot:<version>`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Commit:
    """One compare-and-set. `expect` maps fields to the value that they must have (None: absent)."""

    expect: Mapping[str, str | None] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    appends: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    """List name -> entries to append."""
    blobs: Mapping[str, bytes] = field(default_factory=dict)


class StateStore(ABC):
    """State of one model key. Safe to use from several processes. Raises StateUnavailableError when the store is
    away."""

    @abstractmethod
    def read(self, names: Sequence[str]) -> dict[str, str | None]:
        """The named fields, read at one moment."""

    @abstractmethod
    def commit(self, change: Commit) -> bool:
        """True when all expectations held and everything was written, False when nothing was. StateError, with nothing
        written, where the store holds something that is not of this program."""

    @abstractmethod
    def entries(self, name: str, start: int, stop: int | None = None) -> list[bytes]:
        """List entries start <= index < stop (None: to the end)."""

    @abstractmethod
    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        """The named blobs, None where there is none."""

    @abstractmethod
    def put_signatures(self, signatures: Mapping[int, Sequence[str]]) -> None:
        """Adds to the dictionary signature hash -> attribute values. Idempotent; equal hashes have equal values."""

    @abstractmethod
    def signatures(self, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        """Attribute values of the hashes; raises StateError naming a hash that is not in the dictionary."""

    @abstractmethod
    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        """Takes or renews the lease for `ttl_ms`. The owner's fencing token (also in the field `token:<name>`; a new
        number at each change of owner), or None while another owner holds it."""

    @abstractmethod
    def release_lease(self, name: str, owner: str) -> None:
        """Gives the lease up if `owner` holds it."""
