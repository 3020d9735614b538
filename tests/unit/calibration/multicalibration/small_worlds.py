"""Small laws of (signature, grid bin, label) whose masses, residuals and potentials are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS
from stream_calib.calibration.groups import Family, FamilyRule, Signature, families_up_to, make_family
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.multicalibration.audit import EVERYTHING, FamilyAudit, audit
from stream_calib.calibration.multicalibration.target import AuditTarget

ATTRIBUTES = ("country", "device")
SIGNATURES: tuple[Signature, ...] = tuple((f"c{i}", f"d{j}") for i in range(6) for j in range(3))
BINS = np.arange(121, 281, 8)
RULES: tuple[FamilyRule, ...] = tuple(families_up_to(2, ATTRIBUTES))
FAMILIES: list[Family] = [make_family(rule, SIGNATURES) for rule in RULES]
ALL_FAMILIES: list[Family] = [make_family(EVERYTHING, SIGNATURES), *FAMILIES]
IDENTITY = MapParts(BaseMap(CENTRE_LOG_ODDS[1:-1], expit(CENTRE_LOG_ODDS[1:-1]), 1e-6, 1e-6))


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Columns (k,): `signature`, `grid_bin`, `mass` (adding up to 1), `truth` P(label = 1)."""

    signature: NDArray[np.intp]
    grid_bin: NDArray[np.intp]
    mass: NDArray[np.float64]
    truth: NDArray[np.float64]

    def cells(self, rows: int, random: np.random.Generator) -> LabelledCells:
        """So many independent rows."""
        labelled = random.multinomial(rows, self.mass)
        positives = random.binomial(labelled, self.truth)
        return LabelledCells(
            SIGNATURES, self.signature, self.grid_bin, labelled.astype(np.float64), positives.astype(np.float64)
        )

    def reports(self, parts: MapParts) -> NDArray[np.float64]:
        """The map's probabilities (k,)."""
        return ServedMap(parts).at_centres(self.grid_bin, self.signature, SIGNATURES)

    def potential(self, parts: MapParts) -> float:
        """E(eta - f)^2."""
        return float((self.mass * (self.truth - self.reports(parts)) ** 2).sum())

    def audits(self, parts: MapParts, target: AuditTarget) -> list[FamilyAudit]:
        """True sums: `rows` are masses mu, `residual` r."""
        exact = LabelledCells(SIGNATURES, self.signature, self.grid_bin, self.mass, self.mass * self.truth)
        return audit(exact, self.reports(parts), ALL_FAMILIES, target)


def world(seed: int, shift: float = 0.0, patched: Sequence[str] = ("c0", "c1")) -> World:
    """A law whose scores are right, but for the countries `patched`, where the truth is higher by `shift`."""
    random = np.random.default_rng(seed)
    signature = np.repeat(np.arange(len(SIGNATURES)), len(BINS))
    grid_bin = np.tile(BINS, len(SIGNATURES))
    mass = random.dirichlet(np.full(len(signature), 2.0))
    country = np.array([values[0] in patched for values in SIGNATURES])[signature]
    truth = np.clip(ServedMap(IDENTITY).at_centres(grid_bin, signature, SIGNATURES) + shift * country, 0.0, 1.0)
    return World(signature, grid_bin, mass, truth)
