"""What an answer of HTTP says about trying again."""

from __future__ import annotations

import email.utils
import re

_LATER = (408, 421, 425, 429)
"""Of 4xx, those that are about now and not about the message."""
_MAX_RETRY_AFTER_S = 86_400.0


def is_for_good(status: int) -> bool:
    """Whether the receiver will never take this message."""
    return 400 <= status < 500 and status not in _LATER


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Seconds that the header Retry-After asks for (RFC 9110, 10.2.3: seconds, or a date), at most a day; None where it
    is not there or neither of both. `now_s`: epoch seconds."""
    if header is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}", header.strip()):
        wanted_s = float(header)
    else:
        try:
            wanted_s = email.utils.parsedate_to_datetime(header).timestamp() - now_s
        except (ValueError, OverflowError):
            return None
    return min(max(wanted_s, 0.0), _MAX_RETRY_AFTER_S)
