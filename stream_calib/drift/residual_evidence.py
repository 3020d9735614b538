"""What the labelled events of one pane say about each watched cell, for each shift d in log-odds.

An event with label y that was served f has the log-likelihood ratio

    l_d = d y - log(1 + f_d (e^d - 1)),   f_d = f + epsilon for d > 0, f - epsilon for d < 0,

of the log-odds of f_d moved by d against f_d. While the probability of the label, given everything earlier, lies in
[f - epsilon, f + epsilon], E[exp(l_d)] <= 1.

f_d is kept at least 1e-6 for d > 0 and at most 1 - 1e-6 for d < 0, as what is served. At the other side it may be 1
and 0, where l_d <= 0: what is served or tolerated as certain cannot be exceeded. (A limit of 1 - 1e-6 there too would
count 10^9 positives that were served 1 as evidence of up to 800 for d > 0.)

Dividing the sum of l_d by phi >= 1 keeps the expectation of its exponential at most 1 for events that depend on each
other in clusters of up to phi, whatever the dependence (Hoelder's and Jensen's inequalities), and by a normal
approximation where shocks that are shared in the pane give sums phi times the variance of independent events.

The sums are exact: logarithms in units of 2^-30, rounded up, times whole numbers. So neither the order of the rows nor
how they were parted among workers can change a bit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stream_calib.drift.residual import SHIFTS, PaneEvidence, ResidualSums, WatchedCells

_LEAST = 1e-6
_ONE = 1 << 30
MOST_LABELLED = 5_000_000_000
"""Labelled events of one cell in one pane whose sums stay below 2^63."""


def pane_evidence(watched: WatchedCells, sums: ResidualSums) -> PaneEvidence:
    """Evidence of a pane, in time and memory by (cell, served probability) pairs, whatever events they stand for.

    Raises ValueError where columns do not fit each other or `watched`, or a cell has more than `MOST_LABELLED` events.
    """
    return panes_evidence(watched, sums, 1)[0]


def panes_evidence(watched: WatchedCells, sums: ResidualSums, panes: int) -> list[PaneEvidence]:
    """The same of several panes: C cells, of the i-th pane numbered from i C on."""
    size, shifts = len(watched.names), len(SHIFTS)
    cells = size * panes
    _check(sums, cells)
    labelled, positives = (_by_cell(sums.cell, column, cells) for column in (sums.labelled, sums.positives))
    if labelled.max(initial=0) > MOST_LABELLED:
        most = int(labelled.argmax())
        raise ValueError(
            f"cell {watched.names[most % size]} has {labelled[most]:,} labelled events in one pane, sums are exact up"
            f" to {MOST_LABELLED:,}: make panes shorter (windows.pane)"
        )
    epsilon = watched.epsilon[sums.cell % size]
    above = np.clip(sums.served + epsilon, _LEAST, 1.0)
    below = np.clip(sums.served - epsilon, 0.0, 1.0 - _LEAST)
    ratio = np.empty((cells, shifts))
    for i, d in enumerate(SHIFTS):
        expected = np.log1p((above if d > 0 else below) * math.expm1(d))
        steps = np.ceil(expected * _ONE).astype(np.int64) * sums.labelled
        ratio[:, i] = d * positives - _by_cell(sums.cell, steps, cells) / _ONE
    ratio = ratio.reshape(panes, size, shifts) / watched.phi[watched.family][:, None]
    return [PaneEvidence(n, of_pane) for n, of_pane in zip(labelled.reshape(panes, size), ratio, strict=True)]


def _by_cell(cell: NDArray[np.intp], column: NDArray[np.int64], cells: int) -> NDArray[np.int64]:
    """(cells,) exact sums."""
    total = np.zeros(cells, np.int64)
    np.add.at(total, cell, column)
    return total


def _check(sums: ResidualSums, cells: int) -> None:
    lengths = {len(column) for column in (sums.cell, sums.served, sums.labelled, sums.positives)}
    if len(lengths) > 1:
        raise ValueError(f"residual sums: columns of different lengths {sorted(lengths)}")
    if not len(sums.cell):
        return
    if not (sums.cell.min() >= 0 and sums.cell.max() < cells):
        raise ValueError(f"residual sums: cells must be watched ones, 0 .. {cells - 1}")
    if not ((sums.served >= 0) & (sums.served <= 1)).all():
        raise ValueError("residual sums: served probabilities must lie in 0 .. 1")
    if not ((sums.positives >= 0) & (sums.positives <= sums.labelled)).all():
        raise ValueError("residual sums: positives must lie in 0 .. labelled")
