"""The scored cells of the newest closed panes: the traffic of now."""

from __future__ import annotations

from typing import NamedTuple

from stream_calib.windows.cells import EMPTY_SCORED, ScoredCells
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import StateStore


class RecentTraffic(NamedTuple):
    cells: ScoredCells
    signatures: dict[int, tuple[str, ...]]
    """Attribute values of the cells' signatures."""
    first_pane: int
    last_pane: int
    """Empty where it is below the first."""


def recent_traffic(state: StateStore, panes: int) -> RecentTraffic:
    """Sum of the newest `panes` closed panes; fewer where there are no more. Raises StateError where cells or
    signatures are damaged."""
    fields = state.read(("first_pane", "closed"))
    if not fields["first_pane"] or not fields["closed"]:
        return RecentTraffic(EMPTY_SCORED, {}, 0, -1)
    last = int(fields["closed"])
    first = max(int(fields["first_pane"]), last - panes + 1)
    blobs = state.blobs([PaneNames.of(pane).scored for pane in range(first, last + 1)])
    cells = ScoredCells.merge([ScoredCells.unpack(blob) for blob in blobs if blob is not None])
    return RecentTraffic(cells, state.signatures(set(cells.signature.tolist())), first, last)
