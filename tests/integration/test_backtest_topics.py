"""Backtests of what a monitor has counted, over a log in memory and a real Redis: what retention took, partitions that
came and fell silent, damage."""

from __future__ import annotations

import pytest

from stream_calib.backtest.exact.verify import Verification
from stream_calib.errors import GenerationMismatchError, HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import Commit
from tests.oracle.offline import Label, Score
from tests.windows.monitors import A, B, Monitored, at, monitored
from workers.backtest_verify import replay_topics, verify_live

pytestmark = pytest.mark.services


def count_a_minute(m: Monitored) -> None:
    """Traffic of the key A, of which the first 40 s and more have matured."""
    m.clocks(0)
    m.traffic([A], 0, 60)
    m.clocks(70)
    m.start()
    m.until_matured(40, A)


def verified(m: Monitored, key: ModelKey = A) -> Verification:
    return verify_live(m.log, m.config, key, m.state(key).store)


def test_where_the_beginning_is_gone_the_rest_is_compared(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 200)
        m.clocks(210)
        m.start()
        m.until_matured(180, A, B)
        whole = verified(m)
        for topic in ("blocks", "labels"):
            for partition in range(2):
                m.operator.trim(m.at(topic, partition), m.end(topic, partition) // 3)
        rest = [verified(m, key) for key in (A, B)]
        live = m.cursor(A, "matured")
    assert (whole.differences, len(whole.left_out)) == ([], 1)
    assert whole.matured == live
    for one in rest:
        assert one.differences == []
        assert whole.first_pane + 5 < one.first_pane < live - 5
        assert one.matured == live
        assert "begins at" in one.left_out[0]
        assert one.left_out[1].startswith(f"cells of panes {whole.first_pane} to {one.first_pane - 1}")
        assert one.entries == 0


def test_nothing_is_left_of_what_has_matured(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch) as m:
        count_a_minute(m)
        for topic in ("blocks", "labels"):
            m.operator.trim(m.at(topic, 0), m.end(topic, 0))
        with pytest.raises(HistoryError, match="the log begins behind all panes that have matured"):
            verified(m)


def test_partitions_that_come_and_fall_silent(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a label partition brings after panes have matured without it is in no cell, live or replayed."""
    with monitored(redis_url, monkeypatch, windows={"idle_timeout": "100ms"}) as m:
        m.clocks(0)
        m.traffic([A], 0, 40)
        m.start()
        m.until_applied(A)
        m.grow("blocks", 3)
        m.grow("labels", 3)
        m.traffic([A], 40, 90, seed=2)
        m.scores(A, 2, *(Score(f"late-{n}", at(91), 0.4, ("x",)) for n in range(9)))
        m.clocks(150, ["blocks"])
        for partition in (0, 2):
            m.labels_clock(partition, 150)
        m.until_matured(120, A)
        m.labels(1, *(Label(f"late-{n}", at(92), 1) for n in range(9)))
        m.clocks(200)
        m.until_matured(180, A)
        found, blind = verified(m), replay_topics(m.log, m.config, A, None)
        pane = at(91) // 10_000
        record = m.record(A, pane)
    assert record.unlabelled >= 9
    assert record.cut
    assert found.differences == []
    assert found.left_out[0].startswith("counters of labels from pane ")
    # Without the live state nobody knows that they came too late.
    assert int(blind.history.matured(pane).unlabelled.sum()) <= record.unlabelled - 9


def test_a_cell_that_was_changed_is_named(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch) as m:
        count_a_minute(m)
        store, pane = m.state(A).store, m.cursor(A, "first_pane") + 2
        name = PaneNames.of(pane).matured
        (blob,) = store.blobs([name])
        cells = MaturedCells.unpack(blob or b"")
        labelled = int(cells.labelled.argmax())
        positives = cells.positives.copy()
        positives[labelled] = 1 - positives[labelled]
        changed = MaturedCells(
            cells.unit_bucket, cells.signature, cells.grid_bin, cells.labelled, positives, cells.unlabelled
        )
        store.commit(Commit(blobs={name: changed.pack()}))
        (value,) = store.signatures([int(cells.signature[labelled])]).values()
        first = verified(m).differences[0]
    assert (first.part, first.pane, first.also) == ("matured", pane, 0)
    assert first.where == f"unit bucket {cells.unit_bucket[labelled]}, {value[0]}, grid bin {cells.grid_bin[labelled]}"
    assert first.live != first.replayed


def test_a_state_of_another_configuration_is_refused(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitored(redis_url, monkeypatch) as m:
        count_a_minute(m)
        store = m.state(A).store
        m.config = m.config.model_copy(update={"windows": m.config.windows.model_copy(update={"horizon_ms": 20_000})})
        with pytest.raises(GenerationMismatchError, match="horizon_ms: 15000 -> 20000"):
            replay_topics(m.log, m.config, A, store)
