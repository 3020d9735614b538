"""What a joint fit did to each group: its offset and slope with their errors, and what they do to a probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from stream_calib.calibration.groups import GroupKey
from stream_calib.calibration.joint.covariance import curvature_matrix, group_covariances
from stream_calib.calibration.joint.fit import JointFit, joint_penalty
from stream_calib.calibration.joint.problem import JointTask, joint_problems
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.text_table import text_table


@dataclass(frozen=True, slots=True)
class GroupEffect:
    """One group of one family. Errors are standard errors; `slope` and its error are 0 where there is none.

    `labelled`: mass of labelled rows. `mean_probability`: mean fitted probability of the group. `shift`: what the
    group's own offset and slope add in log-odds at its mean raw log-odds. `change`: what that is in probability at the
    group's mean: `mean_probability` - what it would be without the shift.
    """

    family: str
    key: GroupKey
    name: str
    labelled: float
    offset: float
    offset_error: float
    slope: float
    slope_error: float
    mean_probability: float
    shift: float
    shift_error: float
    change: float
    change_error: float


def group_effects(fit: JointFit, cells: LabelledCells, base: BaseMap) -> tuple[GroupEffect, ...]:
    """The effects of all groups with labelled rows, by family, in the order of the groups' keys.

    `cells` and `base` are those of the fit. Errors are square roots of the inverse of the penalised curvature at the
    fit: standard deviations after the data under the penalty's prior (normal, but for firm families), by Laplace's
    approximation (MacKay, "Information theory, inference, and learning algorithms", 2003, chapter 27). They count the
    labelled mass as so many independent rows and take the base map, and with it the slope centre, as known; where
    families are many, `group_covariances` says what more is left out. That of `change` follows by the delta method, the
    mean probability taken as known. A group that is shrunk to 0 is not shown to have no effect: look at its error. What
    families can pass to each other (a shift of everything) only the ridge settles, and all of their errors contain it.

    Raises as `fit_joint`.
    """
    places_of = [
        [place for place, has in enumerate(each) if has] for each in ([s is not None for s in fit.slopes], fit.firm)
    ]
    tasks = [JointTask(base, range(len(fit.families)), *places_of)]
    problems = joint_problems(cells, fit.families, tasks, fit.slope_centre)
    if problems is None:
        return ()
    runs, block_of = problems.runs, {key: number for number, key in enumerate(problems.keys)}
    own = {(place, False): offset for place, offset in enumerate(fit.offsets)}
    own |= {(place, True): slope for place, slope in enumerate(fit.slopes) if slope is not None}
    parameters = runs.join([own[key][:, None] for key in problems.keys])
    penalty = joint_penalty(problems, tasks, fit.ridge, fit.slope_ridge).curvature(parameters)[:, 0]
    _, moments = runs.residuals_and_moments(parameters, np.ones(1, dtype=bool))
    expected, rows_apart = runs.expected(parameters, 0), runs.rows_apart(0)

    def at(key: tuple[int, bool]) -> NDArray[np.intp]:
        """Places of a block among the parameters; none where there is no such block."""
        block = block_of.get(key)
        return np.arange(0) if block is None else runs.first[block] + 1 + np.arange(runs.blocks[block].size)

    places = [(at((place, False)), at((place, True))) for place in range(len(fit.families))]
    covariances = group_covariances(curvature_matrix(runs, moments), penalty, places)
    effects = []
    for place, (family, of) in enumerate(zip(fit.families, covariances, strict=True)):
        block = runs.blocks[block_of[place, False]]
        labelled, positives, apart = (
            np.bincount(block.member, column, block.size + 1)[1:] for column in (runs.rows, expected, rows_apart)
        )
        used = np.flatnonzero(labelled > 0)
        mean, distance = positives[used] / labelled[used], apart[used] / labelled[used]
        offset, slope = fit.offsets[place][used], own.get((place, True), np.zeros(block.size))[used]
        # Without slopes the centre is no part of the fit, and neither is the distance to it.
        variance = of.offset[used] + 2 * distance * of.mixed[used] + distance**2 * of.slope[used]
        shift, shift_error = offset + slope * distance, np.sqrt(variance)
        without = expit(logit(mean) - shift)
        columns = (
            labelled[used],
            offset,
            np.sqrt(of.offset[used]),
            slope,
            np.sqrt(of.slope[used]),
            mean,
            shift,
            shift_error,
            mean - without,
            without * (1 - without) * shift_error,
        )
        for group, *numbers in zip(used.tolist(), *(column.tolist() for column in columns), strict=True):
            key = family.keys[group]
            effects.append(GroupEffect(family.rule.name, key, family.rule.group_name(key), *numbers))
    return tuple(effects)


def effects_text(effects: Sequence[GroupEffect]) -> str:
    """A table, one line a group: log-odds with their errors, and the change in probability in points (1/100)."""
    body = [
        (
            effect.name,
            f"{effect.labelled:.0f}",
            f"{effect.mean_probability:.4f}",
            f"{effect.offset:+.3f} +- {effect.offset_error:.3f}",
            f"{effect.slope:+.3f} +- {effect.slope_error:.3f}" if effect.slope_error > 0 else "-",
            f"{100 * effect.change:+.2f} +- {100 * effect.change_error:.2f}",
        )
        for effect in effects
    ]
    return "\n".join(text_table(("group", "labelled", "mean p", "offset", "slope", "change, points"), body))
