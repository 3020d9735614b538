"""What `sizing.py` fills a server with: hours of scores and labels, brought to the shards as a monitor does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import redis
from numpy.typing import NDArray

from stream_calib.calibration.grid import locate
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import signature_hash
from stream_calib.refit import checkpoint
from stream_calib.refit.evidence import Evidence
from stream_calib.snapshot.decision_log import DecisionLog, Request
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.closer import Closer
from stream_calib.windows.input_batch import InputBatch, Records, judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.registration import register_inputs
from stream_calib.windows.shard_store import LabelRows, Mark, ScoreRows, ShardStore
from stream_calib.windows.state_store import Commit
from workers.sizing import Load

HOUR_MS = 3_600_000
FIRST_PANE = 1_700_000_000_000 // HOUR_MS
HORIZON_PANES = 6
MODEL = ModelKey("sizing", "1")
PUBLICATIONS, SNAPSHOT_BYTES = 40, 60_000


class Size(NamedTuple):
    """One load."""

    scores_a_pane: int
    signatures: int
    shards: int
    partitions: int
    polls_a_pane: int
    panes: int
    """That mature."""
    early: float = 0.0
    """Share of the scores whose label comes a poll before them."""
    unscored: float = 0.0
    """Labels without a score, for each score."""
    repeated: float = 0.0
    """Share of the scores that come twice."""


class _NoStep:
    horizon_panes = HORIZON_PANES

    def missing(self, pane: int) -> range:
        return range(0)

    def push(self, pane: int, cells: ScoredCells) -> None:
        raise AssertionError("nothing was asked for")

    def decide(
        self, pane: int, detector: str | None, log: DecisionLog, matured: MaturedCells, cells_sha256: str
    ) -> _Nothing:
        return _Nothing("{}", (), (), "")

    def expired(self, request: Request, pane: int) -> tuple[bytes, ...]:
        raise AssertionError("nothing was asked for")


class _Nothing(NamedTuple):
    detector: str
    decisions: tuple[bytes, ...]
    outbox: tuple[bytes, ...]
    open_request: str


def configuration(size: Size) -> Config:
    """Panes of an hour, half an hour of lateness for scores that come after their labels."""
    return Config.model_validate(
        {
            "model": {"name": MODEL.model, "version": MODEL.version},
            "scores": {"attributes": {"carrier": "c", "origin": "o"}},
            "windows": {
                "horizon": f"{HORIZON_PANES}h",
                "shards": size.shards,
                "max_clock_skew": "off",
                "score_lateness": "30m",
                "label_lateness": "30m",
            },
        }
    )


class Filled:
    """A server with the load in it."""

    def __init__(self, client: redis.Redis, size: Size, advance: Callable[[int], None]) -> None:
        """`advance` is told of each pane."""
        self._size, self._client, self._config = size, client, configuration(size)
        settings = PaneSettings.of(self._config)
        self._shards = RedisShards(client, MODEL, size.shards, settings)
        self.state = RedisState(client, MODEL)
        keys = [f"{side}:t:{p}" for side in "sl" for p in range(size.partitions)]
        inputs = register_inputs(self._shards, self.state, dict.fromkeys(keys, Mark(0, None)))
        self._intake = Intake(self._shards, lambda: inputs)
        self._closer = Closer(self._shards, self.state, lambda first: _NoStep())
        self._marks = dict.fromkeys(keys, Mark(0, None))
        self._random = np.random.default_rng(1)
        names = [(f"carrier-{i % 97}", f"origin-{i // 97}") for i in range(size.signatures)]
        self._hashes = np.array([signature_hash(s) for s in names], np.uint64)
        self.state.put_signatures(dict(zip(self._hashes.tolist(), names, strict=True)), FIRST_PANE * HOUR_MS)
        self._late = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._waiting = deque[tuple[NDArray[np.uint64], NDArray[np.int64]]]()
        # The watermark of the labels reaches the end of a pane's horizon half an hour late.
        self._panes = size.panes + HORIZON_PANES + 1
        for pane in range(self._panes):
            for poll in range(size.polls_a_pane):
                self._poll(pane, poll)
            while self._closer.advance():
                pass
            advance(pane)
        self._publish()

    def _poll(self, pane: int, poll: int) -> None:
        size, random = self._size, self._random
        n, length_ms = size.scores_a_pane // size.polls_a_pane, HOUR_MS // size.polls_a_pane
        start_ms = (FIRST_PANE + pane) * HOUR_MS + poll * length_ms
        time = np.sort(start_ms + random.integers(0, length_ms, n))
        ids = random.integers(1, 2**64, n, dtype=np.uint64)
        early, (late_ids, late_time) = random.random(n) < size.early, self._late
        self._late = ids[early], time[early]
        self._waiting.append((ids[~early], time[~early]))
        # The label of a score comes an hour later, but those that come just before it, and those that have none.
        due_ids, due_time = self._waiting.popleft() if len(self._waiting) > size.polls_a_pane else (ids[:0], time[:0])
        strange = random.integers(1, 2**64, round(n * size.unscored), dtype=np.uint64)
        labels = LabelRows(
            np.concatenate([due_ids, self._late[0], strange]),
            np.concatenate([due_time + HOUR_MS, self._late[1] + 1, np.full(len(strange), start_ms)]),
            random.integers(2, 4, len(due_ids) + int(early.sum()) + len(strange)).astype(np.uint8),
        )
        scored = np.concatenate([late_ids, ids[~early]]), np.concatenate([late_time, time[~early]])
        again = np.repeat(np.arange(len(scored[0])), 1 + (random.random(len(scored[0])) < size.repeated))
        batches = []
        for p in range(size.partitions):
            own = again[p :: size.partitions]
            batches.append(self._batch(f"s:t:{p}", self._scores(scored[0][own], scored[1][own]), start_ms + length_ms))
            mine = np.arange(p, len(labels), size.partitions)
            batches.append(self._batch(f"l:t:{p}", labels.take(mine), start_ms + length_ms))
        if self._intake.apply(batches):
            raise AssertionError("nothing goes wrong here, so nothing is rewound")

    def _scores(self, ids: NDArray[np.uint64], time: NDArray[np.int64]) -> ScoreRows:
        # What belongs to an id is a function of it, so that a repeat is the same score.
        score = np.random.default_rng(2).beta(2, 5, 100_003)[(ids % np.uint64(100_003)).astype(np.intp)]
        signature = self._hashes[(ids // np.uint64(7) % np.uint64(len(self._hashes))).astype(np.intp)]
        served = np.rint(score * (2**32 - 1)).astype(np.uint32)
        bucket = (ids // np.uint64(11) % np.uint64(20)).astype(np.uint8)
        return ScoreRows(ids, time, score, signature, bucket, np.zeros(len(ids), np.uint16), served, ("0" * 16,))

    def _batch(self, key: str, rows: ScoreRows | LabelRows, clock_ms: int) -> InputBatch:
        mark = self._marks[key]
        order = np.argsort(rows.event_time_ms, kind="stable")
        records = Records(
            mark.next,
            mark.next + 1,
            np.array([mark.next]),
            np.array([clock_ms]),
            rows.take(order),
            np.zeros(len(order), np.intp),
            np.zeros(1, np.intp),
            np.array([clock_ms]),
        )
        made = judge_records(key, records, mark.clock_ms, self._shards.count, self._shards.settings)
        self._marks[key] = made.mark
        return made

    def _publish(self) -> None:
        """The checkpoint of all panes, and snapshots of a made-up size."""
        fields = self.state.read(("first_pane", "matured"))
        first, last = int(fields["first_pane"] or 0), int(fields["matured"] or 0)
        evidence = Evidence(first, self._config)
        for pane in range(first, last + 1):
            (blob,) = self.state.blobs([PaneNames.of(pane).matured])
            assert blob is not None
            evidence.advance(pane, blob)
        self.state.commit(Commit(blobs={checkpoint.NAME: checkpoint.pack(evidence.sums())}))
        for number in range(PUBLICATIONS):
            blob = self._random.bytes(SNAPSHOT_BYTES)
            entries = {"decisions": [b"x" * 480] * 4, "history": [b"x" * 330]}
            self.state.commit(Commit(appends=entries, blobs={f"snapshot:{number}-0": blob}))
        for _ in range(15):
            self.state.commit(Commit(appends={"outbox": [b"x" * 600] * 100}))

    def load(self) -> Load:
        """As the formula takes it."""
        size, fields = self._size, self.state.read(("first_pane", "closed", "matured"))
        removed = min(progress.removed or 0 for progress in self._shards.progress())
        in_join = FIRST_PANE + self._panes - 1 - removed
        kept = int(fields["matured"] or 0) - int(fields["first_pane"] or 0) + 1
        a_poll = size.scores_a_pane / size.polls_a_pane
        _, counts = np.unique(locate(np.random.default_rng(2).beta(2, 5, 100_003))[0], return_counts=True)
        share = counts / counts.sum()
        return Load(
            pending=size.scores_a_pane * in_join,
            rows=size.scores_a_pane * in_join * (1 + size.repeated),
            unscored_labels=size.scores_a_pane * in_join * size.unscored,
            early_labels=size.scores_a_pane * in_join * size.early,
            panes_in_join=in_join,
            shards=size.shards,
            rows_a_call=min(a_poll * (1 + size.repeated) / size.shards, ShardStore.operations_a_call),
            partitions=2 * size.partitions,
            kept_panes=kept,
            winners_a_pane=size.scores_a_pane,
            signatures=size.signatures,
            signature_bytes=24,
            name_bytes=len(f"sc:{{{MODEL}/0}}:j12345"),
            allocator=str(self._client.info("memory")["mem_allocator"]).partition("-")[0],
            bins=float(2 ** -(share * np.log2(share)).sum()),
            closed_panes=int(fields["closed"] or 0) - int(fields["matured"] or 0),
            publications=PUBLICATIONS,
            snapshot_bytes=SNAPSHOT_BYTES,
        )
