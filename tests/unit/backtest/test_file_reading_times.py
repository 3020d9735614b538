"""Columns of ISO 8601 texts are read as `iso8601_ms` reads each."""

from __future__ import annotations

import numpy as np
import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_calib.backtest.files import reading_times
from stream_calib.backtest.files.reading_times import NO_TIME, iso_milliseconds
from stream_calib.backtest.files.reading_values import texts_of
from stream_calib.events.event_times import iso8601_ms

DATES = st.sampled_from(
    [
        "2024-05-01",
        "2024-02-29",
        "2023-02-29",
        "2100-02-29",
        "2000-02-29",
        "0000-01-01",
        "0001-01-01",
        "9999-12-31",
        "2024-13-01",
        "2024-00-10",
        "2024-04-31",
        "2024-12-31",
        "1969-12-31",
        "2024/05/01",
        "2o24-05-01",
        "2024-05-0 ",
    ]
)
CLOCKS = st.sampled_from(
    [
        "",
        "T10:00:00",
        "t23:59:59",
        " 00:00:00",
        "T24:00:00",
        "T10:60:00",
        "T10:00:60",
        "T10:00",
        "T10",
        "_10:00:00",
        "T1o:00:00",
        "T10-00:00",
        "T10:00-00",
        "T10:00:0x",
    ]
)
FRACTIONS = st.sampled_from(["", ".", ".1", ",12", ".123", ".123456789", ".9999", ".1x", ".:", ".12345678901234567890"])
ZONES = st.sampled_from(["", "Z", "z", "+02:00", "-11:30", "+23:59", "+24:00", "+02:60", "+0200", "-02", "+2:00", "ZZ"])
TEXTS = st.one_of(st.builds("{}{}{}{}".format, DATES, CLOCKS, FRACTIONS, ZONES), st.text(max_size=30))


def columns(texts: list[str]) -> list[int | None]:
    found = iso_milliseconds(*texts_of(pyarrow.array(texts, type=pyarrow.string())))
    return [None if ms == NO_TIME else ms for ms in found.tolist()]


@settings(max_examples=120, deadline=None)
@given(st.lists(TEXTS, max_size=20))
@example(["2024-05-01T10:00:00Z"] * 3)
@example(["é"])
def test_a_column_is_read_as_its_texts_are(texts: list[str]) -> None:
    assert columns(texts) == [iso8601_ms(text) for text in texts]


def test_a_part_of_an_array_is_read_from_its_own_place() -> None:
    array = pyarrow.array(["2024-05-01", "2024-05-02T00:00:00Z", None, "2024-05-03"])

    found = iso_milliseconds(*texts_of(array.slice(1, 3)))

    assert [None if ms == NO_TIME else ms for ms in found.tolist()] == [
        iso8601_ms("2024-05-02"),
        None,
        iso8601_ms("2024-05-03"),
    ]


@pytest.mark.parametrize(
    "text", ["2024-05-01", "2024-05-01T10:00:00", "2024-05-01 10:00:00.123456Z", "2024-05-01T10:00:00.5+02:00"]
)
def test_usual_layouts_are_not_read_one_by_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = iso8601_ms(text)
    monkeypatch.setattr(reading_times, "iso8601_ms", None)

    assert columns([text, text]) == [expected, expected]


def test_every_day_of_two_leap_cycles_is_the_right_one() -> None:
    days = np.arange(np.datetime64("1970-01-01"), np.datetime64("2110-01-01"))

    found = columns(np.datetime_as_string(days).tolist())

    assert found == (days.astype(np.int64) * 86_400_000).tolist()
