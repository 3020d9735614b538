"""What must hold for every run, whatever happened to its processes: compared with the oracle and with the history."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from stream_calib.config import Config
from stream_calib.events.control import is_control
from stream_calib.events.identity import fingerprints
from stream_calib.snapshot.compiled import compile_snapshot
from stream_calib.transport.port import Record
from tests.integration.findings import Findings, Output, block_rows, same_bits
from tests.integration.stream import HOUR_MS, EventDay
from tests.oracle import offline


def oracle_of(found: Findings, config: Config) -> offline.Result:
    """The oracle's answer for the records as they lie in `scores` and `labels`, but for those that are dead letters, of
    which it knows nothing."""
    windows = config.windows
    settings = offline.Settings(
        windows.horizon_ms, windows.pane_ms, windows.score_lateness_ms, windows.label_lateness_ms
    )
    attributes = list(config.scores.attributes)
    scores: list[list[offline.Score | offline.Clock | offline.End]] = [
        [*_first_clock(found, "s", number), *(_score(record, attributes) for record in part)]
        for number, part in enumerate(_good(found.scores, found))
    ]
    labels: list[list[offline.Label | offline.Clock | offline.End]] = [
        [*_first_clock(found, "l", number), *(_label(record) for record in part)]
        for number, part in enumerate(_good(found.labels, found))
    ]
    return offline.compute(scores, labels, settings)


def _good(topic: Sequence[Sequence[Record]], found: Findings) -> list[list[Record]]:
    refused = set(found.refused)
    return [[record for record in part if (*record.source, record.offset) not in refused] for part in topic]


def _first_clock(found: Findings, side: str, partition: int) -> list[offline.Clock]:
    clock_ms = found.first_clocks.get((side, partition))
    return [] if clock_ms is None else [offline.Clock(clock_ms)]


def _control(record: Record) -> offline.Clock | offline.End:
    content = json.loads(record.value or b"")
    return offline.End() if content["state"] == "end" else offline.Clock(content["clock_ms"])


def _score(record: Record, attributes: Sequence[str]) -> offline.Score | offline.Clock | offline.End:
    return _control(record) if is_control(record) else offline.read_score(record.value or b"", attributes)


def _label(record: Record) -> offline.Label | offline.Clock | offline.End:
    if is_control(record):
        return _control(record)
    if record.value is None:
        return offline.Label((record.key or b"").decode(), None, None)
    return offline.read_label(record.value)


def check_cells_and_classes(found: Findings, config: Config) -> offline.Result:
    """Cursors, scored cells, matured cells and outcome classes, pane by pane and in total, are the oracle's."""
    expected = check_cells(found, config)
    for pane in found.matured:
        assert _classes(found.pane_records[pane].counts) == _known(expected.pane(pane).classes), f"pane {pane}"
    names = ("winners", "labelled", "unlabelled")
    matured_only = {name: sum(_of_pane(expected, pane)[name] for pane in found.matured) for name in names}
    assert _classes(found.totals) == _known(expected.totals)
    assert {name: found.totals[name] for name in names} == matured_only
    return expected


def check_cells(found: Findings, config: Config) -> offline.Result:
    """Cursors, scored cells and matured cells, pane by pane, are the oracle's."""
    expected = oracle_of(found, config)
    cursors = {name: int(found.fields[name] or -1) for name in ("first_pane", "closed", "matured")}
    assert cursors == {
        "first_pane": expected.first_pane,
        "closed": expected.last_closed,
        "matured": expected.last_matured,
    }
    for pane, scored in found.scored.items():
        assert scored == dict(expected.pane(pane).scored), f"scored cells of pane {pane}"
    for pane, matured in found.matured.items():
        assert matured == expected.pane(pane).matured, f"matured cells of pane {pane}"
    return expected


def _classes(counts: dict[str, int]) -> dict[str, int]:
    """Of a pane or in total, by the oracle's names; without zeros. Duplicates are known of matured panes."""
    named = Counter(
        scores_accepted=counts.get("accepted", 0),
        scores_late=counts.get("score_late", 0),
        scores_skewed=counts.get("score_skewed", 0),
        labels_matched=counts.get("matched", 0),
        labels_unmatched=counts.get("labels", 0) - counts.get("matched", 0),
        labels_late=counts.get("label_late", 0),
        labels_skewed=counts.get("label_skewed", 0),
    )
    return dict(+named)


