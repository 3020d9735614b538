"""calibrate over a log in memory, stepped by hand, several members where a test wants them; each with a state in memory
that they share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.served_models import ServedModels
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Consumer, Outgoing, Record, TopicPartition
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.model_registry import ModelRegistry
from workers.calibrate import GROUP, Calibrate
from workers.calibrate_status import CalibrateStatus
from workers.input_gaps import InputGaps

NOW_MS = 1_714_557_600_000


class Calibrating:
    """The log, and the members of calibrate over it."""

    def __init__(self, *, partitions: int = 1, **sections: Any) -> None:
        base: dict[str, Any] = {"model": {"name": "m"}, "windows": {"horizon": "2h"}}
        self.config = Config.model_validate(base | sections)
        self.now_ms = NOW_MS
        self.log = MemoryLog(now_ms=lambda: self.now_ms)
        for topic in ("scores", "blocks", "calibrated"):
            self.log.create_topic(topic, partitions)
        self.log.create_topic("dead-letters", 1)
        self._states: dict[ModelKey, MemoryState] = {}
        self.deployment = MemoryState()
        self.gaps = InputGaps(self.deployment, ModelKey("*", "d"), 3_600_000)

    def member(self, name: str) -> tuple[Calibrate, Consumer]:
        """One more process."""
        role = Calibrate(self.config, lambda: self.now_ms)
        registry = ModelRegistry(self.deployment, self.config.model.max_keys)
        models = ServedModels(self.config, registry, self._state, lambda: self.now_ms)
        board: Callable[[ModelKey], Any] = lambda key: SimpleNamespace(put=lambda status: None)  # noqa: E731 - a stand-in
        status = CalibrateStatus(self.config, "calibrate", name, board, lambda: self.now_ms)
        consumer = self.log.consumer(GROUP, ["scores"], member=name)
        role.work_with(self.log, consumer, models, status, self.gaps)
        return role, consumer

    def _state(self, key: ModelKey) -> MemoryState:
        return self._states.setdefault(key, MemoryState())

    def produce(self, *values: Mapping[str, Any] | bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        encoded = [json.dumps(v).encode() if isinstance(v, Mapping) else v for v in values]
        self.log.produce([Outgoing("scores", key, value, (), partition) for value in encoded])

    def read(self, topic: str, partition: int = 0) -> list[Record]:
        return self.log.read(TopicPartition(topic, partition), 0, 100_000)
