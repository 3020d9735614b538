"""Labels that name their model: who gets them, and that the partition's clock is moved by them for everybody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import fingerprints
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import OffsetRange, Outgoing, Record, TopicPartition
from stream_calib.windows.input_batch import LATE, SKEWED, Records, judge_records
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.read_inputs import ReadLabels
from tests.oracle.offline import Score
from tests.windows.monitors import Monitored, at, monitored
from workers.rebuild import Rebuild

FRAUD, FRAUD_2, ABUSE = ModelKey("fraud", "1"), ModelKey("fraud", "2"), ModelKey("abuse", "1")
APPENDED = at(60)
CONFIG = Config.model_validate(
    {
        "model": {"name_path": "m"},
        "labels": {"model": "model", "time": {"path": "t"}},
        "windows": {"horizon": "1h", "pane": "1m", "label_lateness": "10s", "max_clock_skew": "5s"},
    }
)
SETTINGS = PaneSettings.of(CONFIG)


def read(*values: dict[str, Any]) -> ReadLabels:
    source = TopicPartition("labels", 0)
    records = [Record(source, i, None, json.dumps(value).encode(), (), APPENDED) for i, value in enumerate(values)]
    return ReadLabels(records, OffsetRange(0, len(records)), LabelDecoder(CONFIG), SETTINGS)


def written(event: str, seconds: int, model: str | None = None) -> dict[str, Any]:
    return {"event_id": event, "label": 1, "t": at(seconds), **({} if model is None else {"model": model})}


def ids(records: Records) -> list[int]:
    return [int(fingerprint) for fingerprint in records.rows.fingerprint]


def test_a_model_gets_the_labels_that_name_it_and_those_that_name_none() -> None:
    found = read(written("a", 1, "fraud"), written("b", 2), written("c", 3, "abuse"), written("d", 4, "unknown"))
    a, b, c, _ = (int(fingerprint) for fingerprint in fingerprints(["a", "b", "c", "d"]))

    assert ids(found.of(FRAUD)) == ids(found.of(FRAUD_2)) == [a, b]
    assert ids(found.of(ABUSE)) == [b, c]
    assert ids(found.of(ModelKey("third", "1"))) == [b]
    assert found.rows == 4


def test_labels_of_other_models_move_the_clock_as_for_their_own() -> None:
    found = read(
        written("a", 20, "abuse"), written("late", 9, "fraud"), written("ahead", 66, "abuse"), written("b", 30, "fraud")
    )
    one, other = (judge_records("l:x:0", found.of(key), None, 1, SETTINGS) for key in (FRAUD, ABUSE))

    assert one.clock_after.tolist() == other.clock_after.tolist() == [at(20), at(20), at(20), at(30)]
    assert one.mark == other.mark
    assert one.entries == other.entries
    assert one.drop_kind.tolist() == [LATE], "late, by the clock of a label that is not its own"
    assert other.drop_kind.tolist() == [SKEWED], "what is too far ahead counts where it belongs"
    assert len(one.labels) == len(other.labels) == 1


@pytest.mark.services
def test_one_id_has_an_outcome_for_each_model(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch, partitions=1, labels={"model": "about.model"}) as m:
        for key in (FRAUD, ABUSE):
            m.scores(key, 0, *(Score(event, at(3), 0.5, ("x",)) for event in ("e", "f")))
        for event, model, label in (("e", "fraud", 1), ("e", "abuse", 0), ("f", None, 1), ("e", "unknown", 1)):
            _label(m, event, 5, label, model)
        _label(m, "e", 6, 1, 7)
        m.clocks(80)
        m.start()
        m.until_matured(40, FRAUD, ABUSE)
        (letter,) = m.log.read(TopicPartition("dead-letters", 0), 0, 10)
        records = {key: m.record(key, at(3) // 10_000) for key in (FRAUD, ABUSE)}

    assert dict(letter.headers)["stream-calib-reason"] == b"model_invalid"
    assert {key: (record.labelled, record.positives) for key, record in records.items()} == {
        FRAUD: (2, 2),
        ABUSE: (2, 1),
    }


@pytest.mark.services
def test_a_rebuild_reads_labels_of_other_models_by_the_same_clock(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1, labels={"model": "about.model", "clock": "broker"}) as m:
        m.scores(FRAUD, 0, Score("e", at(3), 0.5, ("x",)))
        _label(m, "e", 5, 1, "abuse")
        m.start()
        m.until_applied(FRAUD)
        work = Rebuild(m.client, m.log, m.config, FRAUD)
        while work.step():
            pass
        work.close()
        assert work.number == 1
        assert [s.marks for s in work.state.shards.progress()] == [s.marks for s in m.state(FRAUD).shards.progress()]


def _label(m: Monitored, event: str, seconds: int, label: int, model: str | int | None) -> None:
    value = {"event_id": event, "label": label, "t": at(seconds), "about": {"model": model}}
    m.log.produce([Outgoing("labels", None, json.dumps(value).encode(), (), 0)])
