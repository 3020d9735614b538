"""Rows to fit fusion weights to: what calibrate served for each event, and how it turned out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError
from stream_calib.events.columns import column
from stream_calib.events.contracts import MIN_EVENT_TIME_MS, TOMBSTONE_TIME_MS, WITHDRAWN
from stream_calib.events.event_ids import canonical_id
from stream_calib.events.identity import fingerprints
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.label_models import EVERY_MODEL
from stream_calib.events.outputs import OUTPUT_FIELD
from stream_calib.transport.port import Record, TopicPartition
from workers.replay_source import CHUNK_RECORDS, Item

_COMPACT_ID = "event_id"
_OUTPUT_DEPTH = 3


@dataclass(frozen=True, slots=True)
class ServedRows:
    """n outputs, the first one of each event."""

    fingerprint: NDArray[np.uint64]
    """(n,) of the event ids."""
    unit: NDArray[np.uint64]
    """(n,) of the units; the same where the outputs do not tell."""
    probability: NDArray[np.float64]
    """(n, m) calibrated probabilities of m members; NaN where a member was not served by a snapshot of its own."""
    snapshots: list[set[str]]
    """For each member the versions that served it."""
    unused: int
    """Records that are no outputs with an id, and outputs of an event that came before."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """k labels, the newest one of each event, without those that are withdrawn."""

    fingerprint: NDArray[np.uint64]
    """(k,) of the event ids, rising."""
    label: NDArray[np.int8]
    """(k,) 0 or 1."""
    rejected: int
    """Records that are no labels."""


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """n labelled events, in the order of their outputs."""

    probability: NDArray[np.float64]
    """(n, m), NaN as in ServedRows."""
    label: NDArray[np.int8]
    """(n,) 0 or 1."""
    unit: NDArray[np.uint64]
    """(n,) fingerprint of the unit."""


def read_served(items: Iterable[Item], config: Config, members: Sequence[str]) -> ServedRows:
    """What is on `calibrated`, in the form of `serving.output`. Raises what reading the items raises, and
    ConfigurationError where not one record is an output with an event id."""
    enriched = config.serving.output == "enrich"
    id_path, unit_path = (config.scores.id, config.scores.unit) if enriched else (_COMPACT_ID, None)
    decoder = JsonDecoder(sys.maxsize, max(config.records.max_depth, _OUTPUT_DEPTH))
    ids: list[str] = []
    units: list[str] = []
    columns: list[list[float]] = [[] for _ in members]
    snapshots: list[set[str]] = [set() for _ in members]
    unused = 0
    for chunk in _chunks(items):
        decoded = decoder.decode_all([item.outgoing.value or b"" for item in chunk])
        objects = [o for o in decoded if not isinstance(o, BadJson) and type(o.get(OUTPUT_FIELD)) is dict]
        found = [canonical_id(value) for value in column(objects, id_path)]
        own = found if unit_path is None else [canonical_id(value) for value in column(objects, unit_path)]
        for content, event_id, unit in zip(objects, found, own, strict=True):
            if event_id is None:
                continue
            ids.append(event_id)
            units.append(event_id if unit is None else unit)
            for place, name in enumerate(members):
                probability, snapshot = _calibrated(content[OUTPUT_FIELD].get(name))
                columns[place].append(probability)
                if snapshot is not None:
                    snapshots[place].add(snapshot)
        unused += len(chunk) - sum(event_id is not None for event_id in found)
    if not ids:
        raise ConfigurationError(
            f"none of {unused} records is an output with an event id at {id_path} (serving.output ="
            f' "{config.serving.output}"); give what calibrate wrote, and the configuration that it had'
        )
    fingerprint = fingerprints(ids)
    first = np.sort(np.unique(fingerprint, return_index=True)[1])
    unit_fingerprint = fingerprint if unit_path is None else fingerprints(units)
    probability = np.array(columns).T
    repeated = len(ids) - len(first)
    return ServedRows(fingerprint[first], unit_fingerprint[first], probability[first], snapshots, unused + repeated)


def read_outcomes(items: Iterable[Item], config: Config, model: str) -> Outcomes:
    """The labels that name no model, or this one. Of several of an event the newest counts, as in the join: of equally
    new ones withdrawn before 0 before 1. A tombstone is as new as what its partition, or file, had reached."""
    decoder = LabelDecoder(config)
    parts: list[tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int8]]] = []
    rejected = 0
    for chunk in _chunks(items):
        records = [_record(item) for item in chunk]
        decoded = decoder.decode(records)
        rejected += len(decoded.rejects)
        batch = decoded.labels
        assert batch is not None
        reached = np.array([record.append_time_ms for record in records], dtype=np.int64)[batch.record_index]
        time_ms = np.where(batch.event_time_ms == TOMBSTONE_TIME_MS, reached, batch.event_time_ms)
        place = batch.models.index(model) if model in batch.models else EVERY_MODEL
        own = (batch.model_index == EVERY_MODEL) | (batch.model_index == place)
        parts.append((batch.fingerprint[own], time_ms[own], batch.label[own]))
    if not parts:
        return Outcomes(np.empty(0, np.uint64), np.empty(0, np.int8), rejected)
    fingerprint, time_ms, label = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    # By event, then oldest first; among equally new ones the label that counts comes last.
    order = np.lexsort((-label, time_ms, fingerprint))
    fingerprint, label = fingerprint[order], label[order]
    newest = np.append(fingerprint[1:] != fingerprint[:-1], True)[: len(fingerprint)]
    kept = newest & (label != WITHDRAWN)
    return Outcomes(fingerprint[kept], label[kept], rejected)


def join(served: ServedRows, outcomes: Outcomes) -> JoinedRows:
    """The events that have both."""
    if not len(outcomes.fingerprint):
        return JoinedRows(served.probability[:0], outcomes.label, served.unit[:0])
    place = np.minimum(np.searchsorted(outcomes.fingerprint, served.fingerprint), len(outcomes.fingerprint) - 1)
    known = outcomes.fingerprint[place] == served.fingerprint
    return JoinedRows(served.probability[known], outcomes.label[place[known]], served.unit[known])


def _calibrated(member: Any) -> tuple[float, str | None]:
    """Probability and snapshot of a model's member of an output; NaN, None where no snapshot of its own made it."""
    if type(member) is not dict or member.get("status") != "calibrated":
        return np.nan, None
    probability, snapshot = member.get("calibrated"), member.get("snapshot")
    if isinstance(probability, bool) or not isinstance(probability, (float, int)) or not isinstance(snapshot, str):
        return np.nan, None
    return (float(probability), snapshot) if 0 <= probability <= 1 else (np.nan, None)


def _record(item: Item) -> Record:
    """As the label decoder takes it. Where nothing tells when a record was taken, its line stands for that."""
    time_ms = MIN_EVENT_TIME_MS + item.next_place if item.time_ms is None else item.time_ms
    out = item.outgoing
    return Record(TopicPartition(out.topic, item.part), item.next_place, out.key, out.value, out.headers, time_ms)


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK_RECORDS)):
        yield chunk
