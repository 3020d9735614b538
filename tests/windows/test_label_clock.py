"""The broker clock of label partitions on its own: judging, batches, tombstones, labels of other models."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.transport.port import OffsetRange, Record, TopicPartition
from stream_calib.windows.clocks import NO_CLOCK, judge_by_broker
from stream_calib.windows.input_batch import LATE, UNSAMPLED, judge_records
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.read_inputs import ReadLabels
from stream_calib.windows.shard_store import Entry, Mark
from tests.oracle.offline import Clock, End, Label, is_sampled
from tests.windows.join import L, at, label
from tests.windows.logs import settings_with
from tests.windows.records import Item, batch, records

BROKER = settings_with(broker_clock=True, sample_rate=0.6)
SMALL = PaneSettings(10, 15, 3, 4, None, 2, broker_clock=True)
TIMES = st.integers(0, 90)


@given(st.lists(st.tuples(TIMES, TIMES, st.booleans()), max_size=20), st.none() | TIMES)
@example([(0, 29, False), (10, 29, True), (11, 29, True)], None)
def test_a_label_is_late_where_its_partitions_clock_has_matured_all_that_it_could_join(
    found: list[tuple[int, int, bool]], start: int | None
) -> None:
    time, moves_to, is_label = (np.array(column) for column in (zip(*found, strict=True) if found else ([], [], [])))
    judged = judge_by_broker(time.astype(int), moves_to.astype(int), is_label.astype(bool), start, SMALL)

    now = -math.inf if start is None else start
    for i, (t, to, counts) in enumerate(found):
        assert judged.clock_before[i] == (NO_CLOCK if now == -math.inf else now)
        # Every score that it could join, and whether its pane has matured by the clock: end + horizon + lateness.
        joinable = range(max(t - 15, 0), t)
        open_scores = [s for s in joinable if (s // 10 + 1) * 10 + 15 + 4 > now]
        assert judged.late[i] == (counts and not open_scores)
        if counts and open_scores:
            assert [s for s in joinable if s >= judged.from_ms[i]] == open_scores
            assert (judged.from_ms[i] == 0) == (open_scores == list(joinable))
        now = max(now, to)
        assert judged.clock_after[i] == now


items = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcdefgh"), st.none() | TIMES, TIMES).map(
            lambda x: Label(x[0], None if x[1] is None else at(x[1]), None if x[1] is None else 1, at(x[2]))
        ),
        TIMES.map(lambda seconds: Clock(at(seconds))),
    ),
    max_size=12,
)


@given(items, st.integers(0, 12))
@settings(max_examples=80)
def test_a_batch_judged_in_two_parts_is_the_batch_judged_at_once(log: list[Item], cut: int) -> None:
    """So nothing hangs on how polls cut a partition, nor on any other partition."""
    cut = min(cut, len(log))
    whole = batch(L, log, Mark(0, None), 3, BROKER)
    first = batch(L, log[:cut], Mark(0, None), 3, BROKER)
    parts = [first, batch(L, log[cut:], first.mark, 3, BROKER)]
    assert parts[1].mark == whole.mark
    for column in ("row_position", "row_shard", "drop_kind", "drop_pane", "drop_position", "drop_shard"):
        joined = np.concatenate([getattr(part, column) for part in parts])
        assert np.array_equal(joined, getattr(whole, column)), column
    for column in ("fingerprint", "event_time_ms", "code", "from_ms"):
        joined = np.concatenate([getattr(part.labels, column) for part in parts])
        assert np.array_equal(joined, getattr(whole.labels, column)), column
    # An entry counts only where no earlier one names its pane.
    places: list[dict[int, Entry]] = [{}, {}]
    for known, entries in zip(places, ([e for part in parts for e in part.entries], whole.entries), strict=True):
        for entry in entries:
            known.setdefault(entry.pane, entry)
    assert places[0] == places[1]


@given(items)
@settings(max_examples=80)
def test_every_label_is_accepted_or_dropped_as_one_kind(log: list[Item]) -> None:
    made = batch(L, log, Mark(0, None), 2, BROKER)
    labels = [i for i, item in enumerate(log) if isinstance(item, Label)]
    assert sorted([*made.row_position.tolist(), *made.drop_position.tolist()]) == labels
    out = {i for i, item in enumerate(log) if isinstance(item, Label) and not is_sampled(item.event_id, 0.6)}
    kinds = dict(zip(made.drop_position.tolist(), made.drop_kind.tolist(), strict=True))
    assert {i for i, kind in kinds.items() if kind == UNSAMPLED} == out - {i for i, k in kinds.items() if k == LATE}
    assert not out & set(made.row_position.tolist())


def test_a_tombstone_is_dated_at_the_end_of_the_day_on_which_the_log_took_it() -> None:
    """Else it would withdraw nothing of that day, whose labels are dated at its end."""
    daily = PaneSettings(86_400_000, 86_400_000, 0, 0, None, 2, label_time_granularity_ms=86_400_000, broker_clock=True)
    day = at(0) // 86_400_000 * 86_400_000
    items = [Label("a", day + 86_399_999, 1, day + 5), Label("a", None, None, day + 9), Label("a", None, None, day + 7)]
    made = batch(L, items, Mark(0, None), 1, daily)
    assert made.labels.event_time_ms.tolist() == [day + 86_399_999] * 3
    assert made.mark.clock_ms == day + 9


def test_records_after_the_end_of_their_partition_are_late() -> None:
    made = batch(
        L, [Clock(at(1)), End(), Label("a", at(5), 1, at(5))], Mark(0, None), 1, settings_with(broker_clock=True)
    )
    assert (made.mark.clock_ms, made.drop_kind.tolist()) == (ENDED_CLOCK_MS, [LATE])


def test_the_event_clock_knows_no_reach() -> None:
    assert batch(L, [label("a", 1)], Mark(0, None), 1, settings_with()).labels.from_ms is None


def test_labels_of_other_models_move_the_broker_clock_as_for_their_own() -> None:
    config = Config.model_validate(
        {
            "model": {"name_path": "m"},
            "labels": {"model": "model", "time": {"path": "t"}, "clock": "broker"},
            "windows": {"horizon": "1h", "pane": "1m", "label_lateness": "10s", "max_clock_skew": "5s"},
        }
    )
    pane_settings = PaneSettings.of(config)
    values = [("a", 900, "abuse", 20), ("b", 9, "fraud", 31), ("c", 1, None, 25), ("d", 3, "abuse", 44)]
    source = TopicPartition("labels", 0)
    taken = [
        Record(
            source, i, None, json.dumps({"event_id": e, "label": 1, "t": at(t), "model": m}).encode(), (), at(append)
        )
        for i, (e, t, m, append) in enumerate(values)
    ]
    found = ReadLabels(taken, OffsetRange(0, 4), LabelDecoder(config), pane_settings)
    for name, own in (("fraud", 2), ("abuse", 3), ("third", 1)):
        made = judge_records(L, found.of(ModelKey(name, "1")), None, 1, pane_settings)
        assert made.clock_after.tolist() == [at(20), at(31), at(31), at(44)], name
        assert (len(made.labels), len(made.drop_kind)) == (own, 0), name


def test_a_control_record_says_how_far_the_partition_has_come() -> None:
    """Whenever it was written."""
    found = records("l", [Label("a", at(1), 1, at(20)), Clock(at(5)), Clock(at(40))])
    assert judge_records(L, found, None, 1, BROKER).clock_after.tolist() == [at(20), at(20), at(40)]
