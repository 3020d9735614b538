"""Control records: they move a partition's clock, and may close the partition. Used for scores, labels and blocks.

Header ``stream-calib-kind: clock``; value ``{"clock_ms": 1357034400000, "state": "idle"}``, or ``"end"`` to close.
"""

from __future__ import annotations

import json

from stream_calib.events.contracts import (
    CONTROL_HEADER,
    MAX_EVENT_TIME_MS,
    MIN_EVENT_TIME_MS,
    ClockRecord,
    Reject,
    RejectReason,
)
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.events.messages import shown
from stream_calib.transport.port import Record

_CLOCK = b"clock"
_decoder = JsonDecoder(max_record_bytes=1_000, max_depth=2)


def clock_record(clock_ms: int, *, end: bool = False) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Value and headers of a control record that moves the clock to `clock_ms` (epoch milliseconds)."""
    value = {"clock_ms": clock_ms, "state": "end" if end else "idle"}
    return json.dumps(value, separators=(",", ":")).encode(), ((CONTROL_HEADER, _CLOCK),)


def is_control(record: Record) -> bool:
    """Whether the record is for the machinery and not an event (nor a tombstone)."""
    return CONTROL_HEADER in dict(record.headers)


def read_clock(record: Record, record_index: int) -> ClockRecord | Reject:
    """The clock record, or why it is none; for records of which `is_control` is true."""
    kinds = [value for name, value in record.headers if name == CONTROL_HEADER]
    if kinds != [_CLOCK]:
        return _invalid(record_index, f"header {CONTROL_HEADER} is {shown(kinds)}; it must be clock, once")
    content = _decoder.decode(record.value or b"")
    if isinstance(content, BadJson):
        return _invalid(record_index, content.message)
    clock_ms, state = content.get("clock_ms"), content.get("state")
    if type(clock_ms) is not int or not MIN_EVENT_TIME_MS <= clock_ms < MAX_EVENT_TIME_MS:
        return _invalid(record_index, f"clock_ms is {shown(clock_ms)}; it must be epoch milliseconds in 2000-2099")
    if state not in ("idle", "end"):
        return _invalid(record_index, f"state is {shown(state)}; it must be idle or end")
    return ClockRecord(record_index, clock_ms, state == "end")


def _invalid(record_index: int, message: str) -> Reject:
    return Reject(record_index, RejectReason.CONTROL_INVALID, f"control record: {message}")
