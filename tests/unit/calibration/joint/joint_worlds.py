"""Small worlds of overlapping families for the tests of joint fits, and their penalised loss written out in full."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS, EDGE_LOG_ODDS
from stream_calib.calibration.groups import Family, FamilyRule, families_up_to, make_family
from stream_calib.calibration.joint.fit import JointFit
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap

Floats = NDArray[np.float64]

SIGNATURES = [(f"a{i}", f"b{j}") for i in range(5) for j in range(3)]
FAMILIES = [make_family(rule, SIGNATURES) for rule in families_up_to(2, ["a", "b"])]
"""a (5 groups), b (3), a & b (15)."""
IDENTITY = BaseMap(EDGE_LOG_ODDS, expit(EDGE_LOG_ODDS), 1e-6, 0.0)
IDENTITY_LOG_ODDS = IDENTITY.log_odds_at(CENTRE_LOG_ODDS)
"""(402,) at the bins' centres: the centres but for 1e-4, as the map is linear in the probability between edges."""


def world(seed: int, cells: int = 400, decayed: bool = True) -> LabelledCells:
    """Cells with effects of a and b and slopes of a; counts fractional where `decayed`."""
    random = np.random.default_rng(seed)
    signature = random.integers(0, len(SIGNATURES), cells)
    grid_bin = random.integers(120, 240, cells)
    first, second = np.divmod(signature, 3)
    x = CENTRE_LOG_ODDS[grid_bin]
    truth = x + random.normal(0, 0.5, 5)[first] + random.normal(0, 0.3, 3)[second]
    truth += random.normal(0, 0.3, 5)[first] * (x + 1)
    n = random.integers(1, 60, cells).astype(np.float64)
    k = random.binomial(n.astype(np.int64), expit(truth)).astype(np.float64)
    decay = random.uniform(0.1, 1.0, cells) if decayed else np.ones(cells)
    return LabelledCells(SIGNATURES, signature, grid_bin, n * decay, k * decay)


def design(cells: LabelledCells, fit: JointFit) -> Floats:
    """(k, parameters) dense: a column for each offset of every family, then one for each slope."""
    distance = CENTRE_LOG_ODDS[cells.grid_bin] - fit.slope_centre
    member = [np.eye(len(f.keys) + 1)[f.group_of[cells.signature]][:, :-1] for f in fit.families]
    sloped = [m * distance[:, None] for m, slope in zip(member, fit.slopes, strict=True) if slope is not None]
    return np.concatenate([*member, *sloped], axis=1)


def flat(fit: JointFit) -> Floats:
    """(parameters,) in the order of `design`."""
    return np.concatenate([*fit.offsets, *(slope for slope in fit.slopes if slope is not None)])


def penalties(fit: JointFit) -> Floats:
    """(parameters,) ridges in the order of `design`."""
    offsets = [np.full(len(offset), fit.ridge) for offset in fit.offsets]
    return np.concatenate([*offsets, *(np.full(len(s), fit.slope_ridge) for s in fit.slopes if s is not None)])


def firmnesses(fit: JointFit) -> Floats:
    """(parameters,) what is added to the ridge at 0, in the order of `design`."""
    offsets = [np.full(len(o), 10.0 * fit.ridge * firm) for o, firm in zip(fit.offsets, fit.firm, strict=True)]
    return np.concatenate([*offsets, *(np.zeros(len(s)) for s in fit.slopes if s is not None)])


def penalised_loss(
    parameters: Floats, columns: Floats, base: Floats, n: Floats, k: Floats, ridge: Floats, firm: Floats
) -> float:
    """Log-loss + ridge / 2 x the squared parameters + the firm families' pseudo-Huber loss of reach .05."""
    moved = base + columns @ parameters
    held = ridge * parameters**2 / 2 + firm * 0.05**2 * (np.sqrt(1 + (parameters / 0.05) ** 2) - 1)
    return float((n * np.logaddexp(0, moved) - k * moved).sum() + held.sum())


def one_family(groups: Sequence[int], n_groups: int) -> Family:
    """One signature an entry; -1 for none."""
    rule = FamilyRule(("g",), (0,))
    return Family(rule, tuple((f"g{i}",) for i in range(n_groups)), np.array(groups, dtype=np.intp))
