"""The lemma and the population form, in exact arithmetic."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.multicalibration.exact_population import (
    Number,
    Population,
    PopulationCell,
    Report,
    make_population,
    shifted,
)
from stream_calib.calibration.multicalibration.oracle import Answer, guarantee, multicalibrate_with_oracle
from stream_calib.calibration.multicalibration.population import multicalibrate_population
from stream_calib.errors import (
    ConfigurationError,
    FitError,
    LengthMismatchError,
    NonFiniteInputError,
    ScoreRangeError,
    WeightError,
)
from tests.unit.calibration.multicalibration.populations import populations

FOUR_POINTS: dict[str, Any] = {
    "mass": [1, 1, 1, 1],
    "truth": [0.9, 0.5, 0.1, 0.5],
    "report": [0.5, 0.5, 0.5, 0.5],
    "groups": {"C1": [True, True, False, False], "C2": [False, True, True, False]},
    "intervals": [0, 0.5, 1],
    "alpha": 0.1,
    "gamma": 0.5,
}

shifts = st.integers(-40, 40).map(lambda k: Fraction(k, 20))
sizes = st.integers(1, 10).map(lambda k: Fraction(k, 20))
"""Of alpha and gamma."""


# --- the lemma


@given(populations(), st.data())
def test_a_shift_lowers_the_potential_by_what_the_lemma_says_and_clipping_only_helps(
    drawn: tuple[Population, Report], data: st.DataObject
) -> None:
    population, report = drawn
    cell, shift = data.draw(st.sampled_from(population.audit(report))), data.draw(shifts)
    after = shifted(report, cell.points, shift)
    fall = population.potential(report) - population.potential(after)
    promised = cell.mass * (cell.residual**2 - (cell.residual - shift) ** 2)
    assert fall >= promised
    if all(after[point] == report[point] + shift for point in cell.points):
        assert fall == promised


def test_shifted_reports_are_clipped() -> None:
    report = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
    assert shifted(report, (0, 2), Fraction(-1, 5)) == (Fraction(0), Fraction(1, 2), Fraction(7, 10))
    assert shifted(report, (0, 2), Fraction(1, 5)) == (Fraction(3, 10), Fraction(1, 2), Fraction(1))


@given(populations(), st.data())
def test_shifts_of_disjoint_cells_add(drawn: tuple[Population, Report], data: st.DataObject) -> None:
    population, report = drawn
    group = data.draw(st.sampled_from(sorted(population.groups)))
    cells = [cell for cell in population.audit(report) if cell.group == group]
    moved = [(cell, data.draw(shifts)) for cell in cells]
    together, alone = report, Fraction(0)
    for cell, shift in moved:
        together = shifted(together, cell.points, shift)
        alone += population.potential(report) - population.potential(shifted(report, cell.points, shift))
    assert population.potential(report) - population.potential(together) == alone


# --- the textbook's four points


def test_the_four_points_to_the_last_digit() -> None:
    run = multicalibrate_population(**FOUR_POINTS)
    tenth = Fraction(1, 10)
    assert [(u.group, u.interval, u.shift, u.mass) for u in run.updates] == [
        ("C1", 1, 2 * tenth, 5 * tenth),
        ("C2", 1, -3 * tenth, 5 * tenth),
    ]
    potentials = [run.updates[0].potential_before, *(u.potential_after for u in run.updates)]
    assert [float(p) for p in potentials] == [0.08, 0.06, 0.015]
    assert potentials == [Fraction(8, 100), Fraction(6, 100), Fraction(15, 1000)]
    assert run.updates[1].potential_before == run.updates[0].potential_after
    assert [float(p) for p in run.report] == [0.7, 0.4, 0.2, 0.5]
    assert run.potential == Fraction(15, 1000)


def test_the_next_audit_of_the_four_points_finds_the_points_of_c1_in_different_intervals() -> None:
    run = multicalibrate_population(**FOUR_POINTS)
    found = [(cell.group, cell.interval, cell.points, float(cell.residual)) for cell in run.audit]
    assert found == [("C1", 0, (1,), 0.1), ("C1", 1, (0,), 0.2), ("C2", 0, (1, 2), 0.0)]
    assert run.worst_residual(0.5) == 0
    assert run.worst_residual(0.25) == Fraction(1, 5)


def test_the_four_points_with_smaller_cells_go_on_until_those_are_right_too() -> None:
    run = multicalibrate_population(**FOUR_POINTS | {"gamma": 0.25})
    assert [(u.group, u.interval, float(u.shift)) for u in run.updates] == [
        ("C1", 1, 0.2),
        ("C2", 1, -0.3),
        ("C1", 1, 0.2),
    ]
    assert [float(u.potential_after) for u in run.updates] == [0.06, 0.015, 0.005]
    assert run.worst_residual(0.25) == Fraction(1, 10)  # not beyond alpha


# --- the population's bound


class WorstOrder:
    """Knows the truth, and always has the update made that helps least."""

    def answer(self, cells: Sequence[PopulationCell]) -> list[Answer]:
        return [Answer(cell.mass, cell.residual_sum) for cell in cells]

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        falls = [cell.mass * cell.residual**2 for cell, _ in found]
        return falls.index(min(falls))


@given(populations(), sizes, sizes, st.booleans())
@settings(max_examples=300)
def test_the_number_of_updates_each_fall_and_the_end_are_as_the_theorem_says(
    drawn: tuple[Population, Report], alpha: Fraction, gamma: Fraction, worst_order: bool
) -> None:
    population, report = drawn
    if worst_order:
        run = multicalibrate_with_oracle(population, report, WorstOrder(), gamma=gamma, theta=alpha, tau=0)
    else:
        masks = {name: [i in points for i in range(len(report))] for name, points in population.groups.items()}
        run = multicalibrate_population(
            population.mass, population.truth, report, masks, population.edges, alpha, gamma
        )
    start = population.potential(report)
    assert len(run.updates) <= start / (gamma * alpha**2)
    for update in run.updates:
        assert update.mass >= gamma
        assert abs(update.residual) > alpha
        assert update.shift == update.residual
        assert update.fall >= update.mass * update.residual**2 >= gamma * alpha**2
    assert start - sum(update.fall for update in run.updates) == run.potential == population.potential(run.report)
    assert run.worst_residual(gamma) <= alpha
    assert list(run.audit) == population.audit(run.report)


def test_the_bound_is_attained() -> None:
    """Disjoint groups of mass gamma, each off by hardly more than alpha."""
    n, alpha = 50, Fraction(1, 10)
    groups = {str(i): [i == j for j in range(n)] for i in range(n)}
    run = multicalibrate_population([1] * n, [0.601] * n, [0.5] * n, groups, [0, 1], alpha, Fraction(1, n))
    assert len(run.updates) == n
    bound = run.updates[0].potential_before / (Fraction(1, n) * alpha**2)
    assert n <= bound < n * 1.03


def test_the_largest_fall_comes_first() -> None:
    groups = {"c": [False, False, True], "b": [False, True, False], "a": [True, False, False]}
    run = multicalibrate_population([1, 2, 3], [0.9, 0.7, 0.65], [0.5] * 3, groups, [0, 1], 0.1, 0.1)
    falls = [float(update.fall * 6) for update in run.updates]
    assert falls == [0.16, 0.08, 0.0675]


def test_a_multicalibrated_report_is_left_as_it_is() -> None:
    run = multicalibrate_population(**FOUR_POINTS | {"report": FOUR_POINTS["truth"]})
    assert run.updates == ()
    assert run.potential == 0


def test_theorem_a_with_exact_answers_has_the_bound_of_the_population() -> None:
    exact = guarantee(Fraction(1, 50), Fraction(1, 20))
    assert (exact.residual_error, exact.certified) == (Fraction(0), Fraction(1, 20))
    assert exact.most_updates(1) == 20_000 == 1 / (Fraction(1, 50) * Fraction(1, 20) ** 2)


# --- what is read


@pytest.mark.parametrize("tenth", [0.1, np.float64(0.1), Decimal("0.1"), Fraction(1, 10)])
def test_numbers_are_the_decimals_that_they_print_as(tenth: Number) -> None:
    population = make_population([1, 2], [tenth, 0], {}, [0, 1])
    assert population.truth == (Fraction(1, 10), Fraction(0))
    assert population.mass == (Fraction(1, 3), Fraction(2, 3))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"mass": []}, FitError, "at least one point"),
        ({"mass": [1, 1, 1, 0]}, WeightError, "masses must be above 0"),
        ({"mass": [1, 1, 1]}, LengthMismatchError, "truth has 4 entries for 3 points"),
        ({"report": [0.5]}, LengthMismatchError, "1 reports for 4 points"),
        ({"groups": {"C1": [True]}}, LengthMismatchError, "group 'C1' has 1 entries for 4 points"),
        ({"truth": [0.9, 0.5, 0.1, float("nan")]}, NonFiniteInputError, "truth nan is no finite number"),
        ({"report": [0.9, 0.5, 0.1, float("inf")]}, NonFiniteInputError, "report inf is no finite number"),
        ({"truth": [0.9, 0.5, 0.1, 1.1]}, ScoreRangeError, "truths must be probabilities"),
        ({"report": [-0.1, 0.5, 0.1, 1]}, ScoreRangeError, "reports must be probabilities"),
        ({"intervals": [0, 0.5, 0.5, 1]}, ConfigurationError, "increase from 0 to 1"),
        ({"intervals": [0.1, 1]}, ConfigurationError, "increase from 0 to 1"),
        ({"intervals": [0]}, ConfigurationError, "increase from 0 to 1"),
        ({"alpha": 0}, ConfigurationError, r"must lie in \(0, 1\]"),
        ({"alpha": 1.5}, ConfigurationError, r"must lie in \(0, 1\]"),
        ({"gamma": 0}, ConfigurationError, r"must lie in \(0, 1\]"),
    ],
)
def test_what_is_no_population_is_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        multicalibrate_population(**FOUR_POINTS | changed)
