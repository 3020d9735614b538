"""Dropping what is done with: blobs of old panes, old entries of the lists, old snapshots, signatures that no kept pane
names.

Everything is dropped by compare-and-set, together with what it leaves behind: counters and hash chain of the panes,
the folded decision log. So nothing is ever half dropped, and any number of processes may do it at once. What is kept
of panes goes back at least to the checkpoint that refits begin at.
"""

from __future__ import annotations

import json
from collections import Counter

from stream_calib.config import Config
from stream_calib.errors import StateError
from stream_calib.refit import checkpoint
from stream_calib.snapshot.history import is_publication, versions_named
from stream_calib.snapshot.log_reader import FOLDED, LogReader, begun
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import KeptPanes, kept_of
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.state_store import Commit, StateStore

_FEWEST_PANES, _MOST_PANES = 24, 480
"""Dropped in one step."""
_FEWEST_ENTRIES = 32


class Retention:
    """Of one model key. `advance` it now and then: each call does a bounded piece."""

    def __init__(self, state: StateStore, config: Config) -> None:
        self._state, self._panes = state, config.kept_panes()
        self._pane_ms, self._publications = config.windows.pane_ms, config.retention.publications
        self._identity = checkpoint.identity(config)
        self._reader = LogReader(state)
        self._looked_at_length = -_FEWEST_ENTRIES
        self._signatures_from_ms: int | None = None

    def advance(self, removed: int | None) -> bool:
        """Drops what can be; whether there was something.

        `removed`: the last pane that every shard has removed; None where one has removed none, which may begin at any
        pane that is kept. Raises StateError where something is missing or damaged.
        """
        fields = self._state.read(("first_pane", "decided", KEPT, checkpoint.FIELD, "log_length"))
        panes = removed is not None and self._drop_panes(fields, removed)
        length = int(fields["log_length"] or 0)
        if length - self._looked_at_length < _FEWEST_ENTRIES:
            return panes
        self._looked_at_length = length
        return self._fold_log(int(fields["decided"] or 0)) | self._drop_publications() | panes

    # --- panes

    def _drop_panes(self, fields: dict[str, str | None], removed: int) -> bool:
        kept, named, decided = kept_of(fields), checkpoint.named(fields[checkpoint.FIELD]), fields["decided"]
        if kept is None or named is None or named.identity != self._identity or decided is None:
            return False
        needed = min(named.last_pane + 1, removed + 1, int(decided) + 1 - self._panes.archive)
        first = min(needed, kept.first_pane + _MOST_PANES)
        if first - kept.first_pane < _FEWEST_PANES:
            return False
        names = [PaneNames.of(pane) for pane in range(kept.first_pane, first)]
        counts, chain = Counter(kept.counts), kept.chain
        for name, blob in zip(names, self._state.blobs([name.record for name in names]), strict=True):
            if blob is None:
                if self._state.read((KEPT,))[KEPT] != fields[KEPT]:
                    return True  # another one has dropped it
                raise StateError(
                    f"blob {name.record} is missing although its pane is kept: the model key's state is damaged;"
                    " restore it from a backup"
                )
            record = decode_record(blob)
            counts.update(record.counts)
            counts.update({"labelled": record.labelled, "unlabelled": record.unlabelled})
            chain = record.chain
        change = Commit(
            {KEPT: fields[KEPT], checkpoint.FIELD: fields[checkpoint.FIELD], "first_pane": fields["first_pane"]},
            {KEPT: KeptPanes(first, chain, dict(counts)).encode()},
            deletes=[blob for name in names for blob in name],
        )
        if self._state.commit(change):
            self._drop_signatures(first)
        return True

    def _drop_signatures(self, first_pane: int) -> None:
        before_ms = first_pane * self._pane_ms
        if self._signatures_from_ms is None or before_ms > self._signatures_from_ms:
            self._state.drop_signatures(before_ms)
            self._signatures_from_ms = before_ms

    # --- lists

    def _fold_log(self, decided: int) -> bool:
        """Two entries belong to each publication, and those of refused ones come in between."""
        fields, log = self._reader.read(("from:decisions",))
        dropped, first = log.dropped, log.length - 4 * self._publications
        if first - dropped < _FEWEST_ENTRIES:
            return False
        folded = begun(self._state)
        kept = self._state.entries("decisions", folded.length, log.length)
        if folded.length + len(kept) != log.length:
            return False  # another one has folded it between the two reads
        for raw in kept:
            if folded.length >= first and folded.open_request is None:
                break
            folded.extend([raw])
            if folded.entries[-1].pane > decided:
                return False  # it has yet to take effect
        if folded.open_request is not None:
            return False
        expect = {name: fields[name] for name in ("tip", "from:decisions")}
        blobs = {FOLDED: folded.folded().encode()}
        return self._state.commit(Commit(expect, blobs=blobs, trims={"decisions": folded.length}))

    def _drop_publications(self) -> bool:
        """Pointer moves and reports beyond the newest, and the snapshots that none of the kept moves names."""
        fields, log = self._reader.read(("from:history", "from:reports"))
        dropped = int(fields["from:history"] or 0)
        moves = [json.loads(raw) for raw in self._state.entries("history", dropped)]
        published = [place for place, move in enumerate(moves) if is_publication(move)]
        trims, deletes = dict[str, int](), list[str]()
        if len(published) >= self._publications + _FEWEST_ENTRIES:
            place = published[-self._publications]
            gone = versions_named(moves[:place]) - versions_named(moves[place:]) - log.waiting
            trims["history"] = dropped + place
            deletes = [f"snapshot:{version}" for version in sorted(gone)]
        reports = self._state.length("reports") - self._publications
        if reports - int(fields["from:reports"] or 0) >= _FEWEST_ENTRIES:
            trims["reports"] = reports
        return bool(trims) and self._state.commit(Commit(fields, deletes=deletes, trims=trims))
