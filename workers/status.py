"""`stream-calib status`: facts of a deployment as plain values. How they are shown is in status_tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from stream_calib.alerts.outbox import waiting
from stream_calib.alerts.silence import Silence, Silences
from stream_calib.config import Config
from stream_calib.errors import SnapshotError, StateError, StateUnavailableError, TransportError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.refit.shadow_evaluation import ShadowEvaluation
from stream_calib.snapshot.decision_log import DecisionLog, Settled
from stream_calib.windows.shard_store import Progress
from workers.alert_listing import hook_rows, open_rows
from workers.deployment import State, open_board, open_deployment_store, open_gaps, open_log, state_of
from workers.detector_facts import detector_facts
from workers.input_lags import input_lags
from workers.status_board import StatusBoard
from workers.totals import OutcomeTotals

_DAY_MS = 86_400_000
_FIELDS = ("generation", "first_pane", "closed", "matured", "decided", "open_request", "current", "detector")


class DeploymentStatus:
    """Looks at a deployment, again and again; what cannot change is read once."""

    def __init__(self, client: RedisClient, config: Config, keys: Sequence[ModelKey]) -> None:
        self._config = config
        self._store = open_deployment_store(client, config)
        self._gaps, self._board = open_gaps(client, config), open_board(client, config)
        self._models = [_ModelStatus(state_of(client, config, key), config) for key in keys]

    def facts(self, now_ms: int) -> dict[str, Any]:
        """Everything that is known; times in epoch milliseconds, panes as numbers.

        Raises StateUnavailableError where the state is away; where the log is, `log_error` says so and there are no
        lags.
        """
        progress = [model.state.shards.progress() for model in self._models]
        processes = _plain_processes(self._board, now_ms)
        silences = Silences(self._store).at(now_ms)
        stores = [self._store, *(model.state.store for model in self._models)]
        facts: dict[str, Any] = {
            "now_ms": now_ms,
            "lags": [],
            "log_error": None,
            "gaps": [msgspec.to_builtins(gap) for gap in self._gaps.all()],
            "alerts": open_rows(self._store, silences),
            "silences": [msgspec.to_builtins(silence) for silence in silences],
            "hooks": hook_rows(stores, [hook.name for hook in self._config.alerts.hooks], now_ms, _said(processes)),
            "processes": processes,
        }
        try:
            with open_log(self._config) as log:
                lags = input_lags(log, self._config, progress)
        except TransportError as error:
            facts["log_error"] = str(error)
        else:
            facts["lags"] = [
                {"role": lag.role, "topic": lag.topic, "behind": lag.total, "partitions": lag.behind} for lag in lags
            ]
        facts["models"] = [model.facts(now_ms, p, silences) for model, p in zip(self._models, progress, strict=True)]
        return facts


class _ModelStatus:
    """One model key."""

    def __init__(self, state: State, config: Config) -> None:
        self.state = state
        self._config = config
        panes_a_day = max(1, _DAY_MS // config.windows.pane_ms)
        self._outcomes = OutcomeTotals(state.store, state.shards, panes_a_day)
        self._shadow = ShadowEvaluation(state.store, state.snapshots, config)

    def facts(self, now_ms: int, progress: Sequence[Progress], silences: Sequence[Silence]) -> dict[str, Any]:
        state, windows = self.state, self._config.windows
        fields = state.store.read(_FIELDS)
        log = state.snapshots.log()
        refits = Counter(entry.outcome for entry in log.entries if isinstance(entry, Settled))
        published = [move for move in state.snapshots.history() if move["what"] in ("publish", "rollback")]
        clocks = _clocks(progress)
        lateness = {"scores": windows.score_lateness_ms, "labels": windows.label_lateness_ms}
        outcomes = self._outcomes.totals()
        return {
            "model": str(state.model_key),
            "generation": fields["generation"],
            "snapshot": fields["current"] or None,
            "snapshot_since_ms": published[-1]["time_ms"] if published else None,
            "pinned": None if log.pin is None else log.pin.model_dump(mode="json"),
            "held": list(log.held),
            "shadow": self._shadow_facts(log),
            "panes": {
                name: None if fields[name] is None else int(fields[name] or 0)
                for name in ("first_pane", "closed", "matured", "decided")
            },
            "pane_ms": windows.pane_ms,
            "clocks_ms": clocks,
            "watermarks_ms": {side: None if ms is None else ms - lateness[side] for side, ms in clocks.items()},
            "open_request": fields["open_request"] or None,
            "refits": dict(sorted(refits.items())),
            "outcomes": outcomes,
            "unmatched": self._outcomes.unmatched(),
            "coverage": self._outcomes.coverage()._asdict(),
            "detectors": detector_facts(
                fields["detector"],
                None if fields["decided"] is None else int(fields["decided"]),
                fields["current"] or None,
                state.snapshots,
                self._config,
            ),
            "alerts": open_rows(state.store, silences),
            "alerts_to_send": waiting(state.store),
            "processes": _plain_processes(state.board, now_ms),
        }

    def _shadow_facts(self, log: DecisionLog) -> dict[str, Any] | None:
        """A state that cannot give the figures is worth a look most of all, so that is no reason to show nothing."""
        if log.shadow is None:
            return None
        facts: dict[str, Any] = {"version": log.shadow.version, "time_ms": log.shadow.time_ms}
        try:
            figures = self._shadow.figures(log)
        except StateUnavailableError:
            raise
        except (SnapshotError, StateError) as error:
            return facts | {"figures": None, "error": str(error)}
        return facts | {"figures": None if figures is None else asdict(figures), "error": None}


def _plain_processes(board: StatusBoard, now_ms: int) -> list[dict[str, Any]]:
    return [
        {"role": s.role, "member": s.member, "age_ms": now_ms - s.time_ms, "facts": msgspec.to_builtins(s.facts)}
        for s in board.all(now_ms)
    ]


def _said(processes: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Hook -> what it said last while it takes nothing, as the process that delivers has it."""
    return {hook: facts["says"] for one in processes for hook, facts in one["facts"].get("hooks", {}).items()}


def _clocks(progress: Sequence[Progress]) -> dict[str, int | None]:
    """The least clock over the partitions of each side: panes wait for it. None: a partition has had no event yet."""
    found: dict[str, list[int | None]] = {"scores": [], "labels": []}
    for shard in progress:
        for input_key, mark in shard.marks.items():
            found["scores" if input_key.startswith("s:") else "labels"].append(mark.clock_ms)
    return {side: None if None in clocks or not clocks else min(filter(None, clocks)) for side, clocks in found.items()}
