"""The monitor role over a log in memory and a real Redis, fed with blocks and labels of several model keys."""

from __future__ import annotations

import json
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np
import pytest

from stream_calib.config import Config
from stream_calib.errors import (
    PositionLostError,
    StateUnavailableError,
    TopicRecreatedError,
    TransportError,
    UnknownTopicError,
)
from stream_calib.events.blocks import BlockRows, pack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.control import clock_record
from stream_calib.events.identity import fingerprints, signature_hash, unit_buckets
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Log, Outgoing, TopicPartition
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.registration import INPUTS, recorded_inputs
from tests.oracle.offline import Clock, End, Label, Result, Score, Settings, compute
from tests.windows.expectation import counts_of, matured_of, scored_of, without_diagnosis
from tests.windows.logs import START_MS, ms
from workers import monitor as monitor_module
from workers.deployment import State, connect_state, open_gaps, open_registry, state_of
from workers.monitor import GROUP, Monitor

_LOG = logging.getLogger(__name__)
PANE_S, HORIZON_S, LATE_S, LABEL_LATE_S = 10, 15, 3, 4
PATIENCE_S = 30.0
A, B = ModelKey("m", "1"), ModelKey("m", "2")
Item: TypeAlias = Score | Label | Clock | End


class Operator(Protocol):
    """What only somebody with the log in their hands can do."""

    def open(self, config: Config) -> Log:
        """A connection for the test."""

    def grow(self, topic: str, partitions: int) -> None: ...

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Retention takes the records before this offset."""

    def skip(self, partition: TopicPartition) -> None:
        """Two offsets without records, as where a transaction was aborted."""

    def silence(self, monitor: Monitor) -> None:
        """The monitor's session ends."""


class InMemory:
    """The operator of a log in memory."""

    def __init__(self) -> None:
        self.log = MemoryLog()

    def open(self, config: Config) -> Log:
        return self.log

    def grow(self, topic: str, partitions: int) -> None:
        self.log.grow_topic(topic, partitions)

    def trim(self, partition: TopicPartition, before: int) -> None:
        self.log.trim(partition, before, past_groups=True)

    def skip(self, partition: TopicPartition) -> None:
        self.log.skip(partition, 2)

    def silence(self, monitor: Monitor) -> None:
        self.log.fence(GROUP, monitor._member)


