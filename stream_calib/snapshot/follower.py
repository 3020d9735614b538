"""Following the current snapshot from a process that serves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib import fault_points
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.errors import DamagedSnapshotError, SnapshotError, StateUnavailableError
from stream_calib.snapshot.compiled import compile_snapshot, time_attributes
from stream_calib.snapshot.history import is_publication, pointer_moves
from stream_calib.snapshot.model import LevelSnapshot, ResolvedSnapshot, decode_snapshot, resolve, sequence_of
from stream_calib.windows.state_store import Commit, StateStore

_LOG = logging.getLogger(__name__)

_VERIFY_POLLS = 60
"""Polls between two looks at whether the store still has the blobs that are served."""
_PAUSE_FACTOR = 9
"""After an attempt that failed, so many times as long is for serving: a store that does not answer at all blocks for as
long as connections are waited for."""
_LONGEST_PAUSE_MS = 30_000


@dataclass(frozen=True, slots=True)
class Served:
    """One snapshot, ready to be applied. Take one for a batch and use it for the whole batch."""

    version: str
    sequence: int
    map: ServedMap
    data_end_ms: int = 0
    """Event time at which the panes end that the snapshot was made from, epoch milliseconds."""
    derived: TimeAttributes | None = None
    """Attributes of the map that come from the event time."""
    attributes: int | None = None
    """Values at the start of a signature that the map knows, which are looked up without the rest (the keep rate);
    None: all."""

    def apply(
        self,
        score: NDArray[np.float64],
        signature_index: NDArray[np.intp],
        signatures: Sequence[Signature],
        event_time_ms: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Calibrated probabilities (n,), as `ServedMap.apply`; `event_time_ms` (n,): epoch milliseconds."""
        if self.attributes is not None and signatures and len(signatures[0]) > self.attributes:
            signatures = [signature[: self.attributes] for signature in signatures]
        if self.derived is not None:
            pane = event_time_ms // self.derived.pane_ms
            signature_index, signatures = self.derived.extend(signature_index, signatures, pane)
        return self.map.apply(score, signature_index, signatures)


