"""Evidence of both kinds, advanced over the matured panes in the state: what is kept from one request to the next."""

from __future__ import annotations

from collections.abc import Iterator

from stream_calib.config import Config
from stream_calib.errors import StateError
from stream_calib.refit import checkpoint
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import is_enough
from stream_calib.refit.forward_evidence import MOST_DAYS, ForwardEvidence
from stream_calib.snapshot.canonical import sha256_hex
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import Commit, StateStore

_PANES_A_READ = 256


class CarriedEvidence:
    """`evidence` of the panes from `first_pane` on, and the `forward` record of their days.

    Advanced in one go or in several, from the first pane or from a checkpoint, it is the same; but for the days that
    were over long before the pane that was asked for last, which decide nothing and are left out of the record.
    """

    def __init__(self, state: StateStore, first_pane: int, config: Config) -> None:
        """Raises StateError where the checkpoint is damaged."""
        self._state, self._config = state, config
        self.evidence = _begun(state, first_pane, config)
        self.forward = ForwardEvidence(config, state.signatures)

    def advance(self, last_pane: int) -> None:
        """Takes the matured panes up to `last_pane`. Raises StateError where one is not in the state, or damaged; the
        object then must not be used again."""
        evidence = self.evidence
        for pane, blob in _blobs(self._state, evidence.next_pane, last_pane):
            evidence.advance(pane, blob)
            if evidence.day_is_over:
                self._end_day(last_pane)

    def _end_day(self, last_pane: int) -> None:
        evidence = self.evidence
        # What would be judged on days before those that decide at the request is not fitted: a worker that starts anew
        # after years fits the last days only.
        decides = evidence.last_day >= evidence.day_of(last_pane + 1) - 1 - MOST_DAYS
        fit_cells = evidence.counts.cells() if decides and is_enough(evidence, self._config) else None
        self.forward.end_day(evidence.last_day, evidence.day_panes, fit_cells)


def advance_checkpoint(state: StateStore, config: Config) -> bool:
    """Moves the checkpoint on, where it can be; whether it was. A bounded piece of work.

    Any number of processes may do it at once: it is a function of the panes alone. Raises StateError where panes are
    missing or damaged.
    """
    fields = state.read(("first_pane", "decided", checkpoint.FIELD, KEPT))
    first_pane, decided, before = fields["first_pane"], fields["decided"], fields[checkpoint.FIELD]
    kept = kept_of(fields)
    if first_pane is None or decided is None or kept is None:
        return False
    panes = config.kept_panes()
    named, mine = checkpoint.named(before), checkpoint.identity(config)
    begin = kept.first_pane - 1 if named is None or named.identity != mine else named.last_pane
    last = begin + panes.between_checkpoints
    if last > int(decided) - panes.refit:
        return False
    evidence = _begun(state, int(first_pane), config)
    for pane, blob in _blobs(state, evidence.next_pane, last):
        evidence.advance(pane, blob)
    made = evidence.sums()
    blob = checkpoint.pack(made)
    # As long as the panes behind it.
    signatures = state.signatures(set(made.counts.signature.tolist()))
    state.put_signatures(signatures, (last + 1) * config.windows.pane_ms)
    change = {checkpoint.FIELD: checkpoint.Named(last, sha256_hex(blob), mine).encode()}
    expect = {checkpoint.FIELD: before, KEPT: fields[KEPT], "first_pane": first_pane}
    return state.commit(Commit(expect, change, blobs={checkpoint.NAME: blob}))


def _begun(state: StateStore, first_pane: int, config: Config) -> Evidence:
    """At the checkpoint; at the oldest pane that is kept, where there is none that can be used. That is the first one,
    or the half-lives were changed since: then what was before it counts no more."""
    fields = state.read((checkpoint.FIELD, KEPT, "first_pane"))
    named = checkpoint.named(fields[checkpoint.FIELD])
    if named is not None and named.identity == checkpoint.identity(config):
        (blob,) = state.blobs([checkpoint.NAME])
        if blob is None:
            raise StateError(
                f"the blob {checkpoint.NAME} is missing although the field {checkpoint.FIELD} names it: the model key's"
                " state is damaged; restore it from a backup"
            )
        return Evidence.restored(first_pane, checkpoint.unpack(blob, named.sha256), config)
    evidence = Evidence(first_pane, config)
    kept = kept_of(fields)
    if kept is not None and kept.first_pane > first_pane:
        evidence.next_pane, evidence.cells_sha256 = kept.first_pane, kept.chain
    return evidence


def _blobs(state: StateStore, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    while first <= last:
        panes = range(first, min(first + _PANES_A_READ, last + 1))
        for pane, blob in zip(panes, state.blobs([PaneNames.of(p).matured for p in panes]), strict=True):
            if blob is None:
                raise StateError(f"matured cells of pane {pane} are not in the state store")
            yield pane, blob
        first = panes.stop
