"""How many records a poll may bring, so that it is worked off well within the session timeout."""

from __future__ import annotations

_ROWS_A_POLL = 100_000
_MAX_RECORDS, _FEWEST_RECORDS = 5_000, 100


class PollSize:
    """Begins small: a record of `blocks` holds one row or a thousand, and the last poll says which."""

    def __init__(self) -> None:
        self.records = _FEWEST_RECORDS

    def learn(self, records: int, rows: int) -> None:
        """What the last poll brought. One without records or rows says nothing."""
        if records and rows:
            self.records = min(max(_ROWS_A_POLL * records // rows, _FEWEST_RECORDS), _MAX_RECORDS)
