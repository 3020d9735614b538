"""Theorem A: multicalibration with an oracle that answers audits within a tolerance, and chooses their order.

The oracle may answer as badly as its tolerance allows and choose the worst cell each time. It is the theory's model of
estimation, not a way to fit to data: sample sizes that make estimates such an oracle are astronomical (docs/theory.md);
data are fitted with fresh confirmation and a certificate instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from stream_calib.calibration.multicalibration.exact_population import (
    Number,
    Population,
    PopulationCell,
    Report,
    exact_number,
    shifted,
)
from stream_calib.errors import ConfigurationError, FitError


@dataclass(frozen=True, slots=True)
class Answer:
    """What an oracle says of a cell: mu^ and a^, each within the tolerance of the truth."""

    mass: Fraction
    residual_sum: Fraction

    @property
    def residual(self) -> Fraction:
        """r^ = a^ / mu^, cut to [-1, 1]. The mass must be above 0."""
        return min(max(self.residual_sum / self.mass, Fraction(-1)), Fraction(1))


class Oracle(Protocol):
    """Answers audits and chooses among the cells that are found to be off."""

    def answer(self, cells: Sequence[PopulationCell]) -> Sequence[Answer]:
        """One answer for each cell of the current report, in the same order."""

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        """Place in `found`, which is not empty, of the cell to be updated next."""


@dataclass(frozen=True, slots=True)
class Update:
    """One update: the report of the cell's points was shifted by `shift` and clipped to [0, 1]."""

    group: str
    interval: int
    shift: Fraction
    mass: Fraction
    """mu of the cell, its true mass."""
    residual: Fraction
    """r of the cell before, its true mean residual."""
    potential_before: Fraction
    potential_after: Fraction

    @property
    def fall(self) -> Fraction:
        """By how much the potential fell."""
        return self.potential_before - self.potential_after


@dataclass(frozen=True, slots=True)
class Run:
    """Where the updates led: the last report (n,), each update, and the true audit of the last report."""

    report: Report
    updates: tuple[Update, ...]
    potential: Fraction
    audit: tuple[PopulationCell, ...]

    def worst_residual(self, gamma: Number) -> Fraction:
        """Largest |r| of the cells of mass >= `gamma`; 0 where there are none."""
        least = exact_number(gamma, "gamma")
        return max((abs(cell.residual) for cell in self.audit if cell.mass >= least), default=Fraction(0))


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What theorem A says for cells of mass >= gamma, answers within tau and updates beyond theta."""

    residual_error: Fraction
    """e0: the most by which the residual of an audited cell is misjudged."""
    fall: Fraction
    """The least by which each update lowers the potential."""
    certified: Fraction
    """At the stop every cell of mass >= gamma has |r| at most this."""

    def most_updates(self, potential: Number) -> Fraction:
        """The most updates from a report of this potential."""
        return exact_number(potential, "potential") / self.fall


def guarantee(gamma: Number, theta: Number, tau: Number = 0, *, shrunk: bool = False) -> Guarantee:
    """Theorem A's constants (docs/theory.md): e0 = 2 tau / (gamma - tau), certified theta + e0, and the fall.

    Each fall is at least (gamma - 2 tau) theta (theta - 2 e0), which needs e0 < theta / 2; with `shrunk` shifts it is
    at least (gamma - 2 tau) (theta - e0)^2, which needs e0 < theta. tau = 0 is the population theorem. Raises
    ConfigurationError where the assumptions do not hold: 0 < gamma <= 1, 0 < theta <= 1, 0 <= tau < gamma / 2, e0.
    """
    least, threshold, tolerance = _exact(gamma, theta, tau)
    e0 = 2 * tolerance / (least - tolerance)
    if e0 >= (threshold if shrunk else threshold / 2):
        raise ConfigurationError(
            f"answers within tau = {float(tolerance):g} misjudge residuals by up to e0 = {float(e0):g}, and theta = "
            f"{float(threshold):g} must be more than {'' if shrunk else 'twice '}that; raise theta or lower tau"
        )
    gain = (threshold - e0) ** 2 if shrunk else threshold * (threshold - 2 * e0)
    return Guarantee(e0, (least - 2 * tolerance) * gain, threshold + e0)


def multicalibrate_with_oracle(
    population: Population,
    report: Sequence[Number],
    oracle: Oracle,
    *,
    gamma: Number,
    theta: Number,
    tau: Number,
    shrunk: bool = False,
) -> Run:
    """While a cell of answered mass >= gamma - tau has an answered |r^| > theta: shifts its reports by r^.

    `report` (n,): where to begin. `shrunk` shifts by sgn(r^) (|r^| - 2 tau / mu^) instead. Ends after at most
    `guarantee(...).most_updates(...)` updates. Raises ConfigurationError as `guarantee`, FitError for an oracle that
    answers beyond its tolerance, and the errors of `Population.report`.
    """
    guarantee(gamma, theta, tau, shrunk=shrunk)
    least, threshold, tolerance = _exact(gamma, theta, tau)
    current = population.report(report)
    potential = population.potential(current)
    updates: list[Update] = []
    while True:
        cells = population.audit(current)
        answers = oracle.answer(cells)
        _check_answers(cells, answers, tolerance)
        found = [
            (cell, answer)
            for cell, answer in zip(cells, answers, strict=True)
            if answer.mass >= least - tolerance and abs(answer.residual) > threshold
        ]
        if not found:
            return Run(current, tuple(updates), potential, tuple(cells))
        cell, answer = found[oracle.choose(found)]
        shift = answer.residual
        if shrunk:
            error = 2 * tolerance / answer.mass
            shift += error if shift < 0 else -error
        current = shifted(current, cell.points, shift)
        before, potential = potential, population.potential(current)
        updates.append(Update(cell.group, cell.interval, shift, cell.mass, cell.residual, before, potential))


def _exact(gamma: Number, theta: Number, tau: Number) -> tuple[Fraction, Fraction, Fraction]:
    least, threshold = exact_number(gamma, "gamma"), exact_number(theta, "theta")
    tolerance = exact_number(tau, "tau")
    if not (0 < least <= 1 and 0 < threshold <= 1 and 0 <= 2 * tolerance < least):
        raise ConfigurationError(
            f"gamma = {gamma} and the threshold of residuals = {theta} must lie in (0, 1], the answers' tolerance "
            f"tau = {tau} in [0, gamma / 2)"
        )
    return least, threshold, tolerance


def _check_answers(cells: Sequence[PopulationCell], answers: Sequence[Answer], tolerance: Fraction) -> None:
    if len(answers) != len(cells):
        raise FitError(f"the oracle gave {len(answers)} answers for {len(cells)} cells; it must answer each")
    for cell, answer in zip(cells, answers, strict=True):
        off = max(abs(answer.mass - cell.mass), abs(answer.residual_sum - cell.residual_sum))
        if off > tolerance:
            raise FitError(
                f"the oracle's answer for group {cell.group!r}, interval {cell.interval} is off by {float(off):g}; its "
                f"tolerance is {float(tolerance):g}"
            )
