"""Stored offsets expired, or retention took the records behind them, and a restart read everything again or left it
out, without an error: the client's reset policy decided.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.errors import ConfigurationError, PositionLostError
from stream_calib.events.topic_range import Bound
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, TopicPartition
from tests.cases.calibrating import NOW_MS, Calibrating
from tests.cases.joined import joined, score
from tests.windows.monitors import A
from workers.replay_source import TopicSource
from workers.replay_times import EventTimes

SCORES = TopicPartition("scores", 0)


def committed_10_log_begins_at_500(**log: Any) -> Calibrating:
    made = Calibrating(scores={"time": {"path": "t"}}, log=log)
    made.produce(*(_event(i) for i in range(10)))
    role, consumer = made.member("a")
    role.step()
    assert consumer.committed(SCORES) == 10
    consumer.close()
    made.produce(*(_event(i) for i in range(10, 520)))
    made.log.trim(SCORES, 500, past_groups=True)
    return made


def _event(i: int) -> dict[str, Any]:
    return {"event_id": str(i), "score": 0.5, "t": NOW_MS}


def test_calibrate_stops_and_names_the_gap() -> None:
    made = committed_10_log_begins_at_500()
    role, consumer = made.member("b")
    with pytest.raises(PositionLostError, match="scores-0: the records 10 to 499 are gone"):
        role.step()
    assert consumer.committed(SCORES) == 10
    assert made.gaps.all() == []
    assert len(made.read("calibrated")) == 10


def test_with_the_flag_it_goes_on_and_the_gap_is_counted_alerted_and_on_record() -> None:
    made = committed_10_log_begins_at_500(on_position_lost="skip")
    role, consumer = made.member("b")
    role.step()
    role.step()
    served = [json.loads(r.value or b"")["event_id"] for r in made.read("calibrated")]
    assert served == [str(i) for i in (*range(10), *range(500, 520))]
    assert consumer.committed(SCORES) == 520
    (gap,) = made.gaps.all()
    assert (gap.role, gap.topic, gap.partition, gap.first, gap.end, gap.records) == (
        *("calibrate", "scores", 0, 10, 500),
        490,
    )
    (alert,) = [Alert.decode(raw) for raw in made.deployment.entries("outbox", 0)]
    assert (alert.kind, alert.state, alert.severity) == ("input_gap", "open", "critical")
    assert "10 to 499" in alert.diagnosis


def test_a_position_beyond_the_end_is_not_a_new_beginning() -> None:
    """A topic that was cut off or recreated under the positions: no silent start at 0, nor at the end."""
    made = Calibrating()
    made.produce(_event(0))
    role, consumer = made.member("a")
    role.step()
    consumer.commit([], {SCORES: 7})
    consumer.close()
    role, _ = made.member("b")
    with pytest.raises(PositionLostError, match="the log ends at 1, before the position 7"):
        role.step()


def test_without_a_position_everything_is_read_from_what_is_left() -> None:
    made = Calibrating(scores={"time": {"path": "t"}})
    made.produce(*(_event(i) for i in range(10)))
    made.log.trim(SCORES, 4, past_groups=True)
    role, consumer = made.member("a")
    role.step()
    assert [json.loads(r.value or b"")["event_id"] for r in made.read("calibrated")] == ["4", "5", "6", "7", "8", "9"]
    assert consumer.committed(SCORES) == 10


@pytest.mark.services
@pytest.mark.parametrize("topic", ["blocks", "labels"])
def test_monitor_stops_and_names_the_gap(redis_url: str, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    with joined(redis_url, monkeypatch) as j:
        m = j.monitors
        j.clocks(0)
        first = m.start()
        m.until_applied(A)
        m.stop(first)
        partition = m.at(topic, 0)
        j.scores(*(score(str(i), 3) for i in range(3)))
        m.log.produce([Outgoing(topic, None, None, (), 0) for _ in range(20)])
        m.operator.trim(partition, 11)
        m.start()
        with pytest.raises(PositionLostError, match=rf"{topic}-0: the records 1 to 10 are gone"):
            m.until(lambda: False, "the error")
        assert m.gaps() == []


def test_a_replay_from_there_fails_with_the_gap() -> None:
    log = MemoryLog()
    log.create_topic("old", 1)
    log.create_topic("scores", 1)
    log.produce([Outgoing("old", None, json.dumps(_event(i)).encode(), (), 0) for i in range(520)])
    log.trim(TopicPartition("old", 0), 500)
    config = Config.model_validate(
        {"model": {"name": "m"}, "windows": {"horizon": "2h"}, "scores": {"time": {"path": "t"}}}
    )

    def source(since: str) -> TopicSource:
        return TopicSource(
            log, "old", "scores", EventTimes(config, "scores"), since=[Bound.parse(since)], until=[], partitions=[]
        )

    with pytest.raises(ConfigurationError, match=r"old-0 begins at 500 now: 490 offsets from 10 on are gone"):
        source("10")
    assert len(list(source("500").items())) == 20
