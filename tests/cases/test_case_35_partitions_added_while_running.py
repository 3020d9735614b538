"""Records that were written to a new partition before the consumer had noticed it were never read, because a partition
without a stored offset began at its end.
"""

from __future__ import annotations

import json

import pytest

from stream_calib.transport.port import TopicPartition
from tests.cases.calibrating import NOW_MS, Calibrating
from tests.cases.joined import joined, label, score
from tests.windows.monitors import A

N = 50


def test_calibrate_serves_all_that_was_there_before_it_looked() -> None:
    made = Calibrating(partitions=2, scores={"time": {"path": "t"}})
    role, consumer = made.member("a")
    role.step()
    for topic in ("calibrated", "blocks", "scores"):
        made.log.grow_topic(topic, 4)
    made.produce(*({"event_id": str(i), "score": 0.5, "t": NOW_MS} for i in range(N)), partition=3)
    role.step()
    role.step()
    served = [json.loads(r.value or b"")["event_id"] for r in made.read("calibrated", 3)]
    assert served == [str(i) for i in range(N)]
    assert consumer.committed(TopicPartition("scores", 3)) == N


@pytest.mark.services
def test_all_are_counted_and_labels_still_meet_their_scores(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch, partitions=2) as j:
        m = j.monitors
        j.clocks(0)
        m.start()
        j.scores(*(score(f"before-{i}", 3, i / N) for i in range(N)), partition=1)
        m.until_applied(A)
        for topic in ("blocks", "labels"):
            m.operator.grow(m.topic[topic], 4)
        # Written before the monitor looks for partitions.
        j.scores(*(score(f"after-{i}", 4, i / N) for i in range(N)), partition=3)
        j.labels(*(label(f"before-{i}", 8, i % 2) for i in range(N)), partition=3)
        j.labels(*(label(f"after-{i}", 8, 1) for i in range(N)), partition=1)
        j.matured(3)
        found = j.pane(3)
        assert (found.scored, found.labelled, found.positives) == (2 * N, 2 * N, N + N // 2)
        assert m.positions(A, TopicPartition("blocks", 3)) == {j.monitors.end("blocks", 3)}
        assert found.record.counts == {
            **{"accepted": 2 * N, "winners": 2 * N, "labels": 2 * N, "matched": 2 * N},
            **{kind: 0 for kind, n in found.record.counts.items() if not n},
        }
