"""What a process that calibrates says of the model keys that it serves: on their status boards, and as metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from stream_calib.config import Config
from stream_calib.errors import StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.served_metrics import ServedMetrics, version_served
from stream_calib.snapshot.served_models import ServedModels
from stream_calib.windows.model_registry import deployment_scope
from workers.status_board import MemberStatus, StatusBoard

_LOG = logging.getLogger(__name__)

_EVERY_MS = 1_000
_AWAY_AFTER_MS = 1_000


class CalibrateStatus:
    """Writes a status for each model key once a second, and when another snapshot is served; while there is no key yet,
    for the deployment. Not thread-safe."""

    def __init__(
        self,
        config: Config,
        role: str,
        member: str,
        board_of: Callable[[ModelKey], StatusBoard],
        clock_ms: Callable[[], int],
    ) -> None:
        """`board_of`: the board of a model key. `clock_ms`: wall time."""
        self._role = role
        self._away_after_ms = config.serving.snapshot_poll_ms + _AWAY_AFTER_MS
        self._deployment = deployment_scope(config.log.group_prefix)
        self._member, self._board_of, self._clock_ms = member, board_of, clock_ms
        self._versions: dict[ModelKey, str] = {}
        self._at = 0
        self._failed = False
        self._metrics = ServedMetrics()

    def report(self, models: ServedModels, facts: Callable[[], Mapping[str, Any]]) -> None:
        """`facts`: what holds for all model keys; asked for only when a status is due."""
        now = self._clock_ms()
        versions = {key: version_served(follower) for key, follower in models.followers.items()}
        if versions == self._versions and now - self._at < _EVERY_MS:
            return
        self._metrics.observe(models)
        self._at, self._versions = now, versions
        # With the state away a status cannot be written, and must not hold up serving.
        if models.staleness_ms > self._away_after_ms:
            return
        common = facts()
        try:
            for key, follower in models.followers.items():
                of_key = {"snapshot": versions[key], "damaged": follower.damaged, "behind": follower.behind}
                self._board_of(key).put(MemberStatus(self._role, self._member, now, {**of_key, **common}))
            if not models.followers:
                self._board_of(self._deployment).put(MemberStatus(self._role, self._member, now, dict(common)))
        except StateUnavailableError as error:
            # A state that is full can still be read, and that is all that serving needs.
            if not self._failed:
                _LOG.warning("%s serves on, but cannot write its status: %s", self._role, error)
            self._failed = True
        else:
            self._failed = False

    def drop(self) -> None:
        """Forgets the process, which ends."""
        for key in (*self._versions, self._deployment):
            self._board_of(key).drop(self._role, self._member)
