"""Records on the users' topics through calibrate's transform and a monitor, to what is counted in the panes.

Over a log in memory and a real Redis. Times are seconds after `monitors.START_MS` unless a test gives its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import pytest

from stream_calib.events.dead_letters import REASON_HEADER
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import PaneNames, PaneRecord
from tests.cases.served import no_snapshot
from tests.windows.monitors import PANE_S, A, Monitored, at, monitored
from workers.calibrate_transform import Transform

Value: TypeAlias = Mapping[str, Any] | bytes | None


class PaneCounts(NamedTuple):
    """What one matured pane holds."""

    record: PaneRecord
    scored: int
    labelled: int
    positives: int
    unlabelled: int


class Joined:
    def __init__(self, monitors: Monitored) -> None:
        self.monitors = monitors
        self.transform = Transform(monitors.config)
        self.refused: list[bytes] = []
        """Reasons of the scores that were not served."""
        self._next = 0

    def scores(self, *values: Value, partition: int = 0, key: bytes | None = None) -> None:
        """One poll of calibrate: blocks for the monitor, in the partition of the same number."""
        records = [
            Record(TopicPartition("scores", partition), self._next + i, key, _encoded(value), (), at(0))
            for i, value in enumerate(values)
        ]
        self._next += len(records)
        decoded, batch = self.transform.decode(records)
        outputs = self.transform.encode(records, decoded, self.transform.calibrate(batch, no_snapshot))
        self.refused += [dict(o.headers)[REASON_HEADER] for o in outputs if o.topic == "dead-letters"]
        self.monitors.log.produce([o for o in outputs if o.topic == "blocks"])

    def labels(self, *values: Value, partition: int = 0, key: bytes | None = None) -> None:
        topic = self.monitors.topic["labels"]
        self.monitors.log.produce([Outgoing(topic, key, _encoded(value), (), partition) for value in values])

    def clocks(self, seconds: float | None) -> None:
        """A clock record on every partition; None: its end."""
        self.monitors.clocks(seconds)

    def matured(self, seconds: float) -> None:
        """Every partition's clock moves far enough, and the monitors work, until the pane of that time has matured."""
        end = (int(seconds) // PANE_S + 1) * PANE_S
        self.clocks(end + 60)
        if not self.monitors.monitors:
            self.monitors.start()
        self.monitors.until_applied(A)
        self.monitors.until_matured(end, A)

    def pane(self, seconds: float) -> PaneCounts:
        """The matured pane of that time."""
        pane = at(seconds) // self.monitors.config.windows.pane_ms
        names = PaneNames.of(pane)
        scored, matured = self.monitors.state(A).store.blobs([names.scored, names.matured])
        assert scored is not None, pane
        assert matured is not None, pane
        cells = MaturedCells.unpack(matured)
        return PaneCounts(
            self.monitors.record(A, pane),
            int(ScoredCells.unpack(scored).n.sum()),
            *(int(column.sum()) for column in (cells.labelled, cells.positives, cells.unlabelled)),
        )

    def dead_letters(self) -> list[bytes]:
        """Reasons of the records that the monitor refused."""
        letters = self.monitors.log.read(self.monitors.at("dead-letters", 0), 0, 1_000)
        return [dict(letter.headers)[REASON_HEADER] for letter in letters]


def score(event_id: Any, seconds: float, value: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"event_id": event_id, "t": at(seconds), "score": value, **more}


def label(event_id: Any, seconds: float, value: Any = 1) -> dict[str, Any]:
    return {"event_id": event_id, "t": at(seconds), "label": value}


def _encoded(value: Value) -> bytes | None:
    return json.dumps(value).encode() if isinstance(value, Mapping) else value


@contextmanager
def joined(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, *, partitions: int = 1, **sections: Any
) -> Iterator[Joined]:
    """`sections`: of the configuration, over those of `monitored`."""
    one_model = {"name_path": None, "version_path": None, "name": "m", "version": "1"}
    base: dict[str, Any] = {"model": one_model, "scores": {"time": {"path": "t"}, "attributes": {"group": "g"}}}
    base |= {name: {**base.get(name, {}), **values} for name, values in sections.items()}
    with monitored(redis_url, monkeypatch, partitions=partitions, **base) as made:
        yield Joined(made)


@contextmanager
def a_score_and_a_label(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, scored: Any, labelled: Any
) -> Iterator[tuple[Joined, PaneCounts]]:
    """One of each, of these ids, in a pane that has matured."""
    with joined(redis_url, monkeypatch) as j:
        j.scores(score(scored, 3))
        j.labels(label(labelled, 5))
        j.matured(3)
        yield j, j.pane(3)
