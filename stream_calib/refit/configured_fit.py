"""One configuration fitted: its base map without groups first, then the shifts of its families, jointly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_calib.calibration.configuration import Configuration, Rung
from stream_calib.calibration.groups import Family, FamilyRule
from stream_calib.calibration.joint.fit import JointFit, fit_joints
from stream_calib.calibration.joint.problem import JointTask
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.config import Config
from stream_calib.errors import FitError


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


def fit_configurations(
    each: Sequence[tuple[Configuration, BaseMap]],
    cells: LabelledCells,
    families: Mapping[FamilyRule, Family],
    config: Config,
    *,
    tolerance: float = 1e-6,
    start: JointFit | None = None,
) -> list[ConfiguredFit | FitError]:
    """The joint shifts of several configurations, each on a base map that is fitted already, or why there are none.
    `families`: of the cells' signatures. Raises FitError for impossible counts."""
    rules = list(dict.fromkeys(rule for configuration, _ in each for rule in configuration.families))

    def task(configuration: Configuration, base: BaseMap) -> JointTask:
        own = configuration.families, configuration.slopes, configuration.firm
        return JointTask(base, *(tuple(rules.index(rule) for rule in chosen) for chosen in own))

    fits = fit_joints(
        cells,
        [families[rule] for rule in rules],
        [task(*one) for one in each],
        ridge=config.calibration.offset_ridge,
        slope_ridge=config.calibration.offset_ridge,
        tolerance=tolerance,
        start=start,
    )
    return [
        fit if isinstance(fit, FitError) else ConfiguredFit(base, fit)
        for (_, base), fit in zip(each, fits, strict=True)
    ]


def fit_configuration(
    configuration: Configuration,
    cells: LabelledCells,
    base: BaseMap,
    families: Mapping[FamilyRule, Family],
    config: Config,
) -> ConfiguredFit:
    """As `fit_configurations` for one. Raises FitError."""
    (fitted,) = fit_configurations([(configuration, base)], cells, families, config)
    if isinstance(fitted, FitError):
        raise fitted
    return fitted
