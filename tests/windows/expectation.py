"""What a simulation must end with: the offline oracle's word on every pane, also where a pane has a cut.

Which label records a pane with a cut could see is the one thing that the logs do not give, so it is taken from the
pane's record; the oracle is then asked about logs in which the others only move their partition's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stream_calib.events.identity import fingerprints, shards
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import PaneNames, PaneRecord, chained, decode_record
from stream_calib.windows.shard_store import LABEL_CLASSES
from stream_calib.windows.state_store import StateStore
from tests.oracle.offline import Clock, End, Label, Pane, Result, Score, compute, is_skewed
from tests.windows.deciders import ALERT_EVERY, REQUEST_EVERY, expected_detector
from tests.windows.logs import Logs
from tests.windows.records import Block, Item, oracle_settings
from tests.windows.simulation import World

DROPS = {
    "scores_late": "score_late",
    "scores_skewed": "score_skewed",
    "labels_late": "label_late",
    "labels_skewed": "label_skewed",
    "labels_unsampled": "label_unsampled",
}
UNMATCHED = ("label_leaked", "label_beyond_horizon", "label_never_scored")


def oracle(
    logs: Logs,
    cut: dict[str, dict[str, int]] | None = None,
    count: int = 1,
    first_clocks: Mapping[str, int] | None = None,
) -> Result:
    """The oracle's result with label records behind `cut` (input key -> shard -> position) only moving the clock.

    An input that started with a clock is one whose log begins with that clock.
    """
    settings = oracle_settings(logs.settings)
    begin = {key: [Clock(clock_ms)] for key, clock_ms in (first_clocks or {}).items()}
    scores = [
        [*begin.get(key, []), *flat([w.item for w in logs.inputs[key]])]
        for key in sorted(k for k in logs.inputs if k.startswith("s"))
    ]
    labels: list[list[Label | Clock | End]] = []
    for key in sorted(k for k in logs.inputs if k.startswith("l")):
        log: list[Label | Clock | End] = [*begin.get(key, [])]
        for position, written in enumerate(logs.inputs[key]):
            item = written.item
            assert not isinstance(item, Block)
            if cut and key in cut and isinstance(item, Label):
                shard = str(int(shards(fingerprints([item.event_id]), count)[0]))
                if position >= cut[key][shard]:
                    if settings.broker_clock:
                        assert item.append_ms is not None
                        log.append(Clock(item.append_ms))
                    elif item.time_ms is not None and not is_skewed(item.time_ms, item.append_ms, settings):
                        log.append(Clock(item.time_ms))
                    continue
            log.append(item)
        labels.append(log)
    return compute(scores, labels, settings)


def flat(items: Sequence[Item]) -> list[Score | Clock | End]:
    scores: list[Score | Clock | End] = []
    for item in items:
        if isinstance(item, Block):
            scores += item.scores
        else:
            assert isinstance(item, Clock | End)
            scores.append(item)
    return scores


def scored_of(cells: ScoredCells) -> dict[tuple[int, int], int]:
    columns = (cells.signature.tolist(), cells.grid_bin.tolist(), cells.n.tolist())
    return {(signature, grid_bin): n for signature, grid_bin, n in zip(*columns, strict=True)}


def matured_of(cells: MaturedCells) -> dict[tuple[int, int, int], tuple[int, int, int]]:
    columns = [
        c.tolist()
        for c in (
            cells.unit_bucket,
            cells.signature,
            cells.grid_bin,
            cells.labelled,
            cells.positives,
            cells.unlabelled,
        )
    ]
    return {(b, s, g): (n, positives, u) for b, s, g, n, positives, u in zip(*columns, strict=True)}


def blob(state: StateStore, name: str) -> bytes:
    (found,) = state.blobs([name])
    assert found is not None, name
    return found


def counts_of(pane: Pane) -> dict[str, int]:
    """A pane record's counters as the oracle has them."""
    classes = pane.classes
    counts = {
        "accepted": classes["scores_accepted"],
        "winners": classes["scores_accepted"] - classes["scores_duplicate"],
        "labels": classes["labels_matched"] + classes["labels_unmatched"],
        "matched": classes["labels_matched"],
        **{ours: classes[theirs] for theirs, ours in DROPS.items()},
    }
    return {kind: n for kind, n in counts.items() if n}


def without_diagnosis(counts: Mapping[str, int]) -> dict[str, int]:
    """The counters that are exact; what the unmatched labels are said to be must add up to them."""
    unmatched = counts.get("labels", 0) - counts.get("matched", 0)
    assert sum(counts.get(kind, 0) for kind in UNMATCHED) == unmatched, counts
    assert all(n >= 0 for n in counts.values()), counts
    return {kind: n for kind, n in counts.items() if n and kind not in UNMATCHED}


def check_world(world: World) -> None:
    """Every cell, counter, total, decision and alert of a finished simulation."""
    at = world.cursors()
    state, logs = world.state, world.logs
    first_clocks = world.first_clocks()
    whole = oracle(logs, first_clocks=first_clocks)
    assert at["first_pane"] == whole.first_pane
    records = {
        p: decode_record(blob(state, PaneNames.of(p).record)) for p in range(at["first_pane"], at["matured"] + 1)
    }

    for pane in range(at["first_pane"], at["closed"] + 1):
        cells = ScoredCells.unpack(blob(state, PaneNames.of(pane).scored))
        assert scored_of(cells) == whole.pane(pane).scored, f"scored cells of pane {pane}"
    chain = ""
    for pane, record in records.items():
        packed = blob(state, PaneNames.of(pane).matured)
        chain = chained(chain, packed)
        cut = {key: by_shard for key, by_shard in record.cut.items() if by_shard}
        expected = (oracle(logs, cut, world.store.count, first_clocks) if cut else whole).pane(pane)
        assert matured_of(MaturedCells.unpack(packed)) == expected.matured, f"matured cells of pane {pane}, cut {cut}"
        _check_record(world, record, expected, records)
        assert record.chain == chain
    _check_totals(world, whole, records)
    _check_decisions(world, at, records)


