"""Partitions that are added under running monitors, and positions: markers, resets by hand, what retention took."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stream_calib.alerts.model import Alert
from stream_calib.errors import PositionLostError
from stream_calib.transport.port import TopicPartition
from stream_calib.windows.model_registry import deployment_scope
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.registration import recorded_inputs
from tests.oracle.offline import Score
from tests.windows.monitors import GROUP, A, B, Monitored, at, monitored
from workers.monitor import Monitor

pytestmark = pytest.mark.services
BLOCKS_0, BLOCKS_1, LABELS_0 = TopicPartition("blocks", 0), TopicPartition("blocks", 1), TopicPartition("labels", 0)


@pytest.mark.parametrize("monitors", [1, 2])
def test_added_partitions_are_read_from_their_start_by_a_clock_that_is_on_record(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, monitors: int
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 80)
        for _ in range(monitors):
            m.start()
        m.until_applied(A, B)
        m.until_matured(50, A, B)
        for topic in ("blocks", "labels"):
            m.grow(topic, 3)
        m.traffic([A, B], 80, 160, seed=2)
        m.clocks(None)
        m.until_applied(A, B)
        m.until_matured(150, A, B)
        for key in (A, B):
            assert m.check(key) >= 15
            first = recorded_inputs(m.state(key).store, 100)
            assert len(first) == 6
            assert first[m.input_key(TopicPartition("blocks", 2))].clock_ms is not None


def test_a_partition_that_says_nothing_holds_the_panes_back_until_it_speaks(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.clocks(0)
        m.traffic([A], 0, 60)
        m.start()
        m.until_applied(A)
        m.grow("blocks", 2)
        m.until(lambda: m.positions(A, BLOCKS_1) == {0}, "the partition to be registered")
        closed = m.cursor(A, "closed")
        m.traffic_on(0, A, 60, 100)
        m.until(lambda: m.positions(A, BLOCKS_0) == {m.log.end_offset(BLOCKS_0)}, "the old partition to be read")
        for _ in range(5):
            m.monitors[0].step()
        assert m.cursor(A, "closed") <= closed + 1
        m.clocks(140)
        m.until_matured(100, A)
        assert m.check(A) >= 9


def test_offsets_without_records_are_passed_by_every_shard(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.scores(A, 0, Score("a", at(3), 0.5, ("x",)))
        m.start()
        m.until_applied(A)
        m.skip("blocks", 0)
        m.skip("labels", 0)
        m.until_applied(A)
        assert m.positions(A, BLOCKS_0) == {3}
        assert m.positions(A, LABELS_0) == {2}


def test_a_label_partition_that_ends_in_markers_is_left_out_when_it_is_idle(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, windows={"idle_timeout": "100ms"}) as m:
        m.clocks(0)
        m.traffic([A], 0, 40)
        m.clocks(100, ["blocks"])
        m.skip("labels", 1)
        m.labels_clock(0, 100)
        m.start()
        m.until_matured(60, A)
        last = m.cursor(A, "matured")
        end = m.end("labels", 1)
        cut = m.record(A, last).cut[m.input_key(TopicPartition("labels", 1))]
        assert set(cut.values()) == {end}


def stray_ahead(monitor: Monitor) -> None:
    for partition, position in monitor._positions.items():
        monitor._consumer.seek(partition, position + 1)


def stray_back(monitor: Monitor) -> None:
    for partition in monitor._positions:
        monitor._consumer.seek(partition, 0)


@pytest.mark.parametrize("stray", [stray_ahead, stray_back])
def test_a_consumer_that_went_elsewhere_is_brought_back(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, stray: Callable[[Monitor], None]
) -> None:
    with monitored(redis_url, monkeypatch) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 40)
        monitor = m.start()
        m.until_applied(A, B)
        m.traffic([A, B], 40, 80, seed=2)
        stray(monitor)
        m.clocks(None)
        m.until_applied(A, B)
        m.until_matured(70, A, B)
        assert m.check(A) >= 7
        assert m.check(B) >= 7


@pytest.mark.parametrize("to", ["start", "end"])
def test_offsets_reset_by_hand_change_nothing(redis_url: str, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    """Field case: somebody moved the group's positions while the monitors were down."""
    with monitored(redis_url, monkeypatch) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 40)
        first = m.start()
        m.until_applied(A, B)
        m.stop(first)
        m.traffic([A, B], 40, 80, seed=2)
        m.clocks(None)
        reset(m, to)
        m.start()
        m.until_applied(A, B)
        m.until_matured(70, A, B)
        assert m.check(A) >= 7
        assert m.check(B) >= 7
        ends = {p: m.end("blocks", p) for p in (0, 1)}
        m.until(lambda: m.log.group_positions(GROUP, "blocks") == ends, "positions to be committed again")


