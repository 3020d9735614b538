"""The gate's rows: what is in the evidence, with the probabilities of what is served and of the candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.fit_input import CENTRE_SCORE
from stream_calib.calibration.groups import Signature, make_family
from stream_calib.calibration.maps.base_map import EDGES
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.gate import GateWindow
from stream_calib.refit.gate_rows import GateCells, GateTraffic
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import one_after_another, signature_values, trailing_cells
from stream_calib.refit.min_coverage import ALL_COVERED, Uncovered
from stream_calib.refit.row_weights import RowWeights
from stream_calib.refit.settings import DAY_MS
from stream_calib.snapshot.compiled import compile_snapshot, time_attributes
from stream_calib.snapshot.model import ResolvedSnapshot

_EDGE_SCORES: NDArray[np.float64] = expit(EDGES)
"""(402, 2) raw scores at the edges of the grid bins."""


@dataclass(frozen=True, slots=True)
class JudgedMap:
    """A map, and the derived attributes that follow the configured ones in its signatures."""

    served: ServedMap
    derived: TimeAttributes | None = None


def judged(snapshot: ResolvedSnapshot) -> JudgedMap:
    """What a version serves. Raises DamagedSnapshotError where its documents do not make a map."""
    return JudgedMap(compile_snapshot(snapshot), time_attributes(snapshot.structure))


def gate_cells(
    evidence: PastPanes,
    signatures: Signatures,
    config: Config,
    served: JudgedMap | None,
    candidate: JudgedMap,
    uncovered: Uncovered = ALL_COVERED,
) -> GateCells:
    """Labelled cells of the gate's buckets in the complete panes of the window. `served` None: the raw score.

    Groups that the candidate leaves out as uncovered are not judged as groups: that a shift which was fitted to their
    few labels is taken back is no harm. Their rows count as all others do. Days are counted back from the last pane, so
    that the window has no broken ones.
    """
    weights = RowWeights.of(config)
    plain = trailing_cells(evidence.gate_panes, signatures, None, weights, labelled_only=True)
    cells = plain.cells
    families = [uncovered.family(rule, cells.signatures) for rule in family_rules(config)]

    def at_centres(judged: JudgedMap) -> NDArray[np.float64]:
        own = cells
        if judged.derived is not None:
            own = trailing_cells(evidence.gate_panes, signatures, judged.derived, weights, labelled_only=True).cells
        return judged.served.at_centres(own.grid_bin, own.signature, own.signatures)

    return GateCells(
        day=_day(plain.pane, evidence, config),
        unit_bucket=plain.unit_bucket,
        labelled=plain.labelled_rows,
        positives=plain.positive_rows,
        served=CENTRE_SCORE[cells.grid_bin] if served is None else at_centres(served),
        candidate=at_centres(candidate),
        families=[family.of_cells(cells.signature) for family in families],
        weights=plain.weights,
    )


def gate_traffic(
    evidence: PastPanes, signatures: Signatures, config: Config, served: JudgedMap | None, candidate: JudgedMap
) -> GateTraffic:
    """Every score of the gate's buckets in the window, of incomplete panes too. `served` None: the raw score."""
    cells, pane = one_after_another(list(evidence.gate_panes))
    values, place, _ = signature_values(cells.signature, signatures, RowWeights.of(config))

    def at_edges(judged: JudgedMap) -> NDArray[np.float64]:
        own_place: NDArray[np.intp] = place
        own_values: list[Signature] = values
        if judged.derived is not None:
            own_place, own_values = judged.derived.extend(place, values, pane)
        return judged.served.at_edges(cells.grid_bin, own_place, own_values)

    return GateTraffic(
        day=_day(pane, evidence, config),
        unit_bucket=cells.unit_bucket,
        events=cells.labelled + cells.unlabelled,
        served=_EDGE_SCORES[cells.grid_bin] if served is None else at_edges(served),
        candidate=at_edges(candidate),
        families=[make_family(rule, values).of_cells(place) for rule in family_rules(config)],
    )


def gate_window(evidence: PastPanes, kind: Literal["structure", "level"], baseline: str | None) -> GateWindow:
    """The window that the evidence holds."""
    panes = evidence.gate_panes
    winners = sum(p.winners for p in panes)
    missing = sum(p.winners for p in panes if not p.complete)
    return GateWindow(
        kind=kind,
        baseline=baseline,
        first_pane=next(iter(panes)).pane if panes else evidence.first_pane,
        last_pane=evidence.last_pane,
        incomplete_panes=sum(not p.complete for p in panes),
        incomplete_share=missing / winners if winners else 0.0,
    )


def _day(pane: NDArray[np.int64], evidence: PastPanes, config: Config) -> NDArray[np.int64]:
    return np.asarray((evidence.last_pane - pane) * config.windows.pane_ms // DAY_MS, dtype=np.int64)
