"""The gate's rows: what is in the evidence, with the probabilities of what is served and of the candidate."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS
from stream_calib.calibration.groups import make_family
from stream_calib.calibration.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.gate import GateCells, GateGroups, GateWindow
from stream_calib.refit.groups import family_rules, signature_values
from stream_calib.windows.cells import EMPTY_MATURED, MaturedCells

_DAY_MS = 86_400_000

RAW_AT_CENTRES = expit(CENTRE_LOG_ODDS)
"""(402,) raw scores at the centres of the grid bins; the outer bins are exactly 0 and 1."""
RAW_AT_CENTRES[[0, -1]] = 0.0, 1.0


def gate_cells(
    evidence: Evidence, signatures: Signatures, config: Config, served: ServedMap | None, candidate: ServedMap
) -> GateCells:
    """Labelled cells of the gate's buckets in the complete panes of the window. `served` None: the raw score.

    Days are counted back from the last pane, so that the window has no broken ones.
    """
    panes = [p for p in evidence.gate_panes if p.complete]
    cells = EMPTY_MATURED
    pane_of = np.empty(0, np.int64)
    if panes:
        columns = (np.concatenate([getattr(p.cells, name) for p in panes]) for name in MaturedCells.__slots__)
        cells = MaturedCells(*columns)
        pane_of = np.repeat([p.pane for p in panes], [len(p.cells.labelled) for p in panes]).astype(np.int64)
    values, place = signature_values(cells.signature, signatures(np.unique(cells.signature).tolist()))
    families = [make_family(rule, values) for rule in family_rules(config)]
    return GateCells(
        day=(evidence.last_pane - pane_of) * config.windows.pane_ms // _DAY_MS,
        unit_bucket=cells.unit_bucket,
        labelled=cells.labelled,
        positives=cells.positives,
        served=(RAW_AT_CENTRES[cells.grid_bin] if served is None else served.at_centres(cells.grid_bin, place, values)),
        candidate=candidate.at_centres(cells.grid_bin, place, values),
        families=[GateGroups(family.names, family.group_of[place]) for family in families],
    )


def gate_window(evidence: Evidence, kind: Literal["structure", "level"], baseline: str | None) -> GateWindow:
    """The window that the evidence holds."""
    panes = evidence.gate_panes
    winners = sum(p.winners for p in panes)
    missing = sum(p.winners for p in panes if not p.complete)
    return GateWindow(
        kind=kind,
        baseline=baseline,
        first_pane=panes[0].pane if panes else evidence.first_pane,
        last_pane=evidence.last_pane,
        incomplete_panes=sum(not p.complete for p in panes),
        incomplete_share=missing / winners if winners else 0.0,
    )
