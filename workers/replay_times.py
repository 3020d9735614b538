"""Event times of records of the users' schema, for pacing and for ordering; nothing is judged by them."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.config import Config
from stream_calib.config_records import TimeSection
from stream_calib.events.columns import column
from stream_calib.events.event_times import read_times
from stream_calib.events.json_decoding import BadJson, JsonDecoder

_MAX_SKEW_MS = 300_000
"""Where the configuration has none."""


class EventTimes:
    """Reads them where the topic is the configuration's scores or labels and names where they are."""

    def __init__(self, config: Config, topic: str) -> None:
        sections: dict[str, TimeSection] = {
            config.topics.scores: config.scores.time,
            config.topics.labels: config.labels.time,
        }
        self._time = sections.get(topic)
        self._max_skew_ms = config.windows.max_clock_skew_ms or _MAX_SKEW_MS
        self._json = JsonDecoder(config.records.max_record_bytes, config.records.max_depth)

    @property
    def known(self) -> bool:
        """Whether records have a time of their own."""
        return self._time is not None and self._time.path is not None

    def of(self, values: Sequence[bytes | None], taken_ms: Sequence[int]) -> list[int | None]:
        """Epoch milliseconds of each record; None where it has none that can be read, or one further ahead of when the
        log took it (`taken_ms`) than clocks differ: nothing is to wait for an event of the year 2099."""
        if self._time is None or self._time.path is None:
            return [None] * len(values)
        objects = [{} if isinstance(o, BadJson) else o for o in self._json.decode_all([v or b"" for v in values])]
        times, failures = read_times(column(objects, self._time.path), self._time.unit, self._time.path)
        return [
            None if i in failures or time_ms > taken_ms[i] + self._max_skew_ms else time_ms
            for i, time_ms in enumerate(times.tolist())
        ]
