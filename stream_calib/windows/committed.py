"""What was committed of a model key, read back for the closer: cursors, cells, pane records, decision log.

Cells that this process has made are kept until the step asks for them, which it does once. Scored cells are a pure
function of the logs, so they cannot go stale; matured cells and the decision log can (a state that was rolled back is
derived again, perhaps with another cut), so they are checked by their hash chains.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from stream_calib.errors import StateError
from stream_calib.snapshot.decision_log import DecisionLog
from stream_calib.snapshot.log_reader import extended
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.pane_record import PaneNames, PaneRecord, decode_record
from stream_calib.windows.registration import INPUTS, inputs_of, recorded_inputs
from stream_calib.windows.shard_store import Inputs
from stream_calib.windows.state_store import StateStore

_CACHED_CELLS = 1_000_000
"""Of each kind, while no decision is taken: some tens of megabytes. What is not kept is read again."""

Value = TypeVar("Value")


class Cursors(NamedTuple):
    """Where the model key is, read at one moment."""

    first_pane: int
    closed: int
    matured: int
    decided: int
    matured_chain: str
    """Chain hash of the matured cells up to `matured`."""
    tip: str | None
    log_length: int
    inputs: int | None
    """How many inputs are registered: the watermarks are minima over exactly these."""

    def expect(self, *names: str) -> dict[str, str | None]:
        """The named fields as expectations of a commit."""
        return {name: None if (value := getattr(self, name)) is None else str(value) for name in names}


class Committed:
    """Reads one model key's state."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._log = DecisionLog()
        self._inputs = Inputs((), ())
        self._scored = _Newest[ScoredCells]()
        self._matured = _Newest[tuple[MaturedCells, str]]()

    def cursors(self) -> Cursors | None:
        """None before the generation's first pane is known."""
        return self.cursors_and_detector()[0]

    def cursors_and_detector(self) -> tuple[Cursors | None, str | None]:
        """The cursors and the step's carried state, of one moment."""
        found = self._state.read((*Cursors._fields, "detector"))
        if found["first_pane"] is None:
            return None, None
        first_pane, closed, matured, decided = (
            int(found[name] or 0) for name in ("first_pane", "closed", "matured", "decided")
        )
        chain_hash, length = found["matured_chain"] or "", int(found["log_length"] or 0)
        inputs = None if found["inputs"] is None else int(found["inputs"])
        return (
            Cursors(first_pane, closed, matured, decided, chain_hash, found["tip"], length, inputs),
            found["detector"],
        )

    def kept_from(self, at: Cursors) -> int:
        """The oldest pane whose blobs are kept."""
        kept = kept_of(self._state.read((KEPT, "first_pane")))
        return at.first_pane if kept is None else kept.first_pane

    def registered(self) -> int | None:
        """How many inputs are registered now."""
        found = self._state.read((INPUTS,))[INPUTS]
        return None if found is None else int(found)

    def inputs(self, count: int | None) -> Inputs:
        """The first `count` registered inputs."""
        if len(self._inputs.scores) + len(self._inputs.labels) != (count or 0):
            self._inputs = inputs_of(recorded_inputs(self._state, count or 0))
        return self._inputs

    def decision_log(self, at: Cursors) -> DecisionLog:
        """The log as it is at the cursors. StateError where the entries do not lead to its tip."""
        log = extended(self._state, self._log, at.tip, at.log_length)
        if log is None:
            raise StateError(
                f"the {at.log_length} entries of the decision log do not lead to its tip {at.tip}: the model key's"
                " state is damaged; restore it from a backup"
            )
        self._log = log
        return log

    def scored_cells(self, pane: int) -> ScoredCells:
        """Scored cells of a closed pane, which are not kept any longer."""
        known = self._scored.take(pane)
        return known if known is not None else ScoredCells.unpack(self._blob(PaneNames.of(pane).scored))

    def matured_cells(self, pane: int) -> tuple[MaturedCells, str]:
        """Matured cells of a pane, which are not kept any longer, and the chain hash up to it."""
        record = self.record(pane)
        known = self._matured.take(pane)
        if known is None or known[1] != record.chain:
            known = MaturedCells.unpack(self._blob(PaneNames.of(pane).matured)), record.chain
        return known

    def record(self, pane: int) -> PaneRecord:
        """The record of a matured pane."""
        return decode_record(self._blob(PaneNames.of(pane).record))

    def remember_scored(self, pane: int, cells: ScoredCells) -> None:
        self._scored.keep(pane, cells, len(cells.signature))

    def remember_matured(self, pane: int, cells: MaturedCells, chain_hash: str) -> None:
        self._matured.keep(pane, (cells, chain_hash), len(cells.signature))

    def _blob(self, name: str) -> bytes:
        (blob,) = self._state.blobs([name])
        if blob is None:
            raise StateError(
                f"blob {name} is missing although its pane was committed: the model key's state is damaged; restore it"
                " from a backup"
            )
        return blob


class _Newest(Generic[Value]):
    """What was kept last of panes, as long as it has few enough cells together."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Value, int]] = OrderedDict()
        self._cells = 0

    def take(self, pane: int) -> Value | None:
        """None where it is not kept; from now on it is not."""
        found, size = self._kept.pop(pane, (None, 0))
        self._cells -= size
        return found

    def keep(self, pane: int, value: Value, cells: int) -> None:
        """In place of what was kept of the pane."""
        size = cells + 1  # empty panes are not for nothing
        _, before = self._kept.pop(pane, (None, 0))
        self._kept[pane] = value, size
        self._cells += size - before
        while self._cells > _CACHED_CELLS and len(self._kept) > 1:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._cells -= dropped
