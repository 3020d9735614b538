"""The reference that drift is measured by: statistics of the fit window, frozen in the snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import family_rule, make_family
from stream_calib.config import Config
from stream_calib.drift.psi_reference import reference_group
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.gate_evidence import JudgedMap
from stream_calib.refit.labelled import signature_values
from stream_calib.refit.residual_reference import watched
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.model import PsiGroupDocument, ReferenceDocument


def build_reference(
    evidence: PastPanes, candidate: JudgedMap, signatures: Signatures, config: Config
) -> ReferenceDocument:
    """Histograms of the winners of the fit buckets, trailing rates, and how outcomes vary around the candidate, frozen
    for the detectors.

    Watched: everything, and each attribute value (`__other__` apart) of at least `min_mass` of the decayed winners.
    """
    cells, windows = evidence.fit_cells(), list(evidence.windows)
    attributes = list(config.scores.attributes)
    signature = np.concatenate([cells.signature, *(w.winners.signature for w in windows)])
    values, place, inverse_rate = signature_values(signature, signatures, RowWeights.of(config))
    own, past = place[: len(cells.signature)], place[len(cells.signature) :]
    past_window = np.repeat(np.arange(len(windows)), [len(w.winners.n) for w in windows])
    past_cell = past_window * N_BINS + _concatenated([w.winners.grid_bin for w in windows])
    past_rows = _concatenated([w.winners.n for w in windows])
    # A score counts by its keep rate alone: it has no label yet. The noise that weights add is in the design effect.
    winners, past_weight = cells.winners * inverse_rate[: len(own)], past_rows * inverse_rate[len(own) :]

    def watch(
        attribute: str | None, value: str | None, histogram: NDArray[np.float64], past: NDArray[np.float64]
    ) -> PsiGroupDocument:
        counts = np.rint(past).astype(np.int64)
        made = reference_group(attribute, value, histogram, counts, config.drift.psi_bins)
        return PsiGroupDocument(
            attribute=attribute,
            value=value,
            last_bins=made.last_bins,
            rows=made.rows,
            design_effect=made.design_effect,
        )

    def histograms(group_of: NDArray[np.intp], n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each of n groups (n, N_BINS) decayed winners of the fit cells, and (n, windows, N_BINS) winners of the
        past; `group_of`: for each signature, -1 where it is in none."""
        size, past_bins = n + 1, len(windows) * N_BINS
        now = np.bincount((group_of[own] + 1) * N_BINS + cells.grid_bin, winners, size * N_BINS)
        before = np.bincount((group_of[past] + 1) * past_bins + past_cell, past_weight, size * past_bins)
        by_bin = now.astype(np.float64, copy=False).reshape(size, N_BINS)
        return by_bin[1:], before.astype(np.float64, copy=False).reshape(size, len(windows), N_BINS)[1:]

    (all_now,), (all_before,) = histograms(np.zeros(len(values), dtype=np.intp), 1)
    groups = [watch(None, None, all_now, all_before)]
    least = config.drift.min_mass * float(winners.sum())
    for name in attributes:
        family = make_family(family_rule((name,), attributes), values)
        mass = np.bincount(family.group_of[own] + 1, winners, len(family.keys) + 1)[1:]
        heavy = np.flatnonzero(mass >= least)
        number = np.full(len(family.keys) + 1, -1, dtype=np.intp)  # the last one for those in none
        number[heavy] = np.arange(len(heavy))
        of_groups = zip(*histograms(number[family.group_of], len(heavy)), strict=True)
        groups += [
            watch(name, family.keys[i][0], now, before)
            for i, (now, before) in zip(heavy.tolist(), of_groups, strict=True)
        ]
    panes = max(len(windows) * evidence.window_panes, 1)
    residual, selection = watched(evidence, candidate, signatures, config)
    return ReferenceDocument(
        scored_per_pane=float(past_rows.sum()) / panes,
        labelled_per_pane=sum(w.labelled for w in windows) / panes,
        psi_groups=tuple(groups),
        residual=residual,
        selection=selection,
    )


def _concatenated(columns: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64)
