"""Times as the users write them: the unit, the zone and a clock change move no event to another pane."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config import Config
from stream_calib.events.identity import signature_hash
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.transport.port import Record, TopicPartition
from stream_calib.windows.input_batch import EMPTY_LABELS, Records, judge_records
from stream_calib.windows.intake import Intake
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.read_inputs import _CODE
from stream_calib.windows.registration import inputs_of
from stream_calib.windows.row_codec import EMPTY_ROWS
from stream_calib.windows.shard_store import LabelRows, Mark, ScoreRows
from stream_calib.windows.walk import read_matured, read_scored

HOUR_MS = 3_600_000
S, L = "s:b:0", "l:t:0"
UNITS = ("ms", "s", "us", "iso8601")
START_MS = 1_714_521_600_000


def written(time_ms: int, unit: str) -> Any:
    """The time in the unit, as a producer writes it."""
    if unit == "iso8601":
        when = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms)
        return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"ms": time_ms, "s": time_ms / 1_000, "us": time_ms * 1_000}[unit]


def config(unit: str) -> Config:
    times = {"time": {"path": "at", "unit": unit}}
    return Config.model_validate(
        {
            "model": {"name": "m"},
            "scores": {"attributes": {"group": "g"}} | times,
            "labels": times,
            "windows": {"horizon": "2h", "max_clock_skew": "off", "shards": 2, "score_lateness": "6h"},
        }
    )


def records(topic: str, values: list[dict[str, Any]]) -> list[Record]:
    source = TopicPartition(topic, 0)
    return [Record(source, i, None, json.dumps(v).encode(), (), START_MS) for i, v in enumerate(values)]


def packed_panes(configured: Config, scores: list[dict[str, Any]], labels: list[dict[str, Any]]) -> dict[int, Any]:
    """Pane -> packed scored and matured cells, and counters: from JSON to cells, over shards in memory."""
    pane_settings = PaneSettings.of(configured)
    shards = MemoryShards(configured.windows.shards, pane_settings)
    inputs = inputs_of([S, L])

    def register() -> Any:
        shards.register(dict.fromkeys((S, L), Mark(0, None)), inputs)
        return inputs

    batch = ScoreDecoder(configured).decode(records("scores", scores)).scores
    found = LabelDecoder(configured).decode(records("labels", labels)).labels
    assert batch is not None
    assert found is not None
    hashes = np.array([signature_hash(s) for s in batch.signatures], dtype=np.uint64)
    n = len(batch.score)
    rows = ScoreRows(
        batch.fingerprint,
        batch.event_time_ms,
        batch.score,
        hashes[batch.signature_index],
        batch.unit_bucket,
        np.zeros(n, dtype=np.uint16),
        np.zeros(n, dtype=np.uint32),
        ("",),
    )
    named = LabelRows(found.fingerprint, found.event_time_ms, _CODE[found.label + 1])
    intake = Intake(shards, register)
    for key, taken, index in ((S, rows, batch.record_index), (L, named, found.record_index)):
        ended = np.array([len(index)], dtype=np.intp)
        intake.apply(
            [
                judge_records(
                    key,
                    Records(
                        0,
                        len(index) + 1,
                        np.arange(len(index) + 1),
                        np.full(len(index) + 1, START_MS, dtype=np.int64),
                        taken if len(index) else (EMPTY_ROWS if key == S else EMPTY_LABELS),
                        index,
                        ended,
                        np.array([ENDED_CLOCK_MS], dtype=np.int64),
                    ),
                    None,
                    shards.count,
                    pane_settings,
                )
            ]
        )
    panes = {}
    for pane in sorted({int(t) // pane_settings.pane_ms for t in batch.event_time_ms}):
        scored, matured = read_scored(shards, pane, inputs), read_matured(shards, pane, inputs, {})
        assert scored is not None
        assert matured is not None
        panes[pane] = scored.pack(), matured.cells.pack(), matured.counts
    return panes


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4 * HOUR_MS),
            st.integers(-HOUR_MS // 4, 3 * HOUR_MS),
            st.sampled_from(["a", "b"]),
            st.sampled_from([0, 1, None]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_same_events_in_every_unit_give_the_same_cells(events: list[tuple[int, int, str, int | None]]) -> None:
    """To the millisecond: seconds as float64 too, which are rounded and not cut."""
    found = []
    for unit in UNITS:
        scores = [
            {"event_id": str(i), "score": 0.25, "at": written(START_MS + at, unit), "g": group}
            for i, (at, _, group, _) in enumerate(events)
        ]
        labels = [
            {"event_id": str(i), "label": label, "at": written(START_MS + at + later, unit)}
            for i, (at, later, _, label) in enumerate(events)
        ]
        found.append(packed_panes(config(unit), scores, labels))
    assert sum(counts.get("accepted", 0) for _, _, counts in found[0].values()) > 0
    assert found[0] == found[1] == found[2] == found[3]


def test_a_wrong_unit_is_refused_and_moves_no_event_to_another_decade() -> None:
    for unit in ("s", "us", "iso8601"):
        decoded = ScoreDecoder(config(unit)).decode(
            records("scores", [{"event_id": "a", "score": 0.5, "at": START_MS}])
        )
        assert [reject.reason.value for reject in decoded.rejects] in (["time_out_of_range"], ["time_invalid"])


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def host_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_events_around_a_clock_change_each_have_their_own_pane_whatever_the_hosts_zone(host_zone: str) -> None:
    """Rows in a wrong bucket, or every later one shifted, by arithmetic in local time (case 18)."""
    assert os.environ["TZ"] == host_zone
    texts = [
        ("2024-05-01T10:59:59.999Z", "2024-05-01 10"),
        ("2024-05-01T11:00:00.000Z", "2024-05-01 11"),
        ("2024-05-01T13:00:00+02:00", "2024-05-01 11"),
        ("2024-11-03T01:30:00-04:00", "2024-11-03 05"),  # the hour that comes twice in New York, the first time
        ("2024-11-03T01:30:00-05:00", "2024-11-03 06"),  # and the second
        ("2024-11-03T01:59:59.999-04:00", "2024-11-03 05"),
        ("2024-11-03T01:00:00-05:00", "2024-11-03 06"),
        ("2024-03-10T01:59:59.999-05:00", "2024-03-10 06"),  # the hour that is skipped in spring
        ("2024-03-10T03:00:00-04:00", "2024-03-10 07"),
        ("2024-03-10 07:00", "2024-03-10 07"),  # without a zone: UTC
        ("2024-11-03T10:59:59.999+05:30", "2024-11-03 05"),
    ]
    texts.sort(key=lambda pair: pair[1])
    scores = [{"event_id": str(i), "score": 0.5, "at": text} for i, (text, _) in enumerate(texts)]
    wanted: dict[str, int] = {}
    for _, hour in texts:
        wanted[hour] = wanted.get(hour, 0) + 1
    panes = packed_panes(config("iso8601"), scores, [])
    found = {
        (datetime(1970, 1, 1) + timedelta(hours=pane)).strftime("%Y-%m-%d %H"): counts["winners"]
        for pane, (_, _, counts) in panes.items()
    }
    assert found == wanted


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_hour_of_day_follows_the_zone_over_both_clock_changes_whatever_the_hosts_zone(
    host_zone: str, zone: str
) -> None:
    half_hour_ms = HOUR_MS // 2
    attributes = TimeAttributes(("hour_of_day", "day_of_week"), zone, half_hour_ms)
    hours = []
    for around in ("2024-03-10T00:00", "2024-03-31T00:00", "2024-04-06T12:00", "2024-10-05T12:00", "2024-11-03T00:00"):
        first = round(datetime.fromisoformat(around + "+00:00").timestamp() * 1_000) // half_hour_ms
        for pane in range(first, first + 48):
            local = datetime.fromtimestamp(pane * half_hour_ms / 1_000, ZoneInfo(zone))
            day = local.strftime("%a").lower()
            hour, weekday = attributes.of_pane(pane)
            assert (hour, weekday.lower()[:3]) == (f"{local.hour:02d}", day)
            hours.append(hour)
    if zone == "America/New_York":
        night = hours[-48:]
        assert night.count("01") == 4, "the hour that comes twice has four half hours"
        assert "02" not in hours[8:18], "the hour that is skipped has none"