def _known(classes: Counter[str]) -> dict[str, int]:
    names = offline.CLASSES
    return {name: classes[name] for name in names if name != "scores_duplicate" and classes[name]}


def _of_pane(expected: offline.Result, pane: int) -> dict[str, int]:
    cells = expected.pane(pane).matured.values()
    labelled, unlabelled = sum(c[0] for c in cells), sum(c[2] for c in cells)
    return {"winners": labelled + unlabelled, "labelled": labelled, "unlabelled": unlabelled}


def check_one_output_each(found: Findings) -> None:
    """Every score record has exactly one output, with its id and its raw score, or exactly one dead letter, and nothing
    else has one."""
    due = {
        (record.source.partition, record.offset): record
        for part in found.scores
        for record in part
        if not is_control(record) and record.value is not None
    }
    topic = next((record.source.topic for part in found.scores for record in part), None)
    refused = Counter((partition, offset) for name, partition, offset in found.refused if name == topic)
    sources = Counter(output.source for output in found.outputs) + refused
    assert [source for source, n in sources.items() if n > 1] == []
    assert sorted(set(due) - set(sources)) == [], "scores without an output"
    assert sorted(set(sources) - set(due)) == [], "outputs without a score"
    for output in found.outputs:
        source = due[output.source]
        event = json.loads(source.value or b"")
        assert output.record.key == source.key
        assert output.event["event_id"] == event["event_id"]
        assert same_bits([output.served["raw"]], [event["score"]])


def check_reproduced(found: Findings, config: Config) -> Counter[str]:
    """Each output's value is, bit for bit, what the snapshot that it names makes of the raw score; number of outputs by
    version ("" before the first)."""
    events = {
        (record.source.partition, record.offset): json.loads(record.value or b"")
        for part in _good(found.scores, found)
        for record in part
        if not is_control(record) and record.value is not None
    }
    by_version: dict[str, list[Output]] = defaultdict(list)
    for output in found.outputs:
        by_version[output.served["snapshot"] or ""].append(output)
    for version, served in by_version.items():
        raw = np.array([output.served["raw"] for output in served], dtype=np.float64)
        value = [output.served["calibrated"] for output in served]
        status = {output.served["status"] for output in served}
        if not version:
            assert status == {"identity"}
            assert same_bits(value, raw.tolist())
            continue
        assert status == {"calibrated"}
        signatures = [
            tuple(events[output.source].get(path) or "__missing__" for path in config.scores.attributes.values())
            for output in served
        ]
        index = np.arange(len(served), dtype=np.intp)
        again = compile_snapshot(found.snapshot(version)).apply(raw, index, signatures)
        assert same_bits(value, again.tolist()), f"outputs of {version}"
    return Counter({version: len(served) for version, served in by_version.items()})


def check_blocks_name_their_snapshot(found: Findings) -> None:
    """The blocks of a partition are its scores in order, each block of one snapshot: the one that the outputs of those
    very scores name."""
    output_of = {output.source: output for output in found.outputs}
    for partition, part in enumerate(found.scores):
        offsets = [r.offset for r in part if not is_control(r) and (partition, r.offset) in output_of]
        ids = [output_of[partition, offset].event["event_id"] for offset in offsets]
        blocks = block_rows(found.blocks[partition])
        assert all(len(block.snapshots) == 1 for block in blocks)
        in_blocks = np.concatenate([block.fingerprint for block in blocks])
        assert in_blocks.tolist() == fingerprints(ids).tolist()
        named = [block.snapshots[0] for block in blocks for _ in block.fingerprint]
        assert named == [output_of[partition, offset].served["snapshot"] or "" for offset in offsets]


def check_one_version_a_batch(found: Findings) -> None:
    """Where one calibrate served: all outputs of one commit name one version. The log stamps all records of a commit
    with one time."""
    versions: dict[int, set[str | None]] = defaultdict(set)
    for output in found.outputs:
        versions[output.record.append_time_ms].add(output.served["snapshot"])
    assert [names for names in versions.values() if len(names) > 1] == []


def cells_of(found: Findings) -> tuple[object, object]:
    """All cells, to be compared with those of another run."""
    return found.scored, found.matured


def decided_alike(found: Findings, whole: Findings, days: Sequence[EventDay]) -> bool:
    """Whether the panes that no later day can change are those of the run over the whole month."""
    panes = range(min(whole.matured), (days[-1].end_ms - 25 * HOUR_MS) // HOUR_MS)
    return all(found.matured[pane] == whole.matured[pane] for pane in panes)
