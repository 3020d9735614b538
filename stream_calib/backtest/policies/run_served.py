"""How the probabilities that a policy served fared: the same for all of the same fits that publish the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.policies.run_columns import CellColumns
from stream_calib.backtest.policies.run_figures import (
    Fared,
    ServedColumns,
    auc_and_worst_group,
    day_figures,
    group_figures,
)
from stream_calib.backtest.policies.stepping import Publication
from stream_calib.calibration.fit_input import CENTRE_SCORE
from stream_calib.calibration.groups import FamilyRule
from stream_calib.refit.gate_evidence import JudgedMap
from stream_calib.refit.settings import DAY_MS
from stream_calib.snapshot.store import SnapshotStore


@dataclass(frozen=True, slots=True)
class Served:
    """What was published, from when on."""

    version: str
    decided: int
    """As in Publication; so the next."""
    serves_from: int
    structure_pane: int
    """Last pane that the structure was made from; with `level` this says what is served."""
    level: float
    last_pane: int
    """Last pane that the snapshot itself was made from."""

    @classmethod
    def of(cls, publication: Publication, store: SnapshotStore) -> Served:
        snapshot, last_pane = store.load(publication.version), store.document(publication.version).last_pane
        structure_pane, level = snapshot.structure.last_pane, snapshot.level
        return cls(publication.version, publication.decided, publication.serves_from, structure_pane, level, last_pane)

    def without_version(self) -> tuple[object, ...]:
        """The same for every policy of the same fits. (A version is a hash of all settings.)"""
        return self.decided, self.serves_from, self.structure_pane, self.level, self.last_pane


def fared(
    columns: CellColumns,
    served: Sequence[Served],
    maps: Sequence[JudgedMap],
    psi: NDArray[np.float64],
    rules: Sequence[FamilyRule],
    history: CellHistory,
    scored_from_day: int,
) -> Fared:
    """`maps`: of each that was served. `psi` (p,): as in ServedColumns."""
    pane_ms, raw = history.pane_ms, CENTRE_SCORE[columns.grid_bin]
    found = _served_columns(columns, raw, served, maps, pane_ms, psi)
    chosen = columns.of_panes(-(-scored_from_day * DAY_MS // pane_ms), history.last_pane + 1)
    auc, worst = auc_and_worst_group(columns, chosen, found.probability, rules)
    raw_auc, raw_worst = auc_and_worst_group(columns, chosen, raw, rules)
    return Fared(
        days=day_figures(columns, raw, found, pane_ms),
        groups=group_figures(columns, chosen, raw, found.probability, rules, pane_ms),
        worst_group_error_percent=worst,
        raw_worst_group_error_percent=raw_worst,
        auc=auc,
        raw_auc=raw_auc,
    )


def _served_columns(
    columns: CellColumns,
    raw: NDArray[np.float64],
    served: Sequence[Served],
    maps: Sequence[JudgedMap],
    pane_ms: int,
    psi: NDArray[np.float64],
) -> ServedColumns:
    """What the cells are served by the snapshots, each from its first pane to the next one's."""
    probability, identity = raw.copy(), np.ones(len(raw), dtype=bool)
    end = columns.first_pane + len(columns.scored)
    age_ms = np.full(len(columns.scored), np.nan)
    for i, (one, judged_map) in enumerate(zip(served, maps, strict=True)):
        first = one.serves_from
        until = min([end, *(later.serves_from for later in served[i + 1 :])])
        if first >= until:
            continue
        rows = columns.of_panes(first, until)
        probability[rows] = _at_centres(judged_map, columns, rows)
        identity[rows] = False
        age_ms[first - columns.first_pane : until - columns.first_pane] = (
            np.arange(first, until) - one.last_pane
        ) * pane_ms
    return ServedColumns(probability, identity, age_ms, psi)


def _at_centres(judged_map: JudgedMap, columns: CellColumns, rows: slice) -> NDArray[np.float64]:
    place, values = columns.signature[rows], columns.values
    if judged_map.derived is not None:
        place, extended = judged_map.derived.extend(place, values, columns.pane[rows])
        return judged_map.served.at_centres(columns.grid_bin[rows], place, extended)
    return judged_map.served.at_centres(columns.grid_bin[rows], place, values)
