"""Times, counts and figures as pages write them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

_MINUS, _ELLIPSIS, _SPACE = "\N{MINUS SIGN}", "\N{HORIZONTAL ELLIPSIS}", "\N{NO-BREAK SPACE}"
NONE = "\N{EN DASH}"
"""Where there is no figure."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def count_text(n: float) -> str:
    """`12,345`."""
    return f"{n:,.0f}"


def date_text(time_ms: int) -> str:
    """`1 March 2013` of epoch milliseconds, in UTC."""
    when = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{when.day} {when:%B %Y}"


def minute_text(time_ms: int) -> str:
    """`2013-03-01 10:00` of epoch milliseconds, in UTC."""
    return f"{_EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%d %H:%M}"


def figure_text(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else NONE


def signed_text(value: float | None, digits: int = 4) -> str:
    """With its sign, but for what rounds to 0; empty for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return NONE
    text = f"{value:+.{digits}f}"
    return text.replace("-", _MINUS) if float(text) else text[1:]


def percent_text(value: float, digits: int = 1) -> str:
    """A share: `24.3 %`."""
    return f"{100 * value:.{digits}f}{_SPACE}%" if math.isfinite(value) else NONE


def signed_percent_text(value: float, digits: int = 0) -> str:
    """A share with its sign: `+12 %`."""
    return f"{signed_text(100 * value, digits)}{_SPACE}%" if math.isfinite(value) else NONE


def shortened(text: str, most: int) -> str:
    """At most so many characters, with an ellipsis where some are left out."""
    return text if len(text) <= most else text[: most - 1] + _ELLIPSIS


def in_words(code: str) -> str:
    """A code, or a kind of alert, as people read it."""
    return code.replace("_", " ").replace("auc", "AUC")
