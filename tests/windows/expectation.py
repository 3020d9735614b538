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
}


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
                    if item.time_ms is not None and not is_skewed(item.time_ms, item.append_ms, settings):
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
    counts = {kind: n for kind, n in record.counts.items() if n}
    wanted = counts_of(expected)
    back = world.logs.settings.back_panes
    if any(records[p].cut for p in range(record.pane - back, record.pane) if p in records):
        # A label that came after an earlier pane's cut may find that pane's predictions removed.
        assert counts.get("matched", 0) <= wanted.get("matched", 0)
        counts.pop("matched", None)
        wanted.pop("matched", None)
    if record.cut:
        # Drops behind the cut are in no pane's record; the oracle counts them.
        for side in ("label_late", "label_skewed"):
            assert counts.get(side, 0) <= wanted.get(side, 0)
            counts.pop(side, None)
            wanted.pop(side, None)
    assert counts == wanted, f"counters of pane {record.pane}, cut {record.cut}"
    sums = [sum(column) for column in zip(*expected.matured.values(), strict=True)] or [0, 0, 0]
    assert [record.labelled, record.positives, record.unlabelled] == sums
    served = [sum(column) for column in zip(*record.served.values(), strict=True)] or [0] * 5
    assert served[:3] == [sums[0] + sums[2], sums[0], sums[1]]


def _check_totals(world: World, whole: Result, records: dict[int, PaneRecord]) -> None:
    """Every input in exactly one class, once no pane has a cut: in a record, or in a pane that has not matured."""
    if any(record.cut for record in records.values()):
        return
    totals: Counter[str] = Counter(world.store.counts_after(max(records, default=whole.first_pane - 1)))
    for record in records.values():
        totals.update(record.counts)
    t = whole.totals
    assert totals["accepted"] == t["scores_accepted"]
    assert totals["labels"] == t["labels_matched"] + t["labels_unmatched"]
    assert totals["matched"] == t["labels_matched"]
    for theirs, ours in DROPS.items():
        assert totals[ours] == t[theirs], ours


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
