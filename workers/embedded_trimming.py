"""Dropping old records of the embedded log: what is old enough and needed by nobody.

A record of `blocks` or `labels` is needed until every group has passed it, and as long as a shard that was wiped would
be rebuilt from it. That is the position at which the clocks first reached the oldest pane that such a shard begins at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from stream_calib.config import Config
from stream_calib.errors import StateError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.port import Log, TopicPartition
from stream_calib.windows.input_partitions import input_key, input_sides
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.registration import INPUTS, recorded_inputs
from stream_calib.windows.state_store import StateStore
from workers.deployment import state_of

_LOG = logging.getLogger(__name__)

_EVERY_MS = 60_000


class EmbeddedTrimming:
    """`look` now and then; it works once a minute. Any number of processes may do it at once. Kafka is left alone."""

    def __init__(self, log: Log, client: RedisClient, config: Config, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: wall time."""
        self._log = log if isinstance(log, EmbeddedLog) else None
        self._client, self._config, self._clock_ms = client, config, clock_ms
        self._sides = input_sides(config)
        self._looked_at = clock_ms()

    def look(self, keys: Iterable[ModelKey]) -> None:
        """`keys`: all model keys of the deployment. Where the state of one is damaged, nothing is dropped, and it is
        logged. Raises StateUnavailableError, TransportError."""
        now = self._clock_ms()
        if self._log is None or now - self._looked_at < _EVERY_MS:
            return
        self._looked_at = now
        stores = (state_of(self._client, self._config, key).store for key in keys)
        try:
            self._trim(self._log, now, least_positions(stores, PaneSettings.of(self._config).rebuilt_panes))
        except StateUnavailableError:
            raise
        except StateError as error:
            _LOG.warning("no old records of the embedded log are dropped: %s", error)

    def _trim(self, log: EmbeddedLog, now_ms: int, needed: Mapping[str, int]) -> None:
        topics = self._config.topics.model_dump(exclude_none=True).values()
        for topic in topics:
            for number in range(log.partitions(topic)):
                partition = TopicPartition(topic, number)
                before = log.offset_at(partition, now_ms - self._config.retention.embedded_log_ms)
                if topic in self._sides:
                    before = min(before, needed.get(input_key(log, self._sides[topic], partition), before))
                log.trim(partition, before)


def least_positions(stores: Iterable[StateStore], panes: int) -> dict[str, int]:
    """Input key -> the least position from which a wiped shard of one of the states would be rebuilt.

    `panes`: PaneSettings.rebuilt_panes.
    """
    least: dict[str, int] = {}
    for store in stores:
        for key, position in _rebuilt_from(store, panes).items():
            least[key] = min(position, least.get(key, position))
    return least


def _rebuilt_from(store: StateStore, panes: int) -> dict[str, int]:
    fields = store.read((INPUTS, "first_pane", "matured"))
    positions = {key: mark.next for key, mark in recorded_inputs(store, int(fields[INPUTS] or 0)).items()}
    # As registration.register_inputs, and one pane more: a state that lost its last writes is some panes younger.
    first = int(fields["matured"] or 0) - panes
    if fields["first_pane"] is None or first <= int(fields["first_pane"]):
        return positions
    (blob,) = store.blobs([PaneNames.of(first).record])
    if blob is None:
        raise StateError(f"pane {first} has no record, so what a wiped shard would need is not known")
    entries = decode_record(blob).entries
    return {key: entries[key].position if key in entries else position for key, position in positions.items()}
