"""The scored cells of the newest closed panes: the traffic of now."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_calib.windows.cells import EMPTY_SCORED, ScoredCells
from stream_calib.windows.pane_record import PaneNames
from stream_calib.windows.state_store import StateStore


class RecentTraffic(NamedTuple):
    cells: ScoredCells
    """Of one pane after the other."""
    pane: NDArray[np.int64]
    """(k,) pane of each cell."""
    signatures: dict[int, tuple[str, ...]]
    """Attribute values of the cells' signatures."""
    first_pane: int
    last_pane: int
    """Empty where it is below the first."""


NO_TRAFFIC = RecentTraffic(EMPTY_SCORED, np.empty(0, np.int64), {}, 0, -1)


def recent_traffic(state: StateStore, panes: int) -> RecentTraffic:
    """The newest `panes` closed panes; fewer where there are no more. Raises StateError where cells or signatures are
    damaged."""
    fields = state.read(("first_pane", "closed"))
    if not fields["first_pane"] or not fields["closed"]:
        return NO_TRAFFIC
    last = int(fields["closed"])
    first = max(int(fields["first_pane"]), last - panes + 1)
    numbers = range(first, last + 1)
    blobs = state.blobs([PaneNames.of(pane).scored for pane in numbers])
    found = {pane: ScoredCells.unpack(blob) for pane, blob in zip(numbers, blobs, strict=True) if blob is not None}
    columns = (
        np.concatenate([getattr(EMPTY_SCORED, name), *(getattr(cells, name) for cells in found.values())])
        for name in ScoredCells.__slots__
    )
    cells = ScoredCells(*columns)
    pane = np.repeat(np.array(list(found), dtype=np.int64), np.array([len(c.n) for c in found.values()], dtype=np.intp))
    return RecentTraffic(cells, pane, state.signatures(set(cells.signature.tolist())), first, last)
