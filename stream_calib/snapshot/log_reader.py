"""Reading the decision log from a StateStore together with other fields, consistently."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.errors import StateError
from stream_calib.snapshot.decision_log import DecisionLog, chain
from stream_calib.windows.state_store import StateStore

_ATTEMPTS = 20


class LogReader:
    """Keeps the log read so far and reads only what is new. After the store went back it reads everything anew."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._log = DecisionLog()

    def read(self, names: Sequence[str] = ()) -> tuple[dict[str, str | None], DecisionLog]:
        """The named fields, with `tip` and `log_length`, as of one moment, and the log as of the same moment.

        The log is the same object, extended, as long as the store did not go back. Raises StateError where the
        entries do not hash to the tip.
        """
        for _ in range(_ATTEMPTS):
            fields = self._state.read(list(dict.fromkeys(["tip", "log_length", *names])))
            length, before = int(fields["log_length"] or 0), self._log.length
            raw = self._state.entries("decisions", before, length) if length > before else []
            if before + len(raw) == length and chain(self._log.tip, raw) == fields["tip"]:
                self._log.extend(raw)
                return fields, self._log
            # The store went back (and perhaps on again), or it moved between the two reads.
            self._log = DecisionLog()
        raise StateError("the decision log's entries do not hash to its tip; the model key's state is damaged")
