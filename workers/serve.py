"""serve: calibration over HTTP, in the path of requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from starlette.routing import BaseRoute

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError
from stream_calib.live import BlockWriter, LiveCalibrator
from stream_calib.transport.port import Log
from workers.calibrate_status import CalibrateStatus
from workers.deployment import connect_state, member_name, open_log
from workers.role import Role, wall_clock_ms
from workers.serve_requests import CalibrateRoutes
from workers.status_board import StatusBoard
from workers.topic_setup import create_topics

_QUIET_S = 0.5
_DRAIN_WITHIN_S = 5.0


class Serve(Role):
    """Follows the snapshots, and answers POST /v1/calibrate by them on the process's HTTP server."""

    name = "serve"

    def __init__(self, config: Config, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`clock_ms`: wall time, for statuses. Raises ConfigurationError where nothing would be listened on, or the
        token cannot be read."""
        if config.http.listen == "off":
            raise ConfigurationError("http.listen is off: give serve an address, with --http host:port or in the file")
        self._config, self._clock_ms = config, clock_ms
        self._opened = ExitStack()
        self._calibrator: LiveCalibrator | None = None
        self._requests = CalibrateRoutes(config, lambda: self._calibrator)

    def routes(self) -> Sequence[BaseRoute]:
        return self._requests.routes

    def open(self) -> None:
        self._opened.close()
        config = self._config
        client = self._opened.enter_context(closing(connect_state(config)))
        status = CalibrateStatus(config, self.name, member_name(), lambda key: StatusBoard(client, key), self._clock_ms)
        self._opened.callback(status.drop)
        blocks = self._blocks()
        calibrator = LiveCalibrator(config, blocks, lambda models: status.report(models, lambda: _facts(blocks)))
        self._opened.callback(calibrator.close)
        if blocks is not None:
            blocks.start()
        self._calibrator = calibrator

    def step(self) -> bool:
        # Threads of the calibrator and of the HTTP server do the work.
        return False

    def ready(self) -> str | None:
        return self._calibrator.not_ready() if self._calibrator else "starts"

    def close(self) -> None:
        """Requests are answered until none has come for half a second, for five at most: until then /readyz has told
        everybody to send them elsewhere."""
        give_up = time.monotonic() + _DRAIN_WITHIN_S
        while self._requests.since_last_s() < _QUIET_S and time.monotonic() < give_up:
            time.sleep(_QUIET_S / 10)
        self._calibrator = None
        self._opened.close()

    def _blocks(self) -> BlockWriter | None:
        topic = self._config.topics.live_blocks
        if topic is None:
            return None
        return BlockWriter(
            self._open_log,
            topic,
            lateness_ms=self._config.windows.score_lateness_ms,
            clock_records=self._config.serving.clock_records == "wall",
        )

    def _open_log(self) -> Log:
        log = open_log(self._config)
        if self._config.log.kind == "embedded":
            create_topics(log, self._config)
        return log


def _facts(blocks: BlockWriter | None) -> dict[str, Any]:
    return {} if blocks is None else {"rows_waiting": blocks.waiting}
