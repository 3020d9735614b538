"""What a run left behind, read back from its topics and its state."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stream_calib.events.blocks import BlockRows, unpack
from stream_calib.events.control import is_control
from stream_calib.snapshot.model import LevelSnapshot, ResolvedSnapshot, decode_snapshot, resolve
from stream_calib.transport.port import Record, TopicPartition
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.registration import INPUTS, recorded_inputs
from tests.integration.harness import Deployment
from workers.totals import outcome_totals

ScoredPane = dict[tuple[int, int], int]
MaturedPane = dict[tuple[int, int, int], tuple[int, int, int]]


class Output(NamedTuple):
    """One record on `calibrated`."""

    source: tuple[int, int]
    """Partition and offset on `scores`."""
    record: Record
    event: dict[str, Any]
    """The whole value."""

    @property
    def served(self) -> dict[str, Any]:
        """raw, calibrated, snapshot, status."""
        (mine,) = self.event["stream_calib"].values()
        assert isinstance(mine, dict)
        return mine


@dataclass
class Findings:
    """Logs by partition in offset order; cells by pane; the state's lists and blobs as bytes."""

    scores: list[list[Record]]
    labels: list[list[Record]]
    blocks: list[list[Record]]
    outputs: list[Output]
    dead_letters: list[Record]
    alerts: list[Record]
    fields: dict[str, str | None]
    scored: dict[int, ScoredPane]
    matured: dict[int, MaturedPane]
    matured_blobs: dict[int, bytes]
    pane_records: dict[int, PaneRecord]
    first_clocks: dict[tuple[str, int], int]
    """Side ("s", "l") and partition -> the clock that it began with, of those that were added on the way."""
    totals: dict[str, int]
    decisions: list[bytes]
    history: list[dict[str, Any]]
    outbox: list[bytes]
    snapshots: dict[str, bytes]
    """Of every version that the history or an output names, and that is not gone."""

    @property
    def refused(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of what each dead letter was made of."""
        return [(dict(r.headers)["stream-calib-source-topic"].decode(), *_source(r)) for r in self.dead_letters]

    @property
    def versions(self) -> list[str]:
        """Published versions in the order of their publication."""
        return [move["version"] for move in self.history if move["what"] == "publish"]

    def snapshot(self, version: str) -> ResolvedSnapshot:
        """The version as the history has it, checked against its hash."""
        document = decode_snapshot(version, self.snapshots[version])
        below = (
            decode_snapshot(document.structure, self.snapshots[document.structure])
            if isinstance(document, LevelSnapshot)
            else None
        )
        return resolve(version, document, below)


def find(deployed: Deployment, gone: Collection[str] = ()) -> Findings:
    """Reads everything back. `gone`: versions of a generation that was dropped, which outputs may still name."""
    deployed.until_markers_are_written()
    topics, state = deployed.config.topics, deployed.state
    fields = deployed.fields() | state.store.read(("tip", "log_length", "matured_chain", "outbox_sent"))
    panes = range(int(fields["first_pane"] or 0), int(fields["closed"] or -1) + 1)
    scored_blobs = state.store.blobs([PaneNames.of(pane).scored for pane in panes])
    grown = range(panes.start, int(fields["matured"] or -1) + 1)
    matured_blobs = state.store.blobs([PaneNames.of(pane).matured for pane in grown])
    record_blobs = state.store.blobs([PaneNames.of(pane).record for pane in grown])
    history = state.snapshots.history()
    served = outputs(deployed)
    named = [version for output in served if (version := output.served["snapshot"])]
    versions = [v for v in dict.fromkeys([*(move["version"] for move in history), *named]) if v not in gone]
    return Findings(
        scores=read_topic(deployed, topics.scores),
        labels=read_topic(deployed, topics.labels),
        blocks=read_topic(deployed, topics.blocks),
        outputs=served,
        dead_letters=[record for part in read_topic(deployed, topics.dead_letters) for record in part],
        alerts=[record for part in read_topic(deployed, topics.alerts) for record in part],
        fields=fields,
        scored={pane: scored_pane(_there(blob)) for pane, blob in zip(panes, scored_blobs, strict=True)},
        matured={pane: matured_pane(_there(blob)) for pane, blob in zip(grown, matured_blobs, strict=True)},
        matured_blobs={pane: _there(blob) for pane, blob in zip(grown, matured_blobs, strict=True)},
        pane_records={pane: decode_record(_there(blob)) for pane, blob in zip(grown, record_blobs, strict=True)},
        first_clocks=_first_clocks(deployed),
        totals=outcome_totals(state.store, state.shards),
        decisions=state.store.entries("decisions", 0),
        history=history,
        outbox=state.store.entries("outbox", 0),
        snapshots={
            version: _there(blob)
            for version, blob in zip(
                versions, state.store.blobs([f"snapshot:{version}" for version in versions]), strict=True
            )
        },
    )


def _first_clocks(deployed: Deployment) -> dict[tuple[str, int], int]:
    store = deployed.state.store
    recorded = recorded_inputs(store, int(store.read((INPUTS,))[INPUTS] or 0))
    places = {tuple(key.split(":")[::2]): mark.clock_ms for key, mark in recorded.items()}
    return {(side, int(number)): clock for (side, number), clock in places.items() if clock is not None}


def read_topic(deployed: Deployment, topic: str) -> list[list[Record]]:
    """The records of each partition, in offset order."""
    found: list[list[Record]] = []
    for partition in range(deployed.log.partitions(topic)):
        records: list[Record] = []
        place, position = TopicPartition(topic, partition), 0
        while some := deployed.log.read(place, position, 10_000):
            records += some
            position = some[-1].offset + 1
        found.append(records)
    return found


def outputs(deployed: Deployment) -> list[Output]:
    """All outputs, partition by partition in offset order."""
    return [
        Output(_source(record), record, json.loads(record.value or b"{}"))
        for part in read_topic(deployed, deployed.config.topics.calibrated)
        for record in part
    ]


def _source(record: Record) -> tuple[int, int]:
    headers = dict(record.headers)
    return int(headers["stream-calib-source-partition"]), int(headers["stream-calib-source-offset"])


def _there(blob: bytes | None) -> bytes:
    assert blob is not None, "a blob that the cursors promise is missing"
    return blob


def scored_pane(blob: bytes) -> ScoredPane:
    cells = ScoredCells.unpack(blob)
    keys = zip(cells.signature.tolist(), cells.grid_bin.tolist(), strict=True)
    return dict(zip(keys, cells.n.tolist(), strict=True))


def matured_pane(blob: bytes) -> MaturedPane:
    cells = MaturedCells.unpack(blob)
    keys = zip(cells.unit_bucket.tolist(), cells.signature.tolist(), cells.grid_bin.tolist(), strict=True)
    counts = zip(cells.labelled.tolist(), cells.positives.tolist(), cells.unlabelled.tolist(), strict=True)
    return dict(zip(keys, counts, strict=True))


def block_rows(records: Sequence[Record]) -> list[BlockRows]:
    """The blocks of one partition, without its control records."""
    return [unpack(record.value or b"") for record in records if not is_control(record)]


def same_bits(left: Sequence[float], right: Sequence[float]) -> bool:
    """Whether the numbers are the same float64 bit for bit."""
    return np.array(left, dtype=np.float64).tobytes() == np.array(right, dtype=np.float64).tobytes()
