"""Reading the decision log from a StateStore together with other fields, consistently."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.errors import StateError
from stream_calib.snapshot.decision_log import DecisionLog, chain
from stream_calib.snapshot.folded_log import FoldedLog
from stream_calib.windows.state_store import StateStore

FOLDED = "folded:decisions"
"""The blob that stands for the entries that were dropped."""
_ATTEMPTS = 20
_FOLDS = 4
_LOOKED_AT_EVERY = 64
"""Entries: so often a process looks whether the store has dropped some that it still holds."""


def extended(state: StateStore, known: DecisionLog, tip: str | None, length: int) -> DecisionLog | None:
    """The log of `length` entries that lead to `tip`: `known`, extended; another one where `known` is not a part of it
    (the state was rolled back). None where the entries in the store do not lead there."""
    for attempt in range(_FOLDS):
        log = known if attempt == 0 else begun(state)
        raw = state.entries("decisions", log.length, length)
        if log.length + len(raw) == length and chain(log.tip, raw) == tip:
            looked_at = log.length // _LOOKED_AT_EVERY
            log.extend(raw)
            return log if length // _LOOKED_AT_EVERY == looked_at else _without_dropped(state, log)
        # Else entries were dropped between the two reads, or the log is another one.
    return None


def _without_dropped(state: StateStore, log: DecisionLog) -> DecisionLog:
    """The same log, begun where the store's begins by now: else a process would hold all that it has ever read."""
    shorter = begun(state)
    if not log.dropped < shorter.dropped <= log.length:
        return log
    shorter.extend(state.entries("decisions", shorter.length, log.length))
    return shorter if (shorter.length, shorter.tip) == (log.length, log.tip) else log


def begun(state: StateStore) -> DecisionLog:
    """The log without the entries that are kept."""
    (folded,) = state.blobs([FOLDED])
    return DecisionLog(None if folded is None else FoldedLog.decode(folded))


class LogReader:
    """Keeps the log read so far, as far as the store does, and reads only what is new. After the store went back it
    reads everything anew."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._log = DecisionLog()

    def read(self, names: Sequence[str] = ()) -> tuple[dict[str, str | None], DecisionLog]:
        """The named fields, with `tip` and `log_length`, as of one moment, and the log as of the same moment.

        The log is the same object, extended, as long as the store neither went back nor dropped entries. Raises
        StateError where the entries do not hash to the tip.
        """
        for _ in range(_ATTEMPTS):
            fields = self._state.read(list(dict.fromkeys(["tip", "log_length", *names])))
            log = extended(self._state, self._log, fields["tip"], int(fields["log_length"] or 0))
            if log is not None:
                self._log = log
                return fields, log
            # The store moved between the two reads.
        raise StateError("the decision log's entries do not hash to its tip; the model key's state is damaged")
