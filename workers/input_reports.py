"""Where the monitors stand with each input: who must wait for whom, and which label partitions are idle. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class InputReport(NamedTuple):
    """One input as the monitor that reads it sees it."""

    position: int
    clock_ms: int | None
    idle_since_ms: int | None
    """Since when it has been read to its end, wall time; None: it has unread records."""


def too_far_ahead(reports: Mapping[str, InputReport], max_input_skew_ms: int) -> frozenset[str]:
    """Inputs to pause: more than `max_input_skew_ms` ahead of the slowest other one that has unread records.

    An input that has been read to its end holds up nobody, or all would wait for its next record.
    """
    unread = sorted(
        (-1 if r.clock_ms is None else r.clock_ms, i) for i, r in reports.items() if r.idle_since_ms is None
    )
    paused = set()
    for input_key, report in reports.items():
        slowest = next((clock for clock, other in unread if other != input_key), None)
        if slowest is not None and report.clock_ms is not None and report.clock_ms > slowest + max_input_skew_ms:
            paused.add(input_key)
    return frozenset(paused)


def idle_label_inputs(reports: Mapping[str, InputReport], now_ms: int, idle_timeout_ms: int) -> dict[str, int]:
    """Label inputs to leave out of the minimum -> their end positions.

    One is left out after `idle_timeout_ms` at its end, while another label input is ahead of it.
    """
    clocks = {i: -1 if r.clock_ms is None else r.clock_ms for i, r in reports.items() if i.startswith("l:")}
    return {
        i: reports[i].position
        for i, clock in clocks.items()
        if (since := reports[i].idle_since_ms) is not None
        and now_ms - since >= idle_timeout_ms
        and any(other > clock for other in clocks.values())
    }
