"""Outcome classes of a model key so far: pane records, and counters of panes that have not matured or never will."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stream_calib.errors import StateError
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.shard_store import ShardStore
from stream_calib.windows.state_store import StateStore

_BLOBS_A_READ = 500


def pane_records(state: StateStore) -> Iterator[PaneRecord]:
    """The records of all matured panes, oldest first. Raises StateError where one is missing."""
    found = state.read(("first_pane", "matured"))
    if found["first_pane"] is None or found["matured"] is None:
        return
    first, last = int(found["first_pane"]), int(found["matured"])
    for start in range(first, last + 1, _BLOBS_A_READ):
        panes = range(start, min(start + _BLOBS_A_READ, last + 1))
        for pane, blob in zip(panes, state.blobs([PaneNames.of(p).record for p in panes]), strict=True):
            if blob is None:
                raise StateError(f"pane {pane} is matured but has no record; the model key's state is damaged")
            yield decode_record(blob)


def outcome_totals(state: StateStore, shards: ShardStore) -> dict[str, int]:
    """accepted, winners, labels, matched, score_late, score_skewed, label_late, label_skewed, labelled, unlabelled.

    winners, labelled and unlabelled speak of matured panes, the others of everything applied.
    """
    totals = Counter[str]()
    first = last = -1
    for record in pane_records(state):
        first = record.pane if first == -1 else first
        totals.update(record.counts)
        totals.update({"labelled": record.labelled, "unlabelled": record.unlabelled})
        last = record.pane
    totals.update(shards.counts_after(last))
    totals.update(shards.counts_before(first))
    names = ("accepted", "winners", "labels", "matched", "labelled", "unlabelled")
    drops = ("score_late", "score_skewed", "label_late", "label_skewed")
    return {name: totals[name] for name in (*names, *drops)}
