"""Joint offsets: one shift in log-odds for each group of every family, with slopes for the groups of some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import CENTRE_LOG_ODDS
from stream_calib.calibration.groups import Family
from stream_calib.calibration.joint.minimum import find_minima
from stream_calib.calibration.joint.penalty import FIRMNESS, Penalty
from stream_calib.calibration.joint.problem import JointProblems, JointTask, joint_problems
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import FamilyShift
from stream_calib.calibration.rounding import round_significant
from stream_calib.errors import ConfigurationError, FitError


@dataclass(frozen=True, slots=True, eq=False)
class JointFit:
    """Fitted shifts of the groups of F families, to 12 significant digits.

    `offsets`: for each family (G_f,); `slopes`: for each family (G_f,), or None where it has none. A cell at raw
    log-odds x is moved by offset + slope x (x - `slope_centre`) of each of its groups. `firm` (F,): whether a
    family's offsets were shrunk firmly; `ridge`, `slope_ridge`: what offsets and slopes were shrunk by.
    """

    families: tuple[Family, ...]
    offsets: tuple[NDArray[np.float64], ...]
    slopes: tuple[NDArray[np.float64] | None, ...]
    slope_centre: float
    firm: tuple[bool, ...]
    ridge: float
    slope_ridge: float

    @property
    def shifts(self) -> tuple[FamilyShift, ...]:
        """As the parts of a map hold them, in the families' order."""
        return tuple(
            FamilyShift(
                family.rule,
                dict(zip(family.keys, offset.tolist(), strict=True)),
                {} if slope is None else dict(zip(family.keys, slope.tolist(), strict=True)),
            )
            for family, offset, slope in zip(self.families, self.offsets, self.slopes, strict=True)
        )

    def over(self, families: Sequence[Family]) -> JointFit:
        """The same shifts over other signatures, of which `families` are, in the order of the fit's own; groups that
        the fit has not seen have 0."""
        return replace(
            self,
            families=tuple(families),
            offsets=tuple(_of_groups(family, self, slope=False) for family in families),
            slopes=tuple(
                None if slope is None else _of_groups(family, self, slope=True)
                for family, slope in zip(families, self.slopes, strict=True)
            ),
        )

    def log_odds(self, cells: LabelledCells, base: BaseMap) -> NDArray[np.float64]:
        """Fitted log-odds (k,) at the centres of the cells, whose signatures must be those of the families.

        Before the limits, the order and the strict slope that the served map keeps. Raises LengthMismatchError.
        """
        cells.check_families(self.families)
        offset, slope = np.zeros(len(cells.signatures)), np.zeros(len(cells.signatures))
        for family, of_offset, of_slope in zip(self.families, self.offsets, self.slopes, strict=True):
            # The last entry is for signatures in no group, -1.
            offset += np.append(of_offset, 0.0)[family.group_of]
            if of_slope is not None:
                slope += np.append(of_slope, 0.0)[family.group_of]
        distance = CENTRE_LOG_ODDS - self.slope_centre
        own: NDArray[np.float64] = offset[cells.signature] + slope[cells.signature] * distance[cells.grid_bin]
        own += base.log_odds_at(CENTRE_LOG_ODDS)[cells.grid_bin]
        return own


def fit_joint(
    cells: LabelledCells,
    base: BaseMap,
    families: Sequence[Family],
    *,
    slopes: Collection[int] = (),
    firm: Collection[int] = (),
    ridge: float = 20.0,
    slope_ridge: float = 20.0,
    tolerance: float = 1e-6,
    start: JointFit | None = None,
) -> JointFit:
    """Fits the offsets of all families, and the slopes of those at the places `slopes`, jointly on top of a base map.

    They minimise the log-loss of the cells, each at the centre of its bin, + ridge / 2 x the sum of squared offsets +
    slope_ridge / 2 x that of squared slopes: logistic regression with a fixed part, penalised as by Hastie, Tibshirani,
    Friedman, "The elements of statistical learning", 2009, section 4.4.4, or under independent normal priors of
    variance 1 / ridge. Offsets of families at the places `firm`, those of whose groups most have no effect of their
    own, are held near 0 by more, and let go beyond (`Penalty`). All that is strictly convex, and together the
    parameters lie within `tolerance` (Euclidean) of its minimum. Groups without labelled rows have 0. Counts may be
    decayed by age.

    The slope centre is the mean of the raw log-odds weighted by n p (1 - p), p by the base map, so that an offset and a
    slope of everything would hardly depend on each other. Without slopes it is 0.

    `start`: a fit of some of the same groups, from which the search begins in place of 0. That is cheaper and changes
    the result within the tolerance only; without it a fit depends on its cells and parameters alone. Neither the order
    of the families changes a bit nor, where the sums of equal cells are exact (whole numbers, fixed point), that of the
    cells.

    Raises NonFiniteInputError, LengthMismatchError (families of other signatures), ConfigurationError (parameters), and
    FitError (impossible counts; or a minimum that is not found, which a larger ridge cures).
    """
    _check(len(families), slopes, firm, ridge, slope_ridge, tolerance)
    task = JointTask(base, range(len(families)), slopes, firm)
    (fit,) = fit_joints(cells, families, [task], ridge=ridge, slope_ridge=slope_ridge, tolerance=tolerance, start=start)
    if isinstance(fit, FitError):
        raise fit
    return fit