class Monitored:
    """A log, a state, and monitors that a test steps by hand. Times are seconds after START_MS."""

    def __init__(self, redis_url: str, operator: Operator, *, partitions: int = 2, **sections: Any) -> None:
        base: dict[str, Any] = {
            "model": {"name_path": "m", "version_path": "v"},
            "scores": {"attributes": {"group": "g"}},
            "log": {"metadata_max_age": "100ms"},
            "redis": {"url": redis_url},
            "windows": {
                "pane": f"{PANE_S}s",
                "horizon": f"{HORIZON_S}s",
                "score_lateness": f"{LATE_S}s",
                "label_lateness": f"{LABEL_LATE_S}s",
                "max_clock_skew": "off",
                "idle_timeout": "off",
                "shards": 2,
            },
            "drift": {"psi_window": "10s"},
            "refit": {"gate_window": "10s"},
        }
        self.config = Config.model_validate({k: base.get(k, {}) | sections.get(k, {}) for k in {*base, *sections}})
        self.client = connect_state(self.config)
        self.operator = operator
        self.log = operator.open(self.config)
        topics = self.config.topics
        self.topic = {"blocks": topics.blocks, "labels": topics.labels, "dead-letters": topics.dead_letters}
        self.topic["live"] = topics.live_blocks or "live"
        for name, count in (("blocks", partitions), ("live", 1), ("labels", partitions), ("dead-letters", 1)):
            self.log.create_topic(self.topic[name], count)
        self._to_send: list[Outgoing] = []
        self._hold = False
        self.aborts = 0.3
        """Of the seconds of `traffic` have one."""
        self.monitors: list[Monitor] = []
        self.dead: list[Monitor] = []
        self.written: dict[TopicPartition, list[tuple[ModelKey | None, Item]]] = defaultdict(list)
        """Partition -> its items in order, with the model key of a block."""
        self.block_sizes: dict[TopicPartition, list[int]] = defaultdict(list)
        """Partition of blocks -> how many items each offset holds."""

    # --- processes

    def start(self) -> Monitor:
        """One more monitor."""
        monitor = Monitor(self.config)
        monitor.open()
        self.monitors.append(monitor)
        return monitor

    def stop(self, monitor: Monitor) -> None:
        self.monitors.remove(monitor)
        monitor.close()

    def kill(self, monitor: Monitor) -> None:
        """It is gone without a word; its session ends at once, its leases later."""
        self.monitors.remove(monitor)
        self.operator.silence(monitor)
        self.dead.append(monitor)

    def close(self) -> None:
        for monitor in self.dead:
            monitor.close()
        for monitor in list(self.monitors):
            self.stop(monitor)
        self.log.close()
        self.client.close()

    def at(self, topic: str, partition: int) -> TopicPartition:
        """Of the topic that has this name here."""
        return TopicPartition(self.topic[topic], partition)

    def end(self, topic: str, partition: int) -> int:
        return self.log.end_offset(self.at(topic, partition))

    def grow(self, topic: str, partitions: int) -> None:
        self.operator.grow(self.topic[topic], partitions)
        deadline = time.monotonic() + PATIENCE_S
        while not self._sees(topic, partitions):
            assert time.monotonic() < deadline

    def _sees(self, topic: str, partitions: int) -> bool:
        """Whether the test's own connection knows of all partitions."""
        try:
            return self.log.partitions(self.topic[topic]) == partitions and self.end(topic, partitions - 1) == 0
        except UnknownTopicError:
            return False

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Steps all monitors until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for monitor in self.monitors:
                self._step(monitor)
            assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"

    def _step(self, monitor: Monitor) -> None:
        """As the role's loop does it."""
        try:
            monitor.step()
        except (PositionLostError, TopicRecreatedError):
            raise
        except (StateUnavailableError, TransportError) as error:
            _LOG.info("the step is tried again: %s", error)

    def until_applied(self, *keys: ModelKey) -> None:
        """Until every shard of the keys has everything."""
        self.until(lambda: all(self.applied(key) for key in keys), "everything to be applied")

    def until_matured(self, seconds: float, *keys: ModelKey) -> None:
        """Until the pane that ends there has matured."""
        last = ms(int(seconds)) // (1_000 * PANE_S) - 1
        self.until(lambda: all(self.cursor(key, "matured") >= last for key in keys), f"panes up to {seconds} s")

    # --- what is stored

    def state(self, key: ModelKey) -> State:
        return state_of(self.client, self.config, key)

    def cursor(self, key: ModelKey, name: str) -> int:
        return int(self.state(key).store.read((name,))[name] or -1)

    def input_key(self, partition: TopicPartition) -> str:
        side = "l" if partition.topic == self.topic["labels"] else "s"
        return f"{side}:{self.log.topic_id(partition.topic)}:{partition.partition}"

    def positions(self, key: ModelKey, partition: TopicPartition) -> set[int | None]:
        """`next` over the shards."""
        name = self.input_key(partition)
        progress = self.state(key).shards.progress()
        return {p.marks[name].next if name in p.marks else None for p in progress}

    def applied(self, key: ModelKey) -> bool:
        topics = (
            self.topic["blocks"],
            self.topic["labels"],
            *([self.topic["live"]] if self.config.topics.live_blocks else []),
        )
        partitions = [TopicPartition(t, p) for t in topics for p in range(self.log.partitions(t))]
        return all(self.positions(key, p) == {self.log.end_offset(p)} for p in partitions)

    def known(self) -> list[ModelKey]:
        return open_registry(self.client, self.config).known()

    def gaps(self) -> list[Any]:
        return open_gaps(self.client, self.config).all()

    def record(self, key: ModelKey, pane: int) -> PaneRecord:
        (found,) = self.state(key).store.blobs([PaneNames.of(pane).record])
        assert found is not None, pane
        return decode_record(found)

    # --- feeding

    def scores(self, key: ModelKey, partition: int, *scores: Score, topic: str = "blocks") -> None:
        """One block."""
        where = self.at(topic, partition)
        self._note(where, len(scores))
        self.written[where] += [(key, score) for score in scores]
        self._send(Outgoing(where.topic, None, block(key, scores), (), partition))

    def traffic_on(self, partition: int, key: ModelKey, begin: int, end: int) -> None:
        """A score a second on one partition of blocks."""
        for second in range(begin, end):
            self.scores(key, partition, Score(f"on-{partition}-{second}", at(second), 0.4, ("x",)))

    def labels_clock(self, partition: int, seconds: float) -> None:
        """A clock record on one partition of labels."""
        value, headers = clock_record(at(seconds))
        self.written[self.at("labels", partition)].append((None, Clock(at(seconds))))
        self._send(Outgoing(self.topic["labels"], None, value, headers, partition))

    def labels(self, partition: int, *labels: Label) -> None:
        where = self.at("labels", partition)
        self.written[where] += [(None, label) for label in labels]
        values = [{"event_id": label.event_id, "label": label.label, "t": label.time_ms} for label in labels]
        self._send(*(Outgoing(where.topic, None, json.dumps(value).encode(), (), partition) for value in values))

    def clocks(self, seconds: float | None, topics: Iterable[str] = ("blocks", "labels")) -> None:
        """A clock record on every partition; None: its end."""
        value, headers = clock_record(at(seconds or 0), end=seconds is None)
        for topic in topics:
            for p in range(self.log.partitions(self.topic[topic])):
                item = End() if seconds is None else Clock(at(seconds))
                self._note(self.at(topic, p), 1)
                self.written[self.at(topic, p)].append((None, item))
                self._send(Outgoing(self.topic[topic], None, value, headers, p))

    def traffic(self, keys: Sequence[ModelKey], begin: int, end: int, seed: int = 1) -> None:
        """Scores of the keys, and labels of many of them a little later, over all partitions: some late, some twice."""
        r = random.Random(seed)
        blocks, labels = (self.log.partitions(self.topic[topic]) for topic in ("blocks", "labels"))
        self._hold = True
        for second in range(begin, end):
            for n in range(2):
                key = r.choice(keys)
                p = r.randrange(blocks)
                when = second - r.choice([0, 0, 0, 1, 2, 6])
                event = f"{key.version}-{second}-{n}" if r.random() < 0.9 else f"common-{second // 3}"
                self.scores(key, p, Score(event, at(max(0, when)), r.choice([0.1, 0.4, 0.8]), (r.choice("xy"),)))
                if r.random() < 0.8:
                    dated = at(second) + r.choice([1, 500, 2_000, -1_000])
                    where = r.randrange(labels)
                    self.labels(where, Label(event, dated, r.choice([0, 1, 1, None])))
            if r.random() < self.aborts:
                where = r.randrange(blocks)
                self.skip("blocks", where)
        self._hold = False
        self._send()

    def skip(self, topic: str, partition: int) -> None:
        """Offsets without records."""
        self._flush()
        self.operator.skip(self.at(topic, partition))

    def _send(self, *outputs: Outgoing) -> None:
        self._to_send += outputs
        if not self._hold:
            self._flush()

    def _flush(self) -> None:
        outputs, self._to_send = self._to_send, []
        if outputs:
            self.log.produce(outputs)

    def _note(self, partition: TopicPartition, items: int) -> None:
        waiting = sum((o.topic, o.partition) == partition for o in self._to_send)
        sizes = self.block_sizes[partition]
        sizes += [0] * (self.log.end_offset(partition) + waiting - len(sizes))
        sizes.append(items)

    # --- what must come out

    def expected(self, key: ModelKey) -> Result:
        """The oracle's word on the key: rows of other keys move their partition's clock, as clock records would."""
        state = self.state(key).store
        recorded = recorded_inputs(state, int(state.read((INPUTS,))[INPUTS] or 0))
        sides: dict[str, list[list[Any]]] = {"s": [], "l": []}
        for partition, items in self.written.items():
            first = recorded.get(name := self.input_key(partition))
            if first is None:
                continue
            log: list[Any] = [] if first.clock_ms is None else [Clock(first.clock_ms)]
            foreign = [o is not None and o != key for o, _ in items]
            log += [
                Clock(item.time_ms) if other and isinstance(item, Score) else item
                for (_, item), other in zip(items, foreign, strict=True)
            ]
            sides[name[0]].append(log)
        late = 1_000 * LATE_S, 1_000 * LABEL_LATE_S
        return compute(sides["s"], sides["l"], Settings(1_000 * HORIZON_S, 1_000 * PANE_S, *late))

    def check(self, key: ModelKey, *, since: int | None = None) -> int:
        """Every pane's cells and counters are the oracle's; the number of matured panes that hold something."""
        whole, store = self.expected(key), self.state(key).store
        at = {n: int(v or 0) for n, v in store.read(("first_pane", "closed", "matured")).items()}
        if since is None:
            assert at["first_pane"] == whole.first_pane
        filled = 0
        for pane in range(at["first_pane"] if since is None else since, at["matured"] + 1):
            names = PaneNames.of(pane)
            scored, matured = store.blobs([names.scored, names.matured])
            assert scored is not None
            assert matured is not None
            expected = whole.pane(pane)
            assert scored_of(ScoredCells.unpack(scored)) == expected.scored, f"scored cells of {key} in {pane}"
            assert matured_of(MaturedCells.unpack(matured)) == expected.matured, f"matured cells of {key} in {pane}"
            counts = without_diagnosis(self.record(key, pane).counts)
            assert counts == counts_of(expected), f"counters of {key} in {pane}"
            filled += bool(expected.matured)
        return filled


