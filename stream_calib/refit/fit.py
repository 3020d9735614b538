"""Fitting a candidate from the evidence: what was chosen, level, patches, certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import make_family
from stream_calib.calibration.joint.level import fit_level
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.rounding import round_significant
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.errors import FitError, TooFewPositivesError, TooFewRowsError
from stream_calib.refit.certificate import audited_cells, certify_parts, patch_parts
from stream_calib.refit.choice import Choice
from stream_calib.refit.configured_fit import fit_base, fit_configuration
from stream_calib.refit.derived import derived_names, time_attributes
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.groups import family_rules, fitted_rules
from stream_calib.refit.labelled import FitData, believed, fit_data
from stream_calib.refit.min_coverage import Uncovered, uncovered_groups
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.fit_documents import CertificateDocument, ChoicesDocument


@dataclass(frozen=True, slots=True)
class StructureFit:
    """What is fitted of a structure snapshot."""

    parts: MapParts
    """With level and patches."""
    choices: ChoicesDocument
    """What was chosen; `patches`: whether the map has them."""
    certificate: CertificateDocument
    uncovered: Uncovered
    """Groups that have no offset, slope or patch for want of labels."""


def fit_structure(evidence: PastPanes, choice: Choice, signatures: Signatures, config: Config) -> StructureFit:
    """Fits everything. A pure function of the evidence, the choice, the dictionary and the configuration.

    The base map on the counts of all groups together, then the shifts of all families on top of it, jointly, then
    patches if they were chosen, then the level on the counts of the shorter half-life, then the certificate of the
    whole.

    Raises TooFewRowsError, TooFewPositivesError, or another of the FitError family.
    """
    check_enough(evidence, config)
    fit_cells, places = evidence.fit_cells(), _places(choice.derived, config)
    data = fit_data(fit_cells, signatures, places, RowWeights.of(config))
    rules = list(dict.fromkeys((*choice.configuration.families, *fitted_rules(config))))
    uncovered = uncovered_groups(fit_cells, signatures, rules, places, config)
    audited = audited_cells(data.cells, evidence, choice.derived, signatures, config)
    cells = believed(audited.fit, data.design_effect)
    families = {rule: uncovered.family(rule, cells.signatures) for rule in rules}
    base = fit_base(choice.configuration.rung, cells, config)
    joint = fit_configuration(choice.configuration, cells, base, families, config).joint
    parts = MapParts(
        base=base,
        families=joint.shifts,
        p_min=config.serving.p_min,
        slope_centre=joint.slope_centre,
        bin_weight=_bin_weight(data) if choice.configuration.slopes or choice.document.patches else np.ones(N_BINS),
    )
    patched = [families[rule] for rule in fitted_rules(config)]
    watched = [make_family(rule, cells.signatures) for rule in family_rules(config)]
    choices = choice.document
    if choices.patches:
        # Before the level: the cells of the fit and the audits are of weeks, and on them the level of the last days is
        # a residual of everything, which patches would undo.
        parts, tried = patch_parts(parts, audited, patched, config)
        choices = choices.model_copy(update={"patches": bool(parts.rounds), "patches_tried": tried})
    parts = replace(parts, level=_fit_level(parts, data, config))
    return StructureFit(parts, choices, certify_parts(parts, audited, watched, config), uncovered)


def refit_level(
    evidence: PastPanes, signatures: Signatures, parts: MapParts, derived: TimeAttributes | None, config: Config
) -> float:
    """The common offset on top of a structure as it is; its signatures end with the values of `derived`.

    Raises as `fit_structure`, and FitError where the structure has derived attributes that are not counted.
    """
    check_enough(evidence, config)
    names = () if derived is None else derived.names
    if derived != time_attributes(config, names):
        raise FitError(f"the structure uses {names} by {derived}, which is not configured; wait for the next structure")
    data = fit_data(evidence.fit_cells(), signatures, _places(names, config), RowWeights.of(config))
    return _fit_level(parts, data, config)


def is_enough(evidence: PastPanes, config: Config) -> bool:
    """Whether there are rows enough to fit."""
    rows, positives, refit = evidence.fit_rows, evidence.fit_positives, config.refit
    return rows >= refit.min_rows and min(positives, rows - positives) >= refit.min_positives


def check_enough(evidence: PastPanes, config: Config) -> None:
    """Raises TooFewRowsError or TooFewPositivesError where there are not rows enough to fit."""
    if is_enough(evidence, config):
        return
    rows, positives = evidence.fit_rows, evidence.fit_positives
    if rows < config.refit.min_rows:
        raise TooFewRowsError(f"{rows} labelled rows in the fit buckets; refit.min_rows = {config.refit.min_rows}")
    least = config.refit.min_positives
    raise TooFewPositivesError(f"{positives} positives of {rows} rows; refit.min_positives = {least} of each class")


def _places(derived: Sequence[str], config: Config) -> tuple[int, ...]:
    """Of derived attributes among those that are counted."""
    return tuple(derived_names(config).index(name) for name in derived)


def _fit_level(parts: MapParts, data: FitData, config: Config) -> float:
    cells = data.cells
    p = ServedMap(replace(parts, level=0.0)).at_centres(cells.grid_bin, cells.signature, cells.signatures)
    return fit_level(
        np.log(p) - np.log1p(-p),
        data.level_labelled / data.level_design_effect,
        data.level_positives / data.level_design_effect,
        prior=config.calibration.level_prior,
    )


def _bin_weight(data: FitData) -> NDArray[np.float64]:
    """(402,) decayed labelled rows of each grid bin, and one more, so that none is without weight."""
    labelled, _ = believed(data.cells, data.design_effect).by_bin()
    return round_significant(labelled + 1.0)
