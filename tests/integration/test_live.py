"""Live records: clocks follow wall time, events of the future do not count, silent label partitions hold nothing up."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stream_calib.events.blocks import unpack
from stream_calib.events.control import is_control
from stream_calib.transport.port import Outgoing, Record
from tests.integration.expectation import check_blocks_name_their_snapshot, check_one_output_each
from tests.integration.findings import Findings, find
from tests.integration.harness import Overrides, deployment
from tests.oracle import offline

pytestmark = pytest.mark.services

SETTINGS: Overrides = {
    "serving": {"clock_records": "wall"},
    "windows": {
        "pane": "1s",
        "horizon": "3s",
        "score_lateness": "1s",
        "label_lateness": "1s",
        "max_clock_skew": "5s",
        "idle_timeout": "1s",
        "shards": 2,
    },
}
ATTRIBUTES = ("carrier", "origin", "dest")
SILENT = 3
"""The label partition that gets nothing."""


def _score(i: int, ts: int) -> bytes:
    return json.dumps(
        {
            "event_id": f"e{i}",
            "ts": ts,
            "score": (i % 97 + 1) / 99,
            "carrier": f"C{i % 3}",
            "origin": "EWR",
            "dest": "X",
        }
    ).encode()


def _label(i: int, ts: int) -> bytes:
    return json.dumps({"event_id": f"e{i}", "ts": ts, "label": i % 2}).encode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_live_records(tmp_path: Path) -> None:
    with deployment(tmp_path, SETTINGS) as deployed:
        for role in ("calibrate", "monitor", "monitor"):
            deployed.start(role)
        # From the first clock record on, there is a pane to wait for.
        deployed.until(lambda: deployed.fields()["first_pane"], "clock records on all partitions")
        for start in range(0, 600, 100):
            now = _now_ms()
            records = [Outgoing("scores", b"%d" % i, _score(i, now - i % 300)) for i in range(start, start + 100)]
            records += [
                Outgoing("labels", b"%d" % i, _label(i, now + 1 + i % 300), (), i % SILENT)
                for i in range(start, start + 100)
                if i % 5
            ]
            records += [
                Outgoing("scores", b"x", _score(9_000 + start, now + 60_000)),
                Outgoing("labels", b"x", _label(start + 1, now + 60_000), (), 0),
                Outgoing("labels", b"x", _label(start + 2, now - 60_000), (), 0),
                Outgoing("scores", b"x", _score(9_001 + start, now - 60_000)),
            ]
            deployed.log.produce(records)
            deployed.until(lambda n=now: _now_ms() >= n + 200, "a fifth of a second to pass")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults

        def label_and_look() -> bool:
            """Labels go on, of things that were never scored: without any, nothing may mature."""
            deployed.log.produce([Outgoing("labels", b"y", _label(99_999, _now_ms()), (), 0)])
            return deployed.cursor("matured") >= now // 1_000

        deployed.until(label_and_look, "the last pane with a score to mature")
        found = find(deployed)
    assert found.dead_letters == []
    check_one_output_each(found)
    check_blocks_name_their_snapshot(found)
    _check_panes(found)


def _check_panes(found: Findings) -> None:
    settings = offline.Settings(3_000, 1_000, 1_000, 1_000, 5_000)
    labels = [[_read_label(record) for record in part] for part in found.labels]
    expected = offline.compute([_score_log(found, p) for p in range(len(found.scores))], labels, settings)
    assert int(found.fields["first_pane"] or 0) == expected.first_pane
    for pane, cells in found.scored.items():
        assert cells == dict(expected.pane(pane).scored), pane
    for pane, matured in found.matured.items():
        assert matured == expected.pane(pane).matured, pane
    for kind, count in (("labelled", "labelled"), ("unlabelled", "unlabelled"), ("winners", "winners")):
        assert found.totals[kind] == expected.totals[count]
    classes = {
        "accepted": "scores_accepted",
        "score_late": "scores_late",
        "score_skewed": "scores_skewed",
        "matched": "labels_matched",
        "label_late": "labels_late",
        "label_skewed": "labels_skewed",
    }
    assert {mine: found.totals[mine] for mine in classes} == {
        mine: expected.totals[its] for mine, its in classes.items()
    }
    assert all(expected.totals[its] > 0 for its in classes.values()), expected.totals
    # The silent partition was left out, and the records of the panes say so.
    assert any(input_key.endswith(f":{SILENT}") for record in found.pane_records.values() for input_key in record.cut)


def _read_label(record: Record) -> offline.Label:
    return offline.read_label(record.value or b"")._replace(append_ms=record.append_time_ms)


def _score_log(found: Findings, partition: int) -> list[offline.Score | offline.Clock | offline.End]:
    """What the monitor read: scores in their order, with calibrate's clock records between the blocks."""
    waiting = [record for record in found.scores[partition] if not is_control(record)][::-1]
    log: list[offline.Score | offline.Clock | offline.End] = []
    for record in found.blocks[partition]:
        if is_control(record):
            log.append(offline.Clock(json.loads(record.value or b"")["clock_ms"]))
            continue
        for _ in unpack(record.value or b"").fingerprint:
            score = offline.read_score(waiting.pop().value or b"", ATTRIBUTES)
            log.append(score._replace(append_ms=record.append_time_ms))
    assert not waiting
    return log
