"""Uncertainty of joint parameters: the inverse of the penalised curvature, as far as it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from stream_calib.calibration.joint.runs import Moments, Runs

MOST_CORE_PARAMETERS = 600
"""A dense matrix of so many parameters is inverted in a fraction of a second."""

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class GroupCovariance:
    """Of the groups of one family, (G,) each; 0 for slopes that are not there."""

    offset: NDArray[np.float64]
    mixed: NDArray[np.float64]
    slope: NDArray[np.float64]


def curvature_matrix(runs: Runs, moments: Moments) -> csr_array:
    """Second derivative (parameters, parameters) of the first problem's log-loss; 0 in entries of runs in none of a
    block's groups."""

    def design(slope: bool, weight: NDArray[np.float64]) -> csr_array:
        """(m, parameters): `weight` (m,) where a run has an offset, or a slope."""
        n_runs = len(weight)
        rows, columns, values = np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0)
        for block, first in zip(runs.blocks, runs.first.tolist(), strict=True):
            if block.slope == slope:
                rows = np.append(rows, np.arange(n_runs))
                columns = np.append(columns, first + block.member)
                values = np.append(values, weight * (block.member > 0))
        return csr_array((values, (rows, columns)), (n_runs, runs.shape[0]))

    each = np.ones(len(moments.none))
    offset, slope = design(False, each), design(True, each)
    none, one, two = (
        np.zeros(len(each)) if moment is None else moment[:, 0] for moment in (moments.none, moments.one, moments.two)
    )
    mixed = csr_array(offset.T @ design(True, one))
    own = csr_array(offset.T @ design(False, none)) + csr_array(slope.T @ design(True, two))
    return csr_array(own + mixed + mixed.T)


def group_covariances(
    curvature: csr_array, penalty: NDArray[np.float64], places: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]]
) -> list[GroupCovariance]:
    """Variances of each group's offset and slope: the group's 2 x 2 block of (curvature + diag(penalty))^-1.

    `curvature` (parameters, parameters); `penalty` (parameters,): that of the penalty; `places`: for each family where
    the offsets (G,) and the slopes (G,), or none of them, are among the parameters.

    Exact where all families but the largest have together at most MOST_CORE_PARAMETERS parameters. Beyond that, the
    smallest families that do are the core: a group outside of it gets the block of the inverse for the core and its own
    family, the other families outside held at their fitted values; a group of the core that for the core and the
    largest family. That leaves out what the held families do not say, so those errors are somewhat too small.

    A family's own part of the matrix is one block a group, so it is eliminated by its Schur complement (Boyd,
    Vandenberghe, "Convex optimization", 2004, appendix A.5.5), and what is left is inverted by sweeps.
    """
    place = np.arange(len(penalty))
    full = csr_array(curvature + csr_array((penalty, (place, place)), curvature.shape))
    sizes = [len(offset) + len(slope) for offset, slope in places]
    by_size = sorted(range(len(places)), key=lambda family: (sizes[family], int(places[family][0].min(initial=0))))
    core, total = list[int](), 0
    for family in by_size[:-1]:
        total += sizes[family]
        if total > MOST_CORE_PARAMETERS:
            break
        core.append(family)
    inside = np.concatenate([np.empty(0, np.intp), *(np.concatenate(places[family]) for family in core)])
    found: dict[int, GroupCovariance] = {}
    for family in by_size[len(core) :]:
        offset, slope = places[family]
        own_inverse = _inverse_of_blocks(full, offset, slope)
        own = np.concatenate([offset, slope])
        across = full[own][:, inside]
        pulled = csr_array(own_inverse @ across)
        left = (full[inside][:, inside] - across.T @ pulled).toarray()
        # The largest family comes last, so the core's own blocks are those beside it.
        inverse = inverse_by_sweeps(left)
        found[family] = _own_blocks(own_inverse, pulled, inverse, len(offset))
    position = 0
    for family in core:
        n_offsets, n_slopes = len(places[family][0]), len(places[family][1])
        rows = np.arange(position, position + n_offsets)
        position += n_offsets + n_slopes
        none = np.zeros(n_offsets)
        found[family] = GroupCovariance(
            inverse[rows, rows],
            inverse[rows, rows + n_offsets] if n_slopes else none,
            inverse[rows + n_offsets, rows + n_offsets] if n_slopes else none,
        )
    return [found[family] for family in range(len(places))]


def inverse_by_sweeps(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse (n, n) of a symmetric positive definite matrix (Goodnight, "A tutorial on the SWEEP operator", 1979).

    Slower than LAPACK, and the same bits on any number of processors.
    """
    swept: NDArray[np.float64] = matrix.copy()
    for k in range(len(swept)):
        pivot = swept[k, k]
        column = swept[:, k].copy()
        row = swept[k] / pivot
        column[k] = 0.0
        swept -= column[:, None] * row
        swept[k] = row
        swept[:, k] = -column / pivot
        swept[k, k] = 1.0 / pivot
    return swept


def _inverse_of_blocks(full: csr_array, offset: NDArray[np.intp], slope: NDArray[np.intp]) -> csr_array:
    """Inverse of one family's part of the matrix, of offsets, then slopes: a 2 x 2 block a group."""
    n = len(offset)
    diagonal = full.diagonal()
    place = np.arange(n)
    if not len(slope):
        return csr_array((1.0 / diagonal[offset], (place, place)), (n, n))
    a, c = diagonal[offset], diagonal[slope]
    b = np.asarray(full[offset, slope]).ravel()
    determinant = a * c - b * b
    values = np.concatenate([c, -b, -b, a]) / np.tile(determinant, 4)
    rows = np.concatenate([place, place, place + n, place + n])
    columns = np.concatenate([place, place + n, place, place + n])
    return csr_array((values, (rows, columns)), (2 * n, 2 * n))


def _own_blocks(own: csr_array, pulled: csr_array, inverse: NDArray[np.float64], n: int) -> GroupCovariance:
    """Blocks of own + pulled inverse pulled^T."""
    parts = []
    for first in range(0, n, _ROWS_AT_ONCE):
        rows = np.arange(first, min(first + _ROWS_AT_ONCE, n))
        offset = pulled[rows]
        with_offset = offset @ inverse
        if own.shape[0] == n:
            sums = (offset.multiply(with_offset).sum(axis=1), np.zeros(len(rows)), np.zeros(len(rows)))
        else:
            slope = pulled[rows + n]
            sums = (
                offset.multiply(with_offset).sum(axis=1),
                slope.multiply(with_offset).sum(axis=1),
                slope.multiply(slope @ inverse).sum(axis=1),
            )
        parts.append(np.stack([np.asarray(each).ravel() for each in sums]))
    more = np.concatenate([np.empty((3, 0)), *parts], axis=1)
    if own.shape[0] == n:
        return GroupCovariance(own.diagonal() + more[0], more[1], more[2])
    place = np.arange(n)
    mixed = np.asarray(own[place, place + n]).ravel()
    diagonal = own.diagonal()
    return GroupCovariance(diagonal[:n] + more[0], mixed + more[1], diagonal[n:] + more[2])
