"""The port to a model key's own state: small fields, append-only lists and blobs under one hash tag, one
compare-and-set.

Everything that the closer, refit, the operators and the alert outbox change goes through `commit`, so each change is
one atomic step: all expectations hold and everything is written, or nothing is.

Fields in use (all text; a missing field reads as None)

| field | meaning |
|---|---|
| format | number of the format of state and shards |
| generation, semantics | hash of the semantic configuration that the state was made under, and its JSON |
| topics | identities of the topics that the positions belong to |
| first_pane, closed, matured, decided | the generation's first pane, and the three cursors (last pane done) |
| matured_chain | hash chain over the packed matured cells up to `matured` |
| tip, log_length | hash chain and length of the list `decisions` |
| detector | the step's carried state, canonical JSON |
| open_request | id of the request in flight, empty when there is none |
| current, sequence | served snapshot version; highest sequence number ever given |
| inputs | number of entries of the list `inputs` |
| token:<lease> | fencing token of the last owner of a lease |
| late_labels, no_scores, snapshot_too_old, rolled_back | what was told last of the alert (alerts/standing.py) |
| outbox_sent, outbox_passed | number of entries of `outbox` that are in the topic; that are of times that are over |
| hook:<hook> | number of entries of `outbox` that the hook has taken over, and how often its record has changed |
| acknowledged | alerts that somebody has taken on (alerts/acknowledgement.py) |
| from:<list> | number of entries that were dropped from the list's beginning; missing: none |
| kept | the oldest pane whose blobs are kept, and what those before it summed to (refit/retention.py) |
| checkpoint | the last pane and the hash of the blob `evidence` (refit/checkpoint.py) |

Lists: `inputs` (input partitions with their first marks), `decisions` (decision log), `history` (snapshot pointer
moves), `outbox` (alert events), `given_up` (alert events that a hook will not be told), `reports` (gate reports). An
entry keeps its number when those before it are dropped.
Blobs: `scored:<pane>`, `matured:<pane>` (packed cells), `pane:<pane>` (pane record, JSON), `snapshot:<version>`,
`evidence` (checkpoint of what refits are made from), `folded:<list>` (what the dropped entries of a list left behind),
`hook:<hook>` (what a hook is owed, alerts/delivery_ledger.py), `refused:hook:<hook>` (the last that could not be read).
The signature dictionary is split by epochs of event time, so that it can be dropped with the panes that name it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SIGNATURE_EPOCH_MS = 30 * 86_400_000
"""Event time for which the signature dictionary has one part."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One compare-and-set. `expect` maps fields to the value that they must have (None: absent)."""

    expect: Mapping[str, str | None] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    appends: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    """List name -> entries to append."""
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    deletes: Sequence[str] = ()
    """Blobs to delete; one that is not there is no error."""
    trims: Mapping[str, int] = field(default_factory=dict)
    """List name -> number of the first entry to keep. Entries that are dropped already stay so."""


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

    def wait_for_replica(self, within_ms: int) -> bool | None:
        """Waits until a replica has everything that was written before, at most so long, and not so long that the
        connection would be given up. False where none has; None where there is no replica, or none may be waited
        for."""
        return None

    @abstractmethod
    def entries(self, name: str, start: int, stop: int | None = None) -> list[bytes]:
        """List entries start <= number < stop (None: to the end), without those that were dropped."""

    @abstractmethod
    def length(self, name: str) -> int:
        """How many entries the list has had, with those that were dropped: the number of the next one."""

    @abstractmethod
    def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        """The named blobs, None where there is none."""

    @abstractmethod
    def put_signatures(self, signatures: Mapping[int, Sequence[str]], until_ms: int) -> None:
        """Adds to the dictionary signature hash -> attribute values. Idempotent; equal hashes have equal values.

        They stay as long as a pane that begins at event time `until_ms`, or before it, is kept.
        """

    @abstractmethod
    def signatures(self, hashes: Iterable[int]) -> dict[int, tuple[str, ...]]:
        """Attribute values of the hashes; raises StateError naming a hash that is not in the dictionary."""

    @abstractmethod
    def drop_signatures(self, before_ms: int) -> int:
        """Drops the epochs of the dictionary that end at or before the event time; how many those were."""

    @abstractmethod
    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        """Takes or renews the lease for `ttl_ms`. The owner's fencing token (also in the field `token:<name>`; a new
        number at each change of owner), or None while another owner holds it."""

    @abstractmethod
    def release_lease(self, name: str, owner: str) -> None:
        """Gives the lease up if `owner` holds it."""
