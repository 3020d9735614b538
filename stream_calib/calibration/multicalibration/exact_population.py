"""A finite population whose masses and truths are known, in exact arithmetic.

Everything is a fraction, so statements about potentials and residuals hold or fail as in the theory, without a
tolerance. A float is read as the decimal that it prints as: .1 is one tenth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    NonFiniteInputError,
    ScoreRangeError,
    WeightError,
)

Number = int | float | Decimal | Fraction
"""NumPy's scalars too."""

Report = tuple[Fraction, ...]
"""One probability for each of the n points."""


@dataclass(frozen=True, slots=True)
class PopulationCell:
    """One audit cell: the points of a group whose reports lie in an interval. It has points."""

    group: str
    interval: int
    points: tuple[int, ...]
    mass: Fraction
    """mu = P(cell) > 0."""
    residual_sum: Fraction
    """a = E[1_cell (truth - report)]."""

    @property
    def residual(self) -> Fraction:
        """r = a / mu, in [-1, 1]."""
        return self.residual_sum / self.mass


@dataclass(frozen=True, slots=True)
class Population:
    """n points: `mass` (n,) > 0 with sum 1, `truth` (n,) in [0, 1], groups of points, intervals of reports.

    `groups`: name -> the group's points. `edges` (m + 1,): interval j is [edges[j], edges[j + 1]), the last one closed.
    Made by `make_population`, which checks all of this.
    """

    mass: tuple[Fraction, ...]
    truth: tuple[Fraction, ...]
    groups: Mapping[str, tuple[int, ...]]
    edges: tuple[Fraction, ...]

    def report(self, values: Sequence[Number]) -> Report:
        """Probabilities (n,) as fractions. Raises LengthMismatchError, NonFiniteInputError, ScoreRangeError."""
        exact = tuple(exact_number(value, "report") for value in values)
        if len(exact) != len(self.mass):
            raise LengthMismatchError(f"{len(exact)} reports for {len(self.mass)} points; give one a point")
        if not all(0 <= value <= 1 for value in exact):
            raise ScoreRangeError("reports must be probabilities in [0, 1]")
        return exact

    def potential(self, report: Report) -> Fraction:
        """Phi = E (truth - report)^2."""
        terms = zip(self.mass, self.truth, report, strict=True)
        return sum((mass * (truth - p) ** 2 for mass, truth, p in terms), Fraction(0))

    def audit(self, report: Report) -> list[PopulationCell]:
        """All audit cells that have points, in the order of the groups, then of the intervals."""
        inner = self.edges[1:-1]
        interval = [bisect_right(inner, p) for p in report]
        short = [mass * (truth - p) for mass, truth, p in zip(self.mass, self.truth, report, strict=True)]
        cells = []
        for group, members in self.groups.items():
            by_interval: dict[int, list[int]] = {}
            for point in members:
                by_interval.setdefault(interval[point], []).append(point)
            for j, points in sorted(by_interval.items()):
                mass = sum((self.mass[point] for point in points), Fraction(0))
                residual_sum = sum((short[point] for point in points), Fraction(0))
                cells.append(PopulationCell(group, j, tuple(points), mass, residual_sum))
        return cells


def make_population(
    mass: Sequence[Number],
    truth: Sequence[Number],
    groups: Mapping[str, Sequence[bool]],
    intervals: Sequence[Number],
) -> Population:
    """A population of n points.

    `mass` (n,) > 0, scaled to sum 1; `truth` (n,) in [0, 1]: the probability of a positive at each point; `groups`:
    name -> whether each of the n points is in it; `intervals` (m + 1,): edges that increase from 0 to 1. Raises
    LengthMismatchError, NonFiniteInputError, WeightError, ScoreRangeError, FitError where there are no points,
    ConfigurationError for edges that do not increase from 0 to 1.
    """
    weights = [exact_number(value, "mass") for value in mass]
    exact_truth = tuple(exact_number(value, "truth") for value in truth)
    if not weights:
        raise FitError("a population needs at least one point")
    for name, column in (("truth", exact_truth), *((f"group {name!r}", members) for name, members in groups.items())):
        if len(column) != len(weights):
            raise LengthMismatchError(f"{name} has {len(column)} entries for {len(weights)} points; give one a point")
    if min(weights) <= 0:
        raise WeightError("masses must be above 0; leave points without mass out")
    if not all(0 <= value <= 1 for value in exact_truth):
        raise ScoreRangeError("truths must be probabilities in [0, 1]")
    edges = tuple(exact_number(value, "edge of an interval") for value in intervals)
    if len(edges) < 2 or edges[0] != 0 or edges[-1] != 1 or any(a >= b for a, b in pairwise(edges)):
        raise ConfigurationError(f"edges of intervals must increase from 0 to 1; got {[float(e) for e in edges[:20]]}")
    total = sum(weights, Fraction(0))
    points = {name: tuple(i for i, inside in enumerate(members) if inside) for name, members in groups.items()}
    return Population(tuple(weight / total for weight in weights), exact_truth, points, edges)


def exact_number(value: Number, name: str) -> Fraction:
    """The number as a fraction, a float as the decimal that it prints as. Raises NonFiniteInputError."""
    if isinstance(value, Fraction):
        return value
    try:
        return Fraction(str(value))
    except ValueError:
        raise NonFiniteInputError(f"{name} {value!r} is no finite number") from None


def shifted(report: Report, points: Sequence[int], shift: Fraction) -> Report:
    """The report with `shift` added at some points, clipped to [0, 1]."""
    changed = list(report)
    for point in points:
        changed[point] = min(max(changed[point] + shift, Fraction(0)), Fraction(1))
    return tuple(changed)
