"""The unit of a numeric time was guessed from its size, so that some values landed in another decade, in silence; and a
sender changed from seconds to milliseconds.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, RejectReason
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.score_decoder import ScoreDecoder
from tests.unit.events.events_for_tests import config, record

GIVEN: list[Any] = [
    1_714_557_600,
    1_714_557_600_000,
    1_714_557_600_000_000,
    "1714557600000",
    20_000_000_001,
    19_999_999_999,
    -1,
]
RIGHT = 1_714_557_600_000
OUT, INVALID = RejectReason.TIME_OUT_OF_RANGE, RejectReason.TIME_INVALID
UNITS = {"s": 1_000, "ms": 1, "us": 0.001}


def read(values: list[Any], unit: str) -> list[int | RejectReason]:
    """Epoch milliseconds or the reason, for each; scores and labels agree."""
    time = {"time": {"path": "ts", "unit": unit}}
    records = [record({"event_id": "e", "ts": v, "score": 0.5, "label": 1}, i) for i, v in enumerate(values)]
    found: list[list[int | RejectReason]] = []
    configuration = config(scores=time, labels=time)
    for decoder in (ScoreDecoder(configuration), LabelDecoder(configuration)):
        decoded = decoder.decode(records)
        batch = decoded.scores or decoded.labels
        assert batch is not None
        one: dict[int, int | RejectReason] = {r.record_index: r.reason for r in decoded.rejects}
        one |= dict(zip(batch.record_index.tolist(), batch.event_time_ms.tolist(), strict=True))
        found.append([one[i] for i in range(len(values))])
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("s", [RIGHT, OUT, OUT, INVALID, OUT, OUT, OUT]),
        ("ms", [OUT, RIGHT, OUT, INVALID, OUT, OUT, OUT]),
        ("us", [OUT, OUT, RIGHT, INVALID, OUT, OUT, OUT]),
        ("iso8601", [INVALID] * 7),
    ],
)
def test_one_declared_unit_and_nothing_converted(unit: str, expected: list[int | RejectReason]) -> None:
    assert read(GIVEN, unit) == expected


@given(
    st.lists(st.one_of(st.integers(-(10**18), 10**18), st.floats(-1e18, 1e18)), min_size=1, max_size=8),
    st.sampled_from(list(UNITS)),
)
@settings(max_examples=80)
def test_a_time_is_itself_in_its_unit_or_refused(values: list[float], unit: str) -> None:
    for value, found in zip(values, read(values, unit), strict=True):
        if isinstance(found, RejectReason):
            assert found is OUT
            assert not MIN_EVENT_TIME_MS + 1 <= value * UNITS[unit] <= MAX_EVENT_TIME_MS - 1
        else:
            assert MIN_EVENT_TIME_MS <= found < MAX_EVENT_TIME_MS
            assert abs(found - value * UNITS[unit]) <= 1


@given(st.integers(MIN_EVENT_TIME_MS, MAX_EVENT_TIME_MS - 1), st.sampled_from(list(UNITS)))
@settings(max_examples=60)
def test_no_time_of_these_years_is_a_time_in_two_units(time_ms: int, unit: str) -> None:
    """What makes a wrong unit loud."""
    value = round(time_ms / UNITS[unit])
    assert [read([value], other)[0] for other in UNITS if other != unit] == [OUT, OUT]
