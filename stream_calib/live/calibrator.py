"""Calibration inside any process that reaches the state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib import metrics
from stream_calib.config import Config
from stream_calib.errors import NoSnapshotError, RequestError
from stream_calib.events.columns import Failures
from stream_calib.events.contracts import ModelKey
from stream_calib.live.block_writer import BlockWriter
from stream_calib.live.forked_child import in_a_forked_child
from stream_calib.live.request_rows import NOW, Attributes, Column, RequestReader, RequestRows
from stream_calib.live.snapshot_watch import SnapshotWatch
from stream_calib.live.waiting_rows import ServedRows
from stream_calib.snapshot.served_models import ServedModels, Serving


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The answer for n events, all by one snapshot."""

    key: ModelKey
    snapshot: str
    """Version of the snapshot; "" where the raw score is served."""
    status: Literal["calibrated", "previous_version", "identity"]
    raw: NDArray[np.float64]
    """(n,) raw scores in [0, 1], NaN where refused."""
    probability: NDArray[np.float64]
    """(n,) calibrated probabilities in [0, 1], NaN where refused."""
    refused: Failures
    """Place -> reason code and message."""
    event_id: list[str] | None
    """n ids as text, "" where refused; None where none were given."""
    staleness_ms: int
    """Time since the state was last read for this model: at most about `snapshot_poll`, more while it is away."""


class LiveCalibrator:
    """Calibrates by the current snapshot of each model, followed through Redis; no log is needed. Thread-safe.

    A thread of its own looks for new snapshots every `serving.snapshot_poll`; a call waits for it only when it is the
    first for its model. With Redis away it goes on with what it holds, for `serving.max_snapshot_staleness`. Forked
    children start afresh with their first call. Use as a context manager, or close it.
    """

    def __init__(
        self,
        config: Config,
        blocks: BlockWriter | None = None,
        after_look: Callable[[ServedModels], None] | None = None,
    ) -> None:
        """`blocks`: writes what is served down for the monitor; closed with the calibrator. `after_look`: called after
        each look at the state, on the thread that took it, in place of exporting metrics only."""
        self._config, self._blocks = config, blocks
        self._watch = SnapshotWatch(config, after_look)
        self._reset()
        in_a_forked_child(self._reset)
        self._watch.start()

    @classmethod
    def from_url(
        cls, url: str, model: str, version: str = "1", attributes: Sequence[str] = (), blocks: BlockWriter | None = None
    ) -> LiveCalibrator:
        """One model of a deployment with default settings, known by its Redis alone. `attributes`: as configured there,
        in their order. Raises ValueError for a name that cannot be one."""
        config = {
            "model": {"name": model, "version": version},
            "redis": {"url": url},
            "scores": {"attributes": {name: name for name in attributes}},
            "windows": {"horizon": "1d"},  # must be given, and serving has no use for it
        }
        return cls(Config.model_validate(config), blocks)

    def _reset(self) -> None:
        self._reader = RequestReader(self._config)
        # Reader and maps keep what they have compiled, so one thread at a time uses them.
        self._using = threading.Lock()

    def calibrate(
        self,
        scores: Column,
        attributes: Attributes | None = None,
        *,
        model: str | None = None,
        version: str | None = None,
        event_ids: Column | None = None,
        event_times_ms: Column | None = None,
        units: Column | None = None,
        keep_rates: Column | None = None,
    ) -> Calibrated:
        """Calibrated probabilities of n scores of one model, all by one snapshot.

        `scores` (n,): raw scores in the configured scale. `attributes`: n mappings, or columns (n,) by name; values
        that are missing, null or "" are one group, and names that are not configured are ignored. `model`, `version`:
        may be left out where the configuration has only one. `event_ids` (n,): needed where blocks are written, for
        labels to join. `event_times_ms` (n,): epoch milliseconds, now where None. `units` (n,): only with
        `scores.unit`. `keep_rates` (n,): only with `scores.keep_rate`; 1 where None.

        A bad score, id, time or keep rate refuses its own event only, as on the score topic (docs/events.md). Raises
        RequestError where the request as a whole cannot be answered; StateUnavailableError where the state was never
        reached, or not for `max_snapshot_staleness`; NoSnapshotError before the first snapshot with
        ``bootstrap = "wait"``;
        SnapshotError where the snapshot cannot be served.
        """
        key, scale = self._reader.model(model, version)
        if self._blocks is not None and event_ids is None:
            raise RequestError("event_ids are needed: what is served is written down, and labels join it by id")
        serving, staleness_ms = self._watch.serving(key)
        if serving.served is None and self._config.serving.bootstrap == "wait":
            raise NoSnapshotError(f"{key} has no snapshot yet (serving.bootstrap = wait)")
        with self._using:
            rows = self._reader.read(scale, scores, attributes, event_ids, event_times_ms, units, keep_rates)
            served = _apply(serving, rows)
        self._count(key, serving, rows)
        snapshot = serving.served.version if serving.served else ""
        if self._blocks is not None and len(rows.good):
            waiting = ServedRows.of(key, snapshot, rows, served, self._config.scores.sample_rate)
            metrics.SCORES_NOT_COUNTED.labels(str(key)).inc(len(rows.good) - len(waiting))
            if len(waiting):
                self._blocks.put(waiting)
        raw, probability = np.full((2, len(rows.score)), np.nan)
        raw[rows.good], probability[rows.good] = rows.score[rows.good], served
        return Calibrated(key, snapshot, serving.status, raw, probability, rows.refused, rows.event_id, staleness_ms)

    def answers_at_once(self, model: str | None = None, version: str | None = None) -> bool:
        """Whether `calibrate` need not wait for a first look at the state. Raises RequestError as `calibrate`."""
        return self._watch.follows(self._reader.model(model, version)[0])

    def not_ready(self) -> str | None:
        """Why nothing can be served for a model that the configuration names; None where all can be."""
        return self._watch.not_ready()

    def close(self) -> None:
        """Ends following, and writes what waits to be written, within a bound."""
        self._watch.close()
        if self._blocks is not None:
            self._blocks.close()

    def __enter__(self) -> LiveCalibrator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _count(key: ModelKey, serving: Serving, rows: RequestRows) -> None:
        metrics.SCORES_SERVED.labels(str(key), serving.status).inc(len(rows.good))
        for reason, _ in rows.refused.values():
            metrics.LIVE_REJECTED.labels(str(key), reason.value).inc()


def _apply(serving: Serving, rows: RequestRows) -> NDArray[np.float64]:
    """Probabilities (k,) of the good rows."""
    score = rows.score[rows.good]
    if serving.served is None or not len(score):
        return score
    event_time_ms = rows.event_time_ms[rows.good]
    event_time_ms[event_time_ms == NOW] = time.time_ns() // 1_000_000
    return serving.served.apply(score, rows.signature_index[rows.good], rows.signatures, event_time_ms)
