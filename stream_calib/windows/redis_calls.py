"""Packing of what the shard scripts are sent: keys all declared, rows as fixed-width operations made by numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.join_entry import JOIN_BUCKETS, fingerprint_bytes, join_buckets, time_bytes
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.row_codec import encode_rows
from stream_calib.windows.shard_store import COUNTER_KINDS, LABEL_CLASSES, Inputs, Mark, ReadGuard, ShardCall

if TYPE_CHECKING:
    from stream_calib.windows.redis_shards import ShardKeys

ScriptCall = tuple[list[bytes], list[bytes]]
_NO_PANE = 1 << 40
_WITH_REACH = 4
"""Added to the code of a label that cannot reach all scores within its horizon."""


def register_call(
    keys: ShardKeys, marks: Mapping[str, Mark], inputs: Inputs | None, origin: int | None, settings: PaneSettings
) -> ScriptCall:
    """Keys and arguments of lua/register.lua."""
    names, some = [keys.marks], []
    for input_key, mark in marks.items():
        pane = mark.entered_pane(settings.pane_ms, origin)
        if pane is not None:
            names.append(keys.entries(input_key))
        facts = (mark.clock_ms, mark.first_clock_ms, pane)
        some.append((input_key, mark.next, *(False if fact is None else fact for fact in facts)))
    call = {
        "marks": some,
        "origin": origin if origin is not None else False,
        "scores": len(inputs.scores) if inputs else 0,
        "labels": len(inputs.labels) if inputs else 0,
    }
    return names, [msgspec.msgpack.encode(call)]


def guard_bytes(guard: ReadGuard, pane: int, settings: PaneSettings) -> bytes:
    """What `admit` in lua/clocks.lua reads."""
    return msgspec.msgpack.encode(
        {
            "pane": pane,
            "matured": guard.matured,
            "scores": guard.inputs.scores,
            "labels": guard.inputs.labels,
            "excluded": list(guard.excluded.items()),
            "pane_ms": settings.pane_ms,
            "horizon_ms": settings.horizon_ms,
            "score_lateness_ms": settings.score_lateness_ms,
            "label_lateness_ms": settings.label_lateness_ms,
            "back_panes": settings.back_panes,
        }
    )


def apply_call(keys: ShardKeys, call: ShardCall, inputs: Inputs, settings: PaneSettings, run: str | None) -> ScriptCall:
    """Keys and arguments of lua/apply.lua. `run`: id of the server's run that the call is for, None for any.

    Operations are ordered by fingerprint: the script works off all that concern one id at once.
    """
    names = [keys.marks, keys.counters, *(keys.entries(i) for i in call.advances)]
    counts: Counter[tuple[str, int]] = Counter()
    for drop in call.drops:
        counts[drop.kind, drop.pane] += drop.n

    score_pane = call.scores.event_time_ms // settings.pane_ms
    chunks, chunk_bytes = [], []
    for pane in np.unique(score_pane).tolist():
        rows = call.scores.take(np.flatnonzero(score_pane == pane))
        names.append(keys.rows(pane))
        chunks.append({"key": len(names), "pane": pane, "n": len(rows)})
        chunk_bytes.append(encode_rows(rows))

    label_pane, label_pane_index, label_counts = np.unique(
        call.labels.event_time_ms // settings.pane_ms, return_inverse=True, return_counts=True
    )
    held_key = len(names) + 1 + label_pane_index
    names += [keys.held(pane) for pane in label_pane.tolist()]
    for pane, n in zip(label_pane.tolist(), label_counts.tolist(), strict=True):
        counts["labels", pane] += n

    lists = len(chunks) + len(label_pane)

    score_bucket, label_bucket = join_buckets(call.scores.fingerprint), join_buckets(call.labels.fingerprint)
    score_buckets = np.unique(score_bucket)
    bucket = np.concatenate([score_buckets, np.setdiff1d(label_bucket, score_buckets)])
    join_key = np.empty(JOIN_BUCKETS, dtype=np.intp)
    join_key[bucket] = len(names) + 1 + np.arange(len(bucket))
    names += keys.joins(bucket)

    n_scores = len(call.scores)
    by_id = np.argsort(call.scores.fingerprint, kind="stable"), np.argsort(call.labels.fingerprint, kind="stable")
    code, reaches = call.labels.code, list[int]()
    if call.labels.from_ms is not None:
        code = np.where(call.labels.from_ms > 0, code + _WITH_REACH, code)
        in_order = call.labels.from_ms[by_id[1]]
        reaches = in_order[in_order > 0].tolist()
    head = {
        "run": run or False,
        "ranges": [
            {
                "input": input_key,
                "start": advance.start,
                "stop": advance.end,
                "clock": advance.clock_ms if advance.clock_ms is not None else False,
                "first_clock": advance.first_clock_ms if advance.first_clock_ms is not None else False,
                "entries": [
                    (str(e.pane), f"{e.position}:{'' if e.clock_ms is None else e.clock_ms}")
                    for e in call.entries.get(input_key, ())
                ],
            }
            for input_key, advance in call.advances.items()
        ],
        "scores": inputs.scores,
        "horizon_ms": settings.horizon_ms,
        "pane_ms": settings.pane_ms,
        "score_lateness_ms": settings.score_lateness_ms,
        "least_score_pane": int(score_pane.min()) if n_scores else _NO_PANE,
        "last_pane": int(score_pane.max()) if n_scores else False,
        "chunks": chunks,
        "lists": lists,
        "score_joins": len(score_buckets),
        "counts": [(kind, pane, n) for (kind, pane), n in counts.items()],
        "reaches": reaches,
    }
    score_operations = np.zeros((n_scores, 19), dtype=np.uint8)
    score_operations[:, 0:2] = _u2(join_key[score_bucket])
    score_operations[:, 2:9] = fingerprint_bytes(call.scores.fingerprint)[:, 1:]
    score_operations[:, 9:15] = time_bytes(call.scores.event_time_ms * 4)

    label_operations = np.zeros((len(call.labels), 19), dtype=np.uint8)
    label_operations[:, 0:2] = _u2(join_key[label_bucket])
    label_operations[:, 2:4] = _u2(held_key)
    label_operations[:, 4:10] = time_bytes(call.labels.event_time_ms)
    label_operations[:, 10] = code
    label_operations[:, 11:19] = fingerprint_bytes(call.labels.fingerprint)
    operations = [score_operations[by_id[0]].tobytes(), label_operations[by_id[1]].tobytes()]
    return names, [msgspec.msgpack.encode(head), *operations, *chunk_bytes]


def remove_call(
    keys: ShardKeys,
    pane: int,
    guard: ReadGuard,
    settings: PaneSettings,
    fingerprint: NDArray[np.uint64],
    recorded: Mapping[str, int] | None,
    *,
    last: bool,
) -> ScriptCall:
    """Keys and arguments of lua/remove.lua for some fingerprints, sorted and without repeats."""
    inputs = (*guard.inputs.scores, *guard.inputs.labels)
    names = [keys.marks, keys.counters, keys.rows(pane), keys.held(pane), *(keys.entries(i) for i in inputs)]
    bucket, index = np.unique(join_buckets(fingerprint), return_inverse=True)
    operations = np.empty((len(fingerprint), 9), dtype=np.uint8)
    operations[:, 0:2] = _u2(len(names) + 1 + index)
    operations[:, 2:9] = fingerprint_bytes(fingerprint)[:, 1:]
    since = [] if recorded is None else [(kind, recorded.get(kind, 0)) for kind in LABEL_CLASSES]
    part = msgspec.msgpack.encode({"last": last, "kinds": COUNTER_KINDS, "inputs": inputs, "recorded": since})
    names += keys.joins(bucket)
    return names, [guard_bytes(guard, pane, settings), part, operations.tobytes()]


def _u2(value: NDArray[np.integer]) -> NDArray[np.uint8]:
    return value.astype("<u2").view(np.uint8).reshape(-1, 2)
