"""Control records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.events.contracts import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, ClockRecord, Reject, RejectReason
from stream_calib.events.control import clock_record, is_control, read_clock
from tests.unit.events.events_for_tests import T0, record

CLOCK = (("stream-calib-kind", b"clock"),)


@given(st.integers(MIN_EVENT_TIME_MS, MAX_EVENT_TIME_MS - 1), st.booleans())
def test_reads_what_it_writes(clock_ms: int, end: bool) -> None:
    value, headers = clock_record(clock_ms, end=end)
    written = record(value, headers=(("trace", b"x"), *headers))

    assert is_control(written)
    assert read_clock(written, 3) == ClockRecord(3, clock_ms, end)


def test_other_records_are_no_control_records() -> None:
    value, _ = clock_record(T0)

    assert not is_control(record(value))
    assert not is_control(record(value, headers=(("trace", b"clock"),)))


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"{", b"[]", b"{}", b'{"clock_ms":1714557600000}', b'{"clock_ms":1714557600000,"state":"over"}',
        b'{"clock_ms":1714557600000,"state":null}', b'{"clock_ms":1714557600000,"state":["end"]}',
        b'{"clock_ms":1714557600000.0,"state":"idle"}', b'{"clock_ms":true,"state":"idle"}',
        b'{"clock_ms":"1714557600000","state":"idle"}', b'{"clock_ms":1714557600,"state":"idle"}',
        b'{"clock_ms":1714557600000,"clock_ms":1714557600001,"state":"idle"}', b"\xff",
    ],
)  # fmt: skip
def test_bad_values_are_refused(value: bytes | None) -> None:
    refused = read_clock(record(value, headers=CLOCK), 1)

    assert isinstance(refused, Reject)
    assert refused[:2] == (1, RejectReason.CONTROL_INVALID)


@pytest.mark.parametrize("headers", [(("stream-calib-kind", b"clocks"),), CLOCK * 2, (("stream-calib-kind", b"\xff"),)])
def test_other_kinds_are_refused(headers: tuple[tuple[str, bytes], ...]) -> None:
    value, _ = clock_record(T0)

    assert isinstance(read_clock(record(value, headers=headers), 0), Reject)
