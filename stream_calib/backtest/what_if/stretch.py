"""Which panes and events of a history a fault is of."""

from __future__ import annotations

from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.what_if.faults import Injection
from stream_calib.errors import BacktestError


def stretch_of(history: CellHistory, injection: Injection) -> range:
    """The panes that begin within the stretch. Raises BacktestError where there is none."""
    pane_ms = history.pane_ms
    first = max(history.first_pane, -(-injection.from_ms // pane_ms))
    end = history.last_pane + 1
    if injection.until_ms is not None:
        end = min(end, -(-injection.until_ms // pane_ms))
    if first >= end:
        begin, over = (np.datetime64(pane * pane_ms, "ms") for pane in (history.first_pane, history.last_pane + 1))
        raise BacktestError(
            f"{injection}: no pane of the history begins there; it reaches from {begin.astype('datetime64[m]')} to"
            f" {over.astype('datetime64[m]')} UTC"
        )
    return range(first, end)


class EventGroup:
    """Which signatures are of the fault's group."""

    def __init__(self, history: CellHistory, injection: Injection) -> None:
        """Raises BacktestError where there is none."""
        self._signatures = np.sort(
            np.array(
                [
                    h
                    for h, values in history.signatures.items()
                    if all(values[m.place] == m.value for m in injection.group)
                ],
                dtype=np.uint64,
            )
        )
        if not len(self._signatures):
            raise BacktestError(
                f"{injection}: no event of the history is in that group{self._hint(history, injection)}"
            )

    def has(self, signature: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """(k,) of signatures (k,)."""
        place = np.minimum(np.searchsorted(self._signatures, signature), len(self._signatures) - 1)
        return np.asarray(self._signatures[place] == signature, dtype=np.bool_)

    @staticmethod
    def _hint(history: CellHistory, injection: Injection) -> str:
        for member in injection.group:
            known = sorted({values[member.place] for values in history.signatures.values()})
            if member.value not in known:
                near = get_close_matches(member.value, known, 3, 0.5) or known[:10]
                return f"; values of {member.attribute} are, among others: {', '.join(near)}"
        return ""
