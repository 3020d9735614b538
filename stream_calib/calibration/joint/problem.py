"""What a joint fit is about: labelled cells, merged and sorted into runs, and the parameters that move them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, N_BINS
from stream_calib.calibration.groups import Family, FamilyRule
from stream_calib.calibration.joint.runs import Block, MergedCells, Runs, StartingPoint
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.rounding import round_significant

_DIGIT = 16
"""Bits that are sorted by at a time: numpy sorts integers of 16 bits by counting."""


@dataclass(frozen=True, slots=True, eq=False)
class JointTask:
    """One of several joint fits to the same cells.

    `places`: of its families among those that the fits have together; `slopes`, `firm`: those of them with slopes, and
    that are held near 0 firmly.
    """

    base: BaseMap
    places: Collection[int]
    slopes: Collection[int] = ()
    firm: Collection[int] = ()

    def has(self, place: int, slope: bool) -> bool:
        """Whether it has offsets, or slopes, of a family."""
        return place in (self.slopes if slope else self.places)


@dataclass(frozen=True, slots=True, eq=False)
class JointProblems:
    """Runs of cells, and whose parameters the runs' blocks are; of each task a problem.

    `keys`: for each block the place of its family and whether it is of slopes. That is an order of the families' own,
    so that sums do not depend on the order in which families are given. In a task a cell's distance is that of its
    bin's centre from the task's slope centre, in raw log-odds.
    """

    runs: Runs
    keys: tuple[tuple[int, bool], ...]
    slope_centres: tuple[float, ...]


def joint_problems(
    cells: LabelledCells,
    families: Sequence[Family],
    tasks: Sequence[JointTask],
    slope_centre: float | None = None,
) -> JointProblems | None:
    """The problems of the tasks' offsets and slopes; None without families, or cells with labelled rows.

    `slope_centre`: None for each task's mean of the raw log-odds weighted by n p (1 - p), p by its base map; 0 where a
    task has no slopes. Raises NonFiniteInputError, LengthMismatchError, FitError (impossible counts).
    """
    cells.check_families(families)
    cells.check_counts("the joint fit")
    sloped = [any(place in task.slopes for task in tasks) for place in range(len(families))]
    order = sorted(range(len(families)), key=lambda place: (_rank(families[place].rule), sloped[place]))
    run_of_signature = np.zeros(len(cells.signatures), dtype=np.int64)
    for place in order:
        group, size = families[place].group_of, len(families[place].keys)
        # Numbered anew for each family, so that many large families cannot overflow the product of their sizes.
        run_of_signature = np.unique(run_of_signature * (size + 1) + group + 1, return_inverse=True)[1]
    signature, run, grid_bin, labelled, positives = _merged(cells, run_of_signature)
    if not (len(run) and order):
        return None
    starts = _starts(run)
    inside = signature[starts]
    begins: list[StartingPoint] = []
    centres: list[float] = []
    of_bases: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for task in tasks:
        if id(task.base) not in of_bases:
            by_bin = task.base.log_odds_at(CENTRE_LOG_ODDS)
            of_bases[id(task.base)] = by_bin, by_bin[grid_bin]
        (log_odds, of_cells), distance, centre = of_bases[id(task.base)], None, 0.0
        if task.slopes:
            centre = _centre(grid_bin, labelled, log_odds) if slope_centre is None else slope_centre
            distance = (CENTRE_LOG_ODDS - centre)[grid_bin]
        begins.append(StartingPoint(of_cells, distance))
        centres.append(centre)
    keys = tuple((place, slope) for slope in (False, True) for place in order if sloped[place] or not slope)
    blocks = [Block(families[place].group_of[inside] + 1, len(families[place].keys), slope) for place, slope in keys]
    return JointProblems(Runs(MergedCells(labelled, positives, starts), begins, blocks), keys, tuple(centres))


def _merged(
    cells: LabelledCells, run_of_signature: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.integer], NDArray[np.float64], NDArray[np.float64]]:
    """A signature of the run, run, bin and sums of each (run, bin) with labelled rows, in order of run and bin."""
    used = cells.labelled > 0
    if not used.all():
        cells = cells.rows(used)
    run = run_of_signature[cells.signature]
    key = run * N_BINS + cells.grid_bin
    if (key[1:] < key[:-1]).any():
        order = _order(run, cells.grid_bin)
        cells, run, key = cells.rows(order), run[order], key[order]
    starts = _starts(key)
    if len(starts) == len(key):
        return cells.signature, run, cells.grid_bin, cells.labelled, cells.positives
    labelled, positives = np.add.reduceat(cells.labelled, starts), np.add.reduceat(cells.positives, starts)
    return cells.signature[starts], run[starts], cells.grid_bin[starts], labelled, positives


def _starts(ascending: NDArray[np.int64]) -> NDArray[np.intp]:
    """Where other values, 0 or more, begin."""
    return np.flatnonzero(np.diff(ascending, prepend=-1) != 0)


def _order(run: NDArray[np.int64], grid_bin: NDArray[np.integer]) -> NDArray[np.intp]:
    """Places in order of run, then of bin, then as they were."""
    order = np.argsort(grid_bin.astype(np.uint16), kind="stable")
    for shift in range(0, int(run.max(initial=0)).bit_length(), _DIGIT):
        digit = (run >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def _centre(grid_bin: NDArray[np.integer], labelled: NDArray[np.float64], log_odds: NDArray[np.float64]) -> float:
    p = expit(log_odds)
    weight = np.bincount(grid_bin, labelled, N_BINS) * p * (1 - p)
    total = float(weight.sum())
    return float(round_significant((weight * CENTRE_LOG_ODDS).sum() / total)) if total > 0 else 0.0


def _rank(rule: FamilyRule) -> tuple[object, ...]:
    return (
        rule.positions,
        rule.attributes,
        rule.predicate or "",
        tuple(tuple(sorted(values)) for values in rule.admitted),
    )