def reset(m: Monitored, to: str) -> None:
    with m.log.consumer(GROUP, ["blocks", "labels"], member="by hand") as consumer:
        consumer.poll(1, 0)
        moved = {p: 0 if to == "start" else m.log.end_offset(p) for p in consumer.assignment()}
        consumer.commit([], moved)


# --- what retention took


def lose(m: Monitored, key_of_the_gap: TopicPartition = BLOCKS_0) -> tuple[int, int]:
    """Stops the monitors, writes on, and drops a part of what they have not read. The gap."""
    for monitor in list(m.monitors):
        m.stop(monitor)
    first = m.log.end_offset(key_of_the_gap)
    m.traffic([A, B], 40, 70, seed=2)
    end = first + (m.log.end_offset(key_of_the_gap) - first) // 2
    m.operator.trim(key_of_the_gap, end)
    return first, end


def test_a_lost_position_ends_the_role(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 40)
        m.start()
        m.until_applied(A, B)
        first, _ = lose(m)
        m.start()
        with pytest.raises(PositionLostError, match=rf"blocks-0: the records {first} to"):
            m.until(lambda: False, "the error")
        assert m.gaps() == []


@pytest.mark.parametrize("monitors", [1, 2])
def test_where_the_operator_wants_it_the_gap_is_skipped_counted_alerted_and_on_record(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, monitors: int
) -> None:
    skip = {"on_position_lost": "skip", "metadata_max_age": "100ms"}
    with monitored(redis_url, monkeypatch, partitions=1, log=skip) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 40)
        m.start()
        m.until_applied(A, B)
        first, end = lose(m)
        del m.written[BLOCKS_0][first_lost(m, first) : first_lost(m, end)]
        for _ in range(monitors):
            m.start()
        m.clocks(None)
        m.until_applied(A, B)
        m.until_matured(60, A, B)
        (gap,) = m.gaps()
        assert (gap.role, gap.topic, gap.partition, gap.first, gap.end) == ("monitor", "blocks", 0, first, end)
        scope = RedisState(m.client, deployment_scope(m.config.log.group_prefix))
        opened = Alert.decode(scope.entries("outbox", 0)[0])
        assert (opened.kind, opened.state, opened.severity) == ("input_gap", "open", "critical")
        assert opened.evidence["first"] == first
        assert f"{first} to {end - 1}" in opened.diagnosis
        assert m.check(A) >= 5
        assert m.check(B) >= 5


def first_lost(m: Monitored, offset: int) -> int:
    """How many items of the first partition of blocks are before the offset."""
    return sum(m.block_sizes[BLOCKS_0][:offset])


def test_the_alert_of_a_gap_closes_when_what_it_could_touch_is_past(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.deployment import open_gaps
    from workers.input_gaps import Gap

    with monitored(redis_url, monkeypatch) as m:
        gaps = open_gaps(m.client, m.config)
        gap = Gap("monitor", "blocks", 0, "id", 5, 9, at(0))
        assert gaps.record(gap)
        assert not gaps.record(gap)
        assert not gaps.record(Gap("monitor", "blocks", 0, "id", 7, 9, at(1))), "a repeat that had read a part"
        assert gaps.record(Gap("monitor", "blocks", 1, "id", 5, 9, at(50)))
        gaps.close_past(at(20), 20_001)
        gaps.close_past(at(20), 20_000)
        gaps.close_past(at(21), 20_000)
        scope = RedisState(m.client, deployment_scope(m.config.log.group_prefix))
        events = [Alert.decode(raw) for raw in scope.entries("outbox", 0)]
        assert [(e.state, e.evidence["partition"]) for e in events] == [("open", 0), ("open", 1), ("close", 0)]
        assert events[0].dedup_key == events[2].dedup_key != events[1].dedup_key
        assert len({e.id for e in events}) == 3


def test_a_deployment_that_starts_at_the_latest_passes_the_labels_before_it(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on blocks was written for it; a partition that is added later is read from its start."""
    with monitored(redis_url, monkeypatch, partitions=1, log={"start": "latest"}) as m:
        m.traffic([A], 0, 20)
        before = m.log.end_offset(LABELS_0)
        m.start()
        m.until_applied(A)
        m.traffic([A], 20, 30, seed=2)
        m.grow("labels", 2)
        m.labels_clock(1, 30)
        m.until(lambda: len(recorded_inputs(m.state(A).store, 100)) == 3, "the partition to be registered")
        first = recorded_inputs(m.state(A).store, 100)
        assert first[m.input_key(LABELS_0)].next == before > 0
        assert first[m.input_key(BLOCKS_0)].next == 0
        assert first[m.input_key(TopicPartition("labels", 1))].next == 0
