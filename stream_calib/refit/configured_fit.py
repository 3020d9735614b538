"""One configuration fitted: its base map without groups first, then the shifts of its families, jointly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stream_calib.calibration.configuration import Configuration, Rung
from stream_calib.calibration.groups import Family, FamilyRule
from stream_calib.calibration.joint.fit import JointFit, fit_joint
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.config import Config


@dataclass(frozen=True, slots=True, eq=False)
class ConfiguredFit:
    """What is fitted of a map, but for level and patches."""

    base: BaseMap
    joint: JointFit


def fit_base(rung: Rung, cells: LabelledCells, config: Config) -> BaseMap:
    """The base map of this rung. Raises the FitError family."""
    # Here, because scikit-learn takes most of a second to import, and the other roles never fit.
    from stream_calib.calibration.ladder import fit_rung

    calibration = config.calibration
    return fit_rung(
        rung,
        cells,
        p_min=config.serving.p_min,
        n_groups=calibration.score_groups,
        prior_strength=calibration.prior_strength,
    )


def fit_configuration(
    configuration: Configuration,
    cells: LabelledCells,
    base: BaseMap,
    families: Mapping[FamilyRule, Family],
    config: Config,
    *,
    tolerance: float = 1e-6,
    start: JointFit | None = None,
) -> ConfiguredFit:
    """The joint shifts on a base map that is fitted already. `families`: of the cells' signatures. Raises FitError."""
    joint = fit_joint(
        cells,
        base,
        [families[rule] for rule in configuration.families],
        slopes=configuration.slope_places,
        firm=configuration.firm_places,
        ridge=config.calibration.offset_ridge,
        slope_ridge=config.calibration.offset_ridge,
        tolerance=tolerance,
        start=start,
    )
    return ConfiguredFit(base, joint)
