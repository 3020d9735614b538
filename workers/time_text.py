"""Times as people read them."""

from __future__ import annotations

import time


def utc_minute(time_ms: int) -> str:
    """`2013-03-01 10:00` of epoch milliseconds, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time_ms / 1000))


def utc_of_pane(pane: int, pane_ms: int) -> str:
    """When a pane begins: `2013-03-01 10:00`, with seconds where panes are not whole minutes."""
    start = pane * pane_ms
    if pane_ms % 60_000 == 0:
        return utc_minute(start)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(start / 1000))


def age(milliseconds: int) -> str:
    """A duration as its largest unit: `0.4 s`, `12 s`, `5 min`, `3 h`, `2 d`."""
    seconds = milliseconds / 1000
    for limit, unit, name in ((10, 1, "s"), (100, 1, "s"), (6_000, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds:.1f} s" if limit == 10 else f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"