def fit_joints(
    cells: LabelledCells,
    families: Sequence[Family],
    tasks: Sequence[JointTask],
    *,
    ridge: float,
    slope_ridge: float,
    tolerance: float,
    start: JointFit | None = None,
) -> list[JointFit | FitError]:
    """Several fits to the same cells in a fraction of the time: what `fit_joint` gives for each of the tasks, but for
    the rounding of sums, or the error where no minimum is found. `families`: those of all tasks. Raises otherwise as
    `fit_joint`.
    """
    problems = joint_problems(cells, families, tasks)
    if problems is None:  # then all shifts are 0
        none = {(place, slope): np.zeros(len(f.keys)) for place, f in enumerate(families) for slope in (False, True)}
        return [_fit(families, task, none, 0.0, ridge, slope_ridge) for task in tasks]
    runs, keys = problems.runs, problems.keys
    has = [[task.has(place, slope) for task in tasks] for place, slope in keys]
    begin = [
        np.outer(_begin(families[place], start, slope), own) for (place, slope), own in zip(keys, has, strict=True)
    ]
    penalty = joint_penalty(problems, tasks, ridge, slope_ridge)
    found = find_minima(runs, penalty, runs.join(begin), runs.each(has) > 0, tolerance=tolerance)
    parts = dict(zip(keys, runs.split(round_significant(found.parameters)), strict=True))
    return [
        _fit(
            families,
            task,
            {key: np.ascontiguousarray(part[:, number]) for key, part in parts.items()},
            problems.slope_centres[number],
            ridge,
            slope_ridge,
        )
        if error is None
        else error
        for number, (task, error) in enumerate(zip(tasks, found.errors, strict=True))
    ]


def joint_penalty(problems: JointProblems, tasks: Sequence[JointTask], ridge: float, slope_ridge: float) -> Penalty:
    """The penalty on the problems' parameters."""
    return Penalty(
        ridge=problems.runs.each([slope_ridge if slope else ridge for _, slope in problems.keys]),
        firm=problems.runs.each(
            [
                [FIRMNESS * ridge if place in task.firm and not slope else 0.0 for task in tasks]
                for place, slope in problems.keys
            ]
        ),
    )


def _fit(
    families: Sequence[Family],
    task: JointTask,
    parts: Mapping[tuple[int, bool], NDArray[np.float64]],
    slope_centre: float,
    ridge: float,
    slope_ridge: float,
) -> JointFit:
    """`parts`: the offsets, and the slopes, of the families' groups."""
    return JointFit(
        families=tuple(families[place] for place in task.places),
        offsets=tuple(parts[place, False] for place in task.places),
        slopes=tuple(parts[place, True] if place in task.slopes else None for place in task.places),
        slope_centre=slope_centre,
        firm=tuple(place in task.firm for place in task.places),
        ridge=ridge,
        slope_ridge=slope_ridge,
    )


def _begin(family: Family, start: JointFit | None, slope: bool) -> NDArray[np.float64]:
    """The offsets or slopes of a family's groups (G,) that the search begins with."""
    return np.zeros(len(family.keys)) if start is None else _of_groups(family, start, slope)


def _of_groups(family: Family, fit: JointFit, slope: bool) -> NDArray[np.float64]:
    """The fit's offsets or slopes of a family's groups (G,), 0 where it has none."""
    for own, values in zip(fit.families, fit.slopes if slope else fit.offsets, strict=True):
        if own.rule == family.rule and values is not None:
            if own.keys == family.keys:
                return values
            known = dict(zip(own.keys, values.tolist(), strict=True))
            return np.array([known.get(key, 0.0) for key in family.keys])
    return np.zeros(len(family.keys))


def _check(
    n_families: int,
    slopes: Collection[int],
    firm: Collection[int],
    ridge: float,
    slope_ridge: float,
    tolerance: float,
) -> None:
    for name, value in (("ridge", ridge), ("slope_ridge", slope_ridge), ("tolerance", tolerance)):
        if not (np.isfinite(value) and value > 0):
            raise ConfigurationError(f"{name} = {value}; it must be finite and above 0")
    for name, places in (("slopes", slopes), ("firm", firm)):
        outside = [place for place in places if not 0 <= place < n_families]
        if outside:
            raise ConfigurationError(f"{name} of families at {outside}; there are {n_families}, counted from 0")