def at(seconds: float) -> int:
    return START_MS + round(1_000 * seconds)


def block(key: ModelKey, scores: Sequence[Score]) -> bytes:
    """As calibrate writes it."""
    signatures = list(dict.fromkeys(score.attributes for score in scores))
    ids = fingerprints([score.event_id for score in scores])
    return pack(
        BlockRows(
            model_key=key,
            signatures=signatures,
            signature_hash=np.array([signature_hash(s) for s in signatures], dtype=np.uint64),
            snapshots=[""],
            fingerprint=ids,
            event_time_ms=np.array([score.time_ms for score in scores], dtype=np.int64),
            score=np.array([score.score for score in scores]),
            signature_index=np.array([signatures.index(score.attributes) for score in scores], dtype=np.uint16),
            unit_bucket=unit_buckets(ids),
            snapshot_index=np.zeros(len(scores), dtype=np.uint8),
            served=np.zeros(len(scores), dtype=np.uint32),
        )
    )


@contextmanager
def monitored(
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    partitions: int = 2,
    operator: Operator | None = None,
    **sections: Any,
) -> Iterator[Monitored]:
    """`sections`: of the configuration."""
    sections["labels"] = {"time": {"path": "t", "unit": "ms"}} | sections.get("labels", {})
    made = Monitored(redis_url, operator or InMemory(), partitions=partitions, **sections)
    if operator is None:
        monkeypatch.setattr(monitor_module, "open_log", lambda config: made.log)
    try:
        yield made
    finally:
        made.close()


__all__ = ["GROUP", "A", "B", "Monitored", "at", "block", "monitored"]