def _check_record(world: World, record: PaneRecord, expected: Pane, records: dict[int, PaneRecord]) -> None:
    counts = without_diagnosis(record.counts)
    counts.pop("label_after_mature", None)
    wanted = counts_of(expected)
    back = world.logs.settings.back_panes
    if any(records[p].cut for p in range(record.pane - back, record.pane) if p in records):
        # A label that came after an earlier pane's cut may find that pane's predictions removed.
        assert counts.get("matched", 0) <= wanted.get("matched", 0)
        counts.pop("matched", None)
        wanted.pop("matched", None)
    if any(records[p].cut for p in records if p <= record.pane):
        # Drops behind the cut of a pane are in the record of a later one; the totals say whether all are there.
        for kind in ("label_late", "label_skewed", "label_unsampled"):
            counts.pop(kind, None)
            wanted.pop(kind, None)
    assert counts == wanted, f"counters of pane {record.pane}, cut {record.cut}"
    sums = [sum(column) for column in zip(*expected.matured.values(), strict=True)] or [0, 0, 0]
    assert [record.labelled, record.positives, record.unlabelled] == sums
    served = [(of.winners, of.negatives.rows, of.positives.rows) for of in record.served.values()]
    assert [sum(of[i] for of in served) for i in range(3)] == [sums[0] + sums[2], sums[0] - sums[1], sums[1]]


def _check_totals(world: World, whole: Result, records: dict[int, PaneRecord]) -> None:
    """Every input in exactly one class: in a record, or in a pane that has not matured, or waiting for its removal.

    Which labels came after their pane had matured is in the cuts; it is exact but where a shard lost writes.
    """
    cuts = {pane: record.cut for pane, record in records.items() if any(record.cut.values())}
    if cuts and world.happened.keys() & {"roll", "wipe"}:
        return
    totals = counted(world, records)
    t = whole.totals
    assert totals["accepted"] == t["scores_accepted"]
    for theirs, ours in DROPS.items():
        assert totals[ours] == t[theirs], ours
    assert totals["labels"] + totals["label_after_mature"] == t["labels_matched"] + t["labels_unmatched"]
    assert totals["label_after_mature"] == after_mature(world, whole, cuts)
    if cuts:
        assert totals["matched"] <= t["labels_matched"]
    else:
        assert totals["matched"] == t["labels_matched"]


def counted(world: World, records: Mapping[int, PaneRecord]) -> Counter[str]:
    """The sums over all records and over what no record has yet."""
    store, first, last = world.store, min(records, default=0), max(records, default=-1)
    totals: Counter[str] = Counter()
    for part in (store.counts_before(first), store.counts_after(last), *(r.counts for r in records.values())):
        totals.update(part)
    for pane, record in records.items():
        # Labels that came for a pane that is still kept are counted in a later one when it is dropped.
        kept = [str(shard) for shard, p in enumerate(store.progress()) if p.removed is None or p.removed < pane]
        if any(record.cut.values()) and kept:
            now = Counter(store.counts_after(pane - 1))
            now.subtract(store.counts_after(pane))
            for kind in LABEL_CLASSES:
                since = now[kind] - sum(record.labels_at_cut[shard].get(kind, 0) for shard in kept)
                totals["label_after_mature" if kind == "labels" else kind] += since
    return totals


def after_mature(world: World, whole: Result, cuts: Mapping[int, dict[str, dict[str, int]]]) -> int:
    """Accepted labels of a pane that came behind its cut."""
    found = 0
    keys = sorted(key for key in world.logs.inputs if key.startswith("l"))
    begun = world.first_clocks()
    for (partition, index), (event_id, time_ms) in whole.accepted_labels.items():
        cut = cuts.get(time_ms // world.logs.settings.pane_ms, {}).get(keys[partition])
        if cut:
            shard = str(int(shards(fingerprints([event_id]), world.store.count)[0]))
            found += index - (keys[partition] in begun) >= cut[shard]
    return found


def _check_decisions(world: World, at: dict[str, int], records: dict[int, PaneRecord]) -> None:
    state, first, decided = world.state, at["first_pane"], at["decided"]
    detector = expected_detector(
        first,
        decided,
        world.logs.settings.horizon_panes,
        lambda pane: blob(state, PaneNames.of(pane).scored),
        lambda pane: blob(state, PaneNames.of(pane).matured),
        lambda pane: records[pane].chain,
    )
    found = state.read(("detector", "tip", "log_length"))
    assert found["detector"] == detector
    panes = range(first, decided + 1)
    assert state.entries("outbox", 0) == [b"alert-%d" % p for p in panes if p % ALERT_EVERY == 0]
    log = world.decision_log()
    assert (found["tip"], int(found["log_length"] or 0)) == (log.tip, log.length)
    requested = [entry.id for entry in log.entries if entry.type == "request"]
    assert requested == [f"request-{p}" for p in panes if p % REQUEST_EVERY == 0]
