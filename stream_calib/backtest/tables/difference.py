"""How the cells of tables differ from those of an exact replay, and what in the replay may be the reason."""

from __future__ import annotations

import msgspec

from stream_calib.backtest.history import CellHistory
from stream_calib.errors import HistoryError

REASONS = (
    "score_late",
    "score_skewed",
    "label_late",
    "label_skewed",
    "label_unsampled",
    "label_after_mature",
)
"""Classes of a replay whose records a table counts none the less: in a table nothing has an order."""


class CellDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the panes that are in both histories, unit buckets together. Figures are those of the tables less those of the
    replay."""

    panes: int
    """Panes whose cells differ."""
    first_pane: int | None
    """The first of them."""
    winners: int
    labelled: int
    positives: int
    reasons: dict[str, int]
    """REASONS with the replay's number of records, where there are any."""

    @property
    def explained(self) -> bool:
        """Whether no more winners or labels differ than there are records of a reason for it."""
        of_scores = sum(n for name, n in self.reasons.items() if name.startswith("score_"))
        all_of_them = sum(self.reasons.values())
        return (
            abs(self.winners) <= of_scores and abs(self.labelled) <= all_of_them and (not self.panes or all_of_them > 0)
        )


def difference_by_reason(replayed: CellHistory, table: CellHistory) -> CellDifference:
    """Raises HistoryError where the two are of different panes' lengths or have none in common, StateError where cells
    are damaged."""
    if replayed.pane_ms != table.pane_ms:
        raise HistoryError(f"panes of {replayed.pane_ms} ms and of {table.pane_ms} ms cannot be compared")
    first = max(replayed.first_pane, table.first_pane)
    last = min(replayed.last_matured, table.last_matured)
    if last < first:
        raise HistoryError("the two histories have no pane with final labels in common")
    differing, winners, labelled, positives = [], 0, 0, 0
    for pane in range(first, last + 1):
        one, other = (_by_cell(history, pane) for history in (replayed, table))
        if one == other:
            continue
        differing.append(pane)
        of_one, of_other = (tuple(map(sum, zip(*cells.values(), strict=True))) or (0, 0, 0) for cells in (one, other))
        labelled += of_other[0] - of_one[0]
        positives += of_other[1] - of_one[1]
        winners += of_other[0] + of_other[2] - of_one[0] - of_one[2]
    return CellDifference(
        panes=len(differing),
        first_pane=differing[0] if differing else None,
        winners=winners,
        labelled=labelled,
        positives=positives,
        reasons={name: replayed.counts[name] for name in REASONS if replayed.counts.get(name)},
    )


def _by_cell(history: CellHistory, pane: int) -> dict[tuple[int, int], tuple[int, int, int]]:
    """(signature, grid bin) -> labelled, positives, unlabelled."""
    cells = history.matured(pane)
    found: dict[tuple[int, int], tuple[int, int, int]] = {}
    columns = (cells.signature, cells.grid_bin, cells.labelled, cells.positives, cells.unlabelled)
    for signature, grid_bin, *counts in zip(*(column.tolist() for column in columns), strict=True):
        known = found.get((signature, grid_bin), (0, 0, 0))
        found[signature, grid_bin] = (known[0] + counts[0], known[1] + counts[1], known[2] + counts[2])
    return found
