"""What roles export of inputs and panes, and that it is withdrawn with what it spoke of."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import REGISTRY

from stream_calib.config import Config
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneRecord
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.served_sums import Served, ServedClass
from stream_calib.windows.state_store import Commit
from workers.input_metrics import InputMetrics
from workers.pane_metrics import PaneMetrics

HOUR_MS = 3_600_000


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"stream_calib_{name}", labels)


# --- inputs


def lag(role: str, partition: int) -> float | None:
    return sample("input_lag_records", role=role, topic="scores", partition=str(partition))


def clock(partition: int) -> float | None:
    return sample("input_clock_timestamp_seconds", topic="scores", partition=str(partition))


def test_lag_and_clock_are_told_of_the_partitions_that_are_read() -> None:
    log = MemoryLog()
    log.create_topic("scores", 2)
    log.produce([Outgoing("scores", None, b"x", (), 0)] * 5)
    first, second = TopicPartition("scores", 0), TopicPartition("scores", 1)
    seen = InputMetrics("r1", log, config_of())
    seen.observe(10_000, {first: 2, second: 0}, {first: 7_000, second: ENDED_CLOCK_MS})
    assert (clock(0), clock(1)) == (7, None), "the end of a topic is no time"
    assert (lag("r1", 0), lag("r1", 1)) == (3, 0)
    assert seen.facts() == {"waits": {"scores-0": (3, 0, None)}}
    assert (seen.due(14_999), seen.due(15_000)) == (False, True)
    seen.observe(15_000, {first: 5}, {first: None})
    assert (lag("r1", 0), lag("r1", 1)) == (0, None)
    assert clock(0) == 7
    seen.close()
    assert (lag("r1", 0), clock(0)) == (None, None)


# --- panes


def config_of(**sections: Any) -> Config:
    return Config.model_validate(
        {"model": {"name": "m"}, "windows": {"horizon": "2h", "label_lateness": "1h"}} | sections
    )


def record(pane: int, labelled: int, positives: int, unlabelled: int) -> PaneRecord:
    negatives = labelled - positives
    served = {
        "": Served(unlabelled, ServedClass(), ServedClass()),
        "7-abc": Served(
            labelled,
            ServedClass(negatives, negatives, negatives / 4, negatives / 2),
            ServedClass(positives, positives, positives / 4, positives / 2),
        ),
    }
    counts = {"accepted": 2 * labelled, "winners": labelled + unlabelled}
    return PaneRecord(pane, counts, served, {}, {}, labelled, positives, unlabelled, "00")


def matured(state: MemoryState, *records: PaneRecord) -> None:
    last = str(records[-1].pane)
    blobs = {f"pane:{r.pane}": r.encode() for r in records}
    first = state.read(("first_pane",))["first_pane"] or str(records[0].pane)
    fields = {"first_pane": first, "closed": last, "matured": last, "decided": last}
    assert state.commit(Commit(fields=fields, blobs=blobs))


def test_panes_that_mature_under_the_lease_are_counted_once() -> None:
    state = MemoryState()
    matured(state, record(10, 1_000, 100, 10))
    seen = PaneMetrics("p1/1", state, config_of())
    seen.observe(1_000_000, {})
    assert sample("closer_lease", model="p1/1") == 1
    assert sample("outcomes_total", model="p1/1", outcome="labelled") is None
    matured(state, record(11, 100, 20, 3), record(12, 60, 4, 0))
    seen.observe(1_000_500, {})
    assert sample("outcomes_total", model="p1/1", outcome="labelled") is None, "at most once a second"
    for later in (1_001_000, 1_002_000):
        seen.observe(later, {})
    assert sample("panes_total", model="p1/1", state="matured") == 2
    assert sample("outcomes_total", model="p1/1", outcome="labelled") == 160
    assert sample("outcomes_total", model="p1/1", outcome="accepted") == 320
    assert sample("served_labelled_total", model="p1/1") == 160
    assert sample("served_positives_total", model="p1/1") == 24
    assert sample("served_probability_total", model="p1/1") == pytest.approx(40)
    assert sample("served_log_loss_total", model="p1/1") == pytest.approx(80)
    assert sample("pane_timestamp_seconds", model="p1/1", state="decided") == 13 * 3600


def test_what_was_served_is_told_of_the_events_before_the_thinning() -> None:
    """80 positives of which half were kept, and 9,920 negatives of which one in a hundred was, served .008."""
    state = MemoryState()
    seen = PaneMetrics("p6/1", state, config_of(labels={"keep_rate_positives": 0.5, "keep_rate_negatives": 0.01}))
    seen.observe(1_000, {})
    # Some of the negatives have a rate of their own beside.
    served = Served(140, ServedClass(68, 99.2, 0.7936, 0.8), ServedClass(40, 40.0, 0.32, 193.0))
    matured(state, PaneRecord(7, {}, {"1-a": served}, {}, {}, 108, 40, 32, "00"))
    seen.observe(2_000, {})
    assert sample("served_labelled_total", model="p6/1") == pytest.approx(10_000)
    assert sample("served_positives_total", model="p6/1") == 80
    assert sample("served_positive_rows_total", model="p6/1") == 40
    assert sample("served_probability_total", model="p6/1") == pytest.approx(80)
    assert sample("served_log_loss_total", model="p6/1") == pytest.approx(466)


def test_labels_that_come_as_files_may_lag_as_long_as_no_file_is_due() -> None:
    state = MemoryState()
    often = PaneMetrics("p7/1", state, config_of())
    files = PaneMetrics("p8/1", state, config_of(labels={"schedule": ["mon-fri 06:00"], "schedule_grace": "2h"}))
    for seen in (often, files):
        seen.observe(1_000, {})
    assert sample("labels_may_lag_seconds", model="p7/1") == 25 * 3600
    assert sample("labels_may_lag_seconds", model="p8/1") == (25 + 72 + 2) * 3600
    files.withdraw()
    assert sample("labels_may_lag_seconds", model="p8/1") is None


def test_all_panes_of_a_model_key_that_begins_under_the_lease_are_counted() -> None:
    state = MemoryState()
    seen = PaneMetrics("p5/1", state, config_of())
    seen.observe(1_000, {})
    matured(state, record(7, 5, 1, 0), record(8, 6, 1, 0))
    seen.observe(2_000, {})
    assert sample("panes_total", model="p5/1", state="closed") == 2
    assert sample("served_labelled_total", model="p5/1") == 11


def test_a_state_that_was_rolled_back_is_not_counted_twice() -> None:
    state = MemoryState()
    matured(state, record(10, 1, 0, 0))
    seen = PaneMetrics("p2/1", state, config_of())
    for now, pane in ((10_000, 10), (20_000, 12), (30_000, 11), (40_000, 12), (50_000, 13)):
        matured(state, *(record(p, 10, 1, 0) for p in range(10, pane + 1)))
        seen.observe(now, {})
    assert sample("served_labelled_total", model="p2/1") == 30
    assert sample("pane_timestamp_seconds", model="p2/1", state="matured") == 14 * 3600


def test_many_panes_are_counted_over_several_looks() -> None:
    state = MemoryState()
    matured(state, record(0, 1, 0, 0))
    seen = PaneMetrics("p3/1", state, config_of())
    seen.observe(1_000, {})
    matured(state, *(record(p, 1, 0, 0) for p in range(1, 501)))
    for second in range(2, 6):
        seen.observe(second * 1_000, {})
    assert sample("served_labelled_total", model="p3/1") == 500


def test_watermarks_and_the_open_request_are_told_and_withdrawn_with_the_lease() -> None:
    state = MemoryState()
    seen = PaneMetrics("p4/1", state, config_of())
    seen.observe(1_000_000, {"s": 5_000, "l": None})
    assert sample("watermark_timestamp_seconds", model="p4/1", side="s") == 5
    assert sample("watermark_timestamp_seconds", model="p4/1", side="l") is None
    assert sample("refit_request_timestamp_seconds", model="p4/1") is None
    state.commit(Commit(fields={"open_request": "a"}))
    seen.observe(1_001_000, {"s": ENDED_CLOCK_MS - 5, "l": 7_000})
    seen.observe(1_009_000, {"s": ENDED_CLOCK_MS - 5, "l": 7_000})
    assert sample("watermark_timestamp_seconds", model="p4/1", side="s") == 5, "the end of a topic is no time"
    assert sample("refit_request_timestamp_seconds", model="p4/1") == 1_001
    state.commit(Commit(fields={"open_request": ""}))
    seen.observe(1_010_000, {})
    assert sample("refit_request_timestamp_seconds", model="p4/1") is None
    seen.withdraw()
    assert sample("closer_lease", model="p4/1") == 0
    assert sample("watermark_timestamp_seconds", model="p4/1", side="l") is None
    seen.withdraw()
