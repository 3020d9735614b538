"""Everything persistent as one version wrote it: a log, the configuration, and the state half way through the log.

A sample is a folder: `stream-calib.toml`; `log.jsonl.gz`, the records of all topics in order; `state.scs`, exported
when the monitor had read the first half of them; `expected.json`, what is there after all of them.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from stream_calib.config import Config
from stream_calib.config_connections import RedisSection
from stream_calib.config_file import load_config, redacted
from stream_calib.config_identity import semantic_hash
from stream_calib.refit.worker import Refitter
from stream_calib.snapshot.compiled import compile_snapshot
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.registration import STATE_FORMAT
from tests.windows.monitors import A, InMemory, Monitored
from workers import monitor as monitor_module
from workers.deployment import State
from workers.monitor import Monitor
from workers.refit import ModelRefit
from workers.state_transfer import export_states, import_states

SAMPLES = Path(__file__).parent / "samples"
_SETTINGS: dict[str, Any] = {
    "model": {"name": A.model, "version": A.version, "name_path": None, "version_path": None},
    "labels": {"time": {"path": "t", "unit": "ms"}},
    "refit": {
        "min_rows": 300,
        "min_positives": 30,
        "gate_min_rows": 10,
        "gate_window": "300s",
        "min_new_labels": 10,
        "max_auc_drop": 1.0,
    },
}
_SCORES = np.array([0.0, 0.1, 0.4, 0.8, 1.0])
_HALF_S, _END_S = 800, 900


def make(folder: Path, redis_url: str) -> None:
    """Writes a sample into a new folder, with the code as it is."""
    operator = InMemory()
    with patch.object(monitor_module, "open_log", lambda config: operator.log):
        m = Monitored(redis_url, operator, partitions=2, **_SETTINGS)
        with closing(m):
            m.aborts = 0
            m.clocks(0)
            m.traffic([A], 0, _HALF_S)
            m.clocks(_HALF_S)
            _run(m.start(), m.state(A), m.config, lambda: m.applied(A))
            m.stop(m.monitors[0])
            folder.mkdir(parents=True)
            export_states(m.client, m.config, [A], folder / "state.scs")
            m.traffic([A], _HALF_S, _END_S, seed=2)
            m.clocks(None)
            _run(m.start(), m.state(A), m.config, lambda: m.applied(A))
            assert m.check(A) > 30
            facts = facts_of(m.state(A))
            assert facts["snapshot"] is not None
            _write_log(folder / "log.jsonl.gz", operator.log, m.config)
            (folder / "stream-calib.toml").write_text(_text(m.config), encoding="utf-8")
            expected = {"state_format": STATE_FORMAT, "semantic_hash": semantic_hash(m.config), **facts}
            (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n", encoding="utf-8")


def go_on(folder: Path, redis_url: str) -> dict[str, Any]:
    """Imports the sample's state into an empty server, reads the second half of its log; what is there then."""
    config = load_config(folder / "stream-calib.toml", {"STREAM_CALIB_REDIS_URL": redis_url})
    with _reading(folder, redis_url) as m:
        m.config = config
        import_states(m.client, config, folder / "state.scs")
        _run(m.start(), m.state(A), config, lambda: m.applied(A))
        return facts_of(m.state(A))


def read_anew(folder: Path, redis_url: str) -> dict[str, Any]:
    """Reads the sample's whole log into an empty server; what is there then."""
    with _reading(folder, redis_url) as m:
        m.config = load_config(folder / "stream-calib.toml", {"STREAM_CALIB_REDIS_URL": redis_url})
        _run(m.start(), m.state(A), m.config, lambda: m.applied(A))
        return facts_of(m.state(A))


def facts_of(state: State) -> dict[str, Any]:
    """What the log alone decides, and what was published."""
    fields = state.store.read(("first_pane", "closed", "matured", "matured_chain"))
    moves = [move for move in state.snapshots.history() if move["what"] == "publish"]
    first = None if not moves else str(moves[0]["version"])
    return {**fields, "snapshot": first, "served": None if first is None else _served(state, first)}


def _served(state: State, version: str) -> list[float]:
    """What the snapshot makes of some scores of a known signature."""
    resolved = state.snapshots.load(version)
    served = compile_snapshot(resolved)
    return [round(float(p), 12) for p in served.apply(_SCORES, np.zeros(len(_SCORES), dtype=np.intp), [("x",)])]


def _run(monitor: Monitor, state: State, config: Config, applied: Callable[[], bool]) -> None:
    """Monitor and refit, until nothing is left to do."""
    refitter = Refitter(state.store, state.snapshots, state.model_key, config)
    refit = ModelRefit(state.model_key, state.store, state.snapshots, refitter, "refit")
    names, before, still = ("closed", "matured", "decided", "open_request"), None, 0
    while still < 5 or not applied():
        monitor.step()
        refit.answer(0)
        now = state.store.read(names)
        still = still + 1 if now == before else 0
        before = now
    refit.release()


@contextmanager
def _reading(folder: Path, redis_url: str) -> Iterator[Monitored]:
    operator = InMemory()
    topics, records = _read_log(folder / "log.jsonl.gz")
    with patch.object(monitor_module, "open_log", lambda config: operator.log):
        m = Monitored(redis_url, operator, partitions=2, **_SETTINGS)
        with closing(m):
            for topic, identity in topics.items():
                # The stored positions belong to the topics of that time.
                operator.log._store.topics[topic].id = identity
            operator.log.produce(records)
            yield m


def _write_log(path: Path, log: MemoryLog, config: Config) -> None:
    topics = config.topics.blocks, config.topics.labels
    lines: list[Any] = [{topic: log.topic_id(topic) for topic in topics}]
    for topic in topics:
        for number in range(log.partitions(topic)):
            partition = TopicPartition(topic, number)
            for record in log.read(partition, 0, log.end_offset(partition)):
                headers = [(name, base64.b64encode(value).decode()) for name, value in record.headers]
                lines.append([topic, number, base64.b64encode(record.value or b"").decode(), headers])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _read_log(path: Path) -> tuple[dict[str, str], list[Outgoing]]:
    topics, *lines = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
    return topics, [
        Outgoing(topic, None, base64.b64decode(value), tuple((n, base64.b64decode(v)) for n, v in headers), number)
        for topic, number, value, headers in lines
    ]


def _text(config: Config) -> str:
    """Without where the server of the sample was."""
    return redacted(config.model_copy(update={"redis": RedisSection()}))