class SnapshotFollower:
    """Gives the snapshot to serve, and keeps the last good one while the store is away or holds what cannot be served.

    It never goes to a lower sequence number unless the history has a rollback to it after the version that it holds.
    Where the store lost the blobs of what is served, it puts them back; it never moves the pointer. Not thread-safe.
    """

    def __init__(
        self,
        state: StateStore,
        attributes: Sequence[str],
        *,
        poll_ms: int,
        max_staleness_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """`attributes`: names, in the order in which the scores' signatures hold their values. `clock_ms`: monotonic,
        milliseconds."""
        self._attributes = tuple(attributes)
        self._state, self._poll_ms, self._max_staleness_ms, self._clock_ms = state, poll_ms, max_staleness_ms, clock_ms
        self._served: Served | None = None
        self._blobs: dict[str, bytes] = {}
        self._next_poll_ms: int | None = None
        self._reached_ms: int | None = None
        self._since_verified = 0
        self.damaged: str | None = None
        """Version that the pointer names and that cannot be served; None where all is well."""
        self.behind = False
        """The pointer is behind what is served without a logged rollback: the store lost writes."""

    @property
    def staleness_ms(self) -> int:
        """Time since the pointer was last read, 0 before the first poll."""
        return 0 if self._reached_ms is None else self._clock_ms() - self._reached_ms

    @property
    def state(self) -> StateStore:
        """What is followed."""
        return self._state

    @property
    def held(self) -> Served | None:
        """What `current` gave last, without a look at the store."""
        return self._served

    def current(self) -> Served | None:
        """What to serve; None before the first publication. Reads the store at most once a poll interval, and less
        often while it is away and each attempt takes long.

        Raises StateUnavailableError where the store has been away for longer than `max_staleness_ms`, or was never
        reached; SnapshotError where the current snapshot cannot be served and there is none to go on with.
        """
        now = self._clock_ms()
        if self._next_poll_ms is not None and now < self._next_poll_ms:
            return self._served
        try:
            self._poll()
        except StateUnavailableError as error:
            if self._reached_ms is None:
                raise
            away_ms = now - self._reached_ms
            if away_ms > self._max_staleness_ms:
                raise StateUnavailableError(
                    f"the state store has been away for {away_ms} ms, longer than max_snapshot_staleness"
                ) from error
            after = self._clock_ms()
            pause_ms = min(_PAUSE_FACTOR * (after - now), _LONGEST_PAUSE_MS)
            too_stale = self._reached_ms + self._max_staleness_ms + 1
            self._next_poll_ms = min(max(now + self._poll_ms, after + pause_ms), too_stale)
        else:
            self._reached_ms, self._next_poll_ms = now, now + self._poll_ms
        return self._served

    def _poll(self) -> None:
        pointer = self._state.read(["current"])["current"] or None
        held = self._served
        was_behind, self.behind = self.behind, held is not None and (pointer is None or self._lost(held, pointer))
        if self.behind:
            if held is not None and not was_behind:
                _LOG.warning("snapshot %s is served on: the state has lost writes, it names %s", held.version, pointer)
            self._put_back()
        elif held is not None and pointer == held.version:
            self.damaged = None
            self._since_verified += 1
            if self._since_verified >= _VERIFY_POLLS:
                self._put_back()
        elif pointer is not None:
            self._take(pointer)

    def _lost(self, held: Served, pointer: str) -> bool:
        """Whether the pointer is at a lower sequence although nobody rolled back to it."""
        try:
            if sequence_of(pointer) >= held.sequence:
                return False
        except DamagedSnapshotError:
            return False  # `_take` finds that it names no snapshot
        moves = [move for move in pointer_moves(self._state) if is_publication(move)]
        places = [i for i, move in enumerate(moves) if move["version"] == held.version]
        if not places:
            return True
        return not any(m["what"] == "rollback" and m["version"] == pointer for m in moves[places[-1] :])

    def _take(self, version: str) -> None:
        try:
            resolved, data_end_ms, blobs = self._load(version)
            derived = time_attributes(resolved.structure)
            self._served = Served(
                version,
                resolved.sequence,
                compile_snapshot(resolved),
                data_end_ms,
                derived,
                len(resolved.structure.attributes),
            )
        except SnapshotError as error:
            if self._served is None:
                raise
            if self.damaged != version:
                _LOG.error("snapshot %s is served on: %s", self._served.version, error)
            self.damaged = version
            return
        self._blobs, self.damaged, self._since_verified = blobs, None, 0

    def _load(self, version: str) -> tuple[ResolvedSnapshot, int, dict[str, bytes]]:
        blobs = {f"snapshot:{version}": self._blob(version)}
        snapshot = decode_snapshot(version, blobs[f"snapshot:{version}"])
        structure = None
        if isinstance(snapshot, LevelSnapshot):
            below = self._blob(snapshot.structure)
            blobs[f"snapshot:{snapshot.structure}"] = below
            structure = decode_snapshot(snapshot.structure, below)
        resolved = resolve(version, snapshot, structure)
        if resolved.structure.attributes != self._attributes:
            # Its offsets would be given to the values of other attributes.
            raise SnapshotError(
                f"snapshot {version} is over the attributes {_listed(resolved.structure.attributes)}, the configuration"
                f" has {_listed(self._attributes)}: put them back, in their order, or give the model another version"
            )
        return resolved, (snapshot.last_pane + 1) * resolved.structure.pane_ms, blobs

    def _blob(self, version: str) -> bytes:
        (encoded,) = self._state.blobs([f"snapshot:{version}"])
        if encoded is None:
            raise DamagedSnapshotError(f"snapshot {version} is current, but its blob is not in the state store")
        return encoded

    def _put_back(self) -> None:
        self._since_verified = 0
        names = list(self._blobs)
        stored = self._state.blobs(names)
        lost = {n: self._blobs[n] for n, found in zip(names, stored, strict=True) if found != self._blobs[n]}
        if lost:
            fault_points.before("snapshot.put_back")
            self._state.commit(Commit(blobs=lost))
            fault_points.after("snapshot.put_back")


def _listed(attributes: Sequence[str]) -> str:
    return ", ".join(attributes) or "(none)"
