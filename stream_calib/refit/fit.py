"""Fitting a candidate from the evidence: base map, joint offsets, level, and the reference that drift is measured
by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import family_rule, make_family
from stream_calib.calibration.joint_fit import fit_joint
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.level import fit_level
from stream_calib.config import Config
from stream_calib.drift.psi_reference import reference_group
from stream_calib.drift.psi_window import Signatures
from stream_calib.errors import TooFewPositivesError, TooFewRowsError
from stream_calib.refit.decayed_counts import FitCells
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.groups import family_rules, signature_values
from stream_calib.snapshot.compiled import base_document, build_map
from stream_calib.snapshot.model import (
    BaseMapDocument,
    FamilyDocument,
    OffsetDocument,
    PsiGroupDocument,
    ReferenceDocument,
    StructureSnapshot,
)


@dataclass(frozen=True, slots=True)
class StructureFit:
    """The fitted parts of a structure snapshot, as documents."""

    base: BaseMapDocument
    families: tuple[FamilyDocument, ...]
    level: float
    reference: ReferenceDocument


def fit_structure(evidence: Evidence, signatures: Signatures, config: Config) -> StructureFit:
    """Fits everything. A pure function of the evidence, the dictionary and the configuration.

    GIRB on the counts of all groups together, then offsets of every configured attribute and intersection on top of it,
    jointly, then the level on the counts of the shorter half-life. Raises TooFewRowsError, TooFewPositivesError, or
    another of the FitError family.
    """
    # Here, because scikit-learn takes most of a second to import, and the other roles never fit.
    from stream_calib.calibration.girb import GIRB

    _check_enough(evidence, config)
    cells = _labelled(evidence.counts.cells())
    values, place = signature_values(cells.signature, signatures(np.unique(cells.signature).tolist()))
    calibration = config.calibration
    base = (
        GIRB(
            n_groups=calibration.score_groups,
            prior_strength=calibration.prior_strength,
            p_min=config.serving.p_min,
        )
        .fit_cells(
            np.bincount(cells.grid_bin, cells.labelled, N_BINS), np.bincount(cells.grid_bin, cells.positives, N_BINS)
        )
        .base_map()
    )
    families = [make_family(rule, values) for rule in family_rules(config)]
    labelled_cells = LabelledCells(values, place, cells.grid_bin, cells.labelled, cells.positives)
    joint = fit_joint(labelled_cells, base, families, ridge=calibration.offset_ridge)
    documents = tuple(
        FamilyDocument(
            attributes=shift.rule.attributes,
            offsets=tuple(OffsetDocument(values=key, offset=offset) for key, offset in shift.offsets.items()),
        )
        for shift in joint.shifts
    )
    base_parts = base_document(base)
    level = _fit_level(cells, base_parts, documents, values, place, config)
    return StructureFit(base_parts, documents, level, build_reference(evidence, signatures, config))


def refit_level(evidence: Evidence, signatures: Signatures, structure: StructureSnapshot, config: Config) -> float:
    """The common offset on top of a structure as it is. Raises as `fit_structure`."""
    _check_enough(evidence, config)
    cells = _labelled(evidence.counts.cells())
    values, place = signature_values(cells.signature, signatures(np.unique(cells.signature).tolist()))
    return _fit_level(cells, structure.base, structure.families, values, place, config)


def _fit_level(
    cells: FitCells,
    base: BaseMapDocument,
    families: Sequence[FamilyDocument],
    values: list[tuple[str, ...]],
    place: NDArray[np.intp],
    config: Config,
) -> float:
    attributes = list(config.scores.attributes)
    unlevelled = build_map(attributes, base, families, 0.0, config.serving.p_min)
    p = unlevelled.at_centres(cells.grid_bin, place, values)
    return fit_level(
        np.log(p) - np.log1p(-p), cells.level_labelled, cells.level_positives, prior=config.calibration.level_prior
    )


def build_reference(evidence: Evidence, signatures: Signatures, config: Config) -> ReferenceDocument:
    """Histograms of the winners of the fit buckets, and trailing rates, frozen for the detectors.

    Watched: everything, and each attribute value (`__other__` apart) of at least `min_mass` of the decayed winners.
    """
    cells, windows = evidence.counts.cells(), list(evidence.windows)
    attributes = list(config.scores.attributes)
    signature = np.concatenate([cells.signature, *(w.winners.signature for w in windows)])
    values, place = signature_values(signature, signatures(np.unique(signature).tolist()))
    own, past = place[: len(cells.signature)], place[len(cells.signature) :]
    past_window = np.repeat(np.arange(len(windows)), [len(w.winners.n) for w in windows])
    past_cell = past_window * N_BINS + _concatenated([w.winners.grid_bin for w in windows])
    past_rows = _concatenated([w.winners.n for w in windows])

    def watch(attribute: str | None, value: str | None, member: NDArray[np.bool_]) -> PsiGroupDocument:
        inside, before = member[own], member[past]
        histogram = np.bincount(cells.grid_bin[inside], cells.winners[inside], N_BINS).astype(np.float64)
        counts = np.bincount(past_cell[before], past_rows[before], len(windows) * N_BINS).astype(np.int64)
        made = reference_group(attribute, value, histogram, counts.reshape(-1, N_BINS), config.drift.psi_bins)
        return PsiGroupDocument(
            attribute=attribute,
            value=value,
            last_bins=made.last_bins,
            rows=made.rows,
            design_effect=made.design_effect,
        )

    groups = [watch(None, None, np.ones(len(values), dtype=bool))]
    least = config.drift.min_mass * float(cells.winners.sum())
    for name in attributes:
        family = make_family(family_rule((name,), attributes), values)
        mass = np.bincount(family.group_of[own] + 1, cells.winners, len(family.keys) + 1)[1:]
        for i in np.flatnonzero(mass >= least).tolist():
            groups.append(watch(name, family.keys[i][0], family.group_of == i))
    panes = max(len(windows) * evidence.window_panes, 1)
    return ReferenceDocument(
        scored_per_pane=float(past_rows.sum()) / panes,
        labelled_per_pane=sum(w.labelled for w in windows) / panes,
        psi_groups=tuple(groups),
    )


def _concatenated(columns: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64)


def _labelled(cells: FitCells) -> FitCells:
    """The cells with labelled rows at either time scale."""
    chosen = (cells.labelled > 0) | (cells.level_labelled > 0)
    columns = (getattr(cells, name)[chosen] for name in FitCells.__slots__)
    return FitCells(*columns)


def _check_enough(evidence: Evidence, config: Config) -> None:
    rows, positives = evidence.fit_rows, evidence.fit_positives
    if rows < config.refit.min_rows:
        raise TooFewRowsError(f"{rows} labelled rows in the fit buckets; refit.min_rows = {config.refit.min_rows}")
    if min(positives, rows - positives) < config.refit.min_positives:
        least = config.refit.min_positives
        raise TooFewPositivesError(f"{positives} positives of {rows} rows; refit.min_positives = {least} of each class")
