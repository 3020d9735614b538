"""Multicalibration where masses and truths are known: the population form of the algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stream_calib.calibration.multicalibration.exact_population import Number, PopulationCell, make_population
from stream_calib.calibration.multicalibration.oracle import Answer, Run, multicalibrate_with_oracle


def multicalibrate_population(
    mass: Sequence[Number],
    truth: Sequence[Number],
    report: Sequence[Number],
    groups: Mapping[str, Sequence[bool]],
    intervals: Sequence[Number],
    alpha: Number,
    gamma: Number,
) -> Run:
    """While an audit cell of mass >= `gamma` has a mean residual |r| > `alpha`: shifts its reports by r.

    Of n points: `mass` (n,) > 0, scaled to sum 1; `truth` and `report` (n,) in [0, 1]; `groups`: name -> whether each
    point is in it; `intervals`: edges (m + 1,) from 0 to 1. An audit cell is (group, interval of the current report);
    updated is the one with the largest mass x r^2, of equal ones the first in the order of groups, then of intervals.

    Arithmetic is exact: floats are read as the decimals that they print as, and the run holds fractions. Every update
    lowers the potential E (truth - report)^2 by at least gamma alpha^2, so there are at most that potential / (gamma
    alpha^2) of them (Hebert-Johnson, Kim, Reingold, Rothblum, "Multicalibration: calibration for the (computationally-
    identifiable) masses", ICML 2018, section 3; docs/theory.md). Raises the errors of `make_population` and
    ConfigurationError unless alpha and gamma lie in (0, 1].
    """
    population = make_population(mass, truth, groups, intervals)
    return multicalibrate_with_oracle(population, report, _TrueAnswers(), gamma=gamma, theta=alpha, tau=0)


class _TrueAnswers:
    """The oracle of tolerance 0, which chooses the update that lowers the potential most."""

    def answer(self, cells: Sequence[PopulationCell]) -> list[Answer]:
        return [Answer(cell.mass, cell.residual_sum) for cell in cells]

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        falls = [cell.mass * cell.residual**2 for cell, _ in found]
        return falls.index(max(falls))
