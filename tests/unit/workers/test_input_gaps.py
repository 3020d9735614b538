"""The alert of records that were gone before they were read: one of each role and partition, whatever its gaps."""

from __future__ import annotations

from stream_calib.events.contracts import ModelKey
from stream_calib.windows.memory_state import MemoryState
from tests.outbox import events
from workers.input_gaps import Gap, InputGaps

PAST_MS = 1_000


def test_a_further_gap_is_news_and_the_last_one_closes_the_alert() -> None:
    state = MemoryState()
    gaps = InputGaps(state, ModelKey("*", "d"), 10)
    for number, (partition, time_ms) in enumerate([(0, 0), (1, 100), (0, 500)]):
        assert gaps.record(Gap("monitor", "blocks", partition, "id", 10 * number, 10 * number + 5, time_ms))
    for now_ms in (1_000, 1_099, 1_100, 1_499, 1_500, 1_600):
        gaps.close_past(now_ms, PAST_MS)
    assert gaps.record(Gap("monitor", "blocks", 0, "id", 90, 95, 2_000))
    told = events(state)
    assert [(event.state, event.evidence["partition"], event.pane) for event in told] == [
        ("open", 0, 0),
        ("open", 1, 10),
        ("update", 0, 50),
        ("close", 1, 110),
        ("close", 0, 150),
        ("open", 0, 200),
    ]
    assert len({event.id for event in told}) == len(told)
    assert len({event.dedup_key for event in told}) == 2
