"""Theorem A: oracles that answer and order as badly as their tolerance allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.multicalibration.exact_population import (
    Population,
    PopulationCell,
    Report,
    make_population,
    shifted,
)
from stream_calib.calibration.multicalibration.oracle import Answer, Oracle, guarantee, multicalibrate_with_oracle
from stream_calib.errors import ConfigurationError, FitError
from tests.unit.calibration.multicalibration.populations import populations


@dataclass
class Adversary:
    """Chooses among the corners of what its tolerance allows; of several equally bad answers at random."""

    gamma: Fraction
    theta: Fraction
    tau: Fraction
    shrunk: bool
    random: Random = field(default_factory=lambda: Random(0))

    def corners(self, cell: PopulationCell) -> list[Answer]:
        moves = (-self.tau, Fraction(0), self.tau)
        found = [Answer(cell.mass + m, cell.residual_sum + a) for m in moves for a in moves]
        self.random.shuffle(found)
        return found

    def shift(self, answer: Answer) -> Fraction | None:
        """By which the cell would be shifted; None where it would be left."""
        if answer.mass < self.gamma - self.tau or abs(answer.residual) <= self.theta:
            return None
        error = 2 * self.tau / answer.mass if self.shrunk else Fraction(0)
        return answer.residual + (error if answer.residual < 0 else -error)

    def gain(self, cell: PopulationCell, answer: Answer) -> Fraction:
        shift = self.shift(answer) or Fraction(0)
        return cell.mass * shift * (2 * cell.residual - shift)


class Longest(Adversary):
    """Has every cell updated that it can, with the answers and in the order that gain least."""

    def answer(self, cells: Sequence[PopulationCell]) -> list[Answer]:
        return [
            min(self.corners(cell), key=lambda answer: (self.shift(answer) is None, self.gain(cell, answer)))
            for cell in cells
        ]

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        gains = [self.gain(cell, answer) for cell, answer in found]
        return gains.index(min(gains))


class Hiding(Adversary):
    """Has the run stopped as early as it can, with the largest residuals."""

    def answer(self, cells: Sequence[PopulationCell]) -> list[Answer]:
        return [
            min(self.corners(cell), key=lambda answer: (self.shift(answer) is not None, self.gain(cell, answer)))
            for cell in cells
        ]

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        return max(range(len(found)), key=lambda i: -abs(found[i][0].residual))


class Erratic(Adversary):
    """Any answers, in any order."""

    def answer(self, cells: Sequence[PopulationCell]) -> list[Answer]:
        return [self.corners(cell)[0] for cell in cells]

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        return self.random.randrange(len(found))


ADVERSARIES = [Longest, Hiding, Erratic]


def textbook(alpha: Fraction, gamma: Fraction) -> tuple[Fraction, Fraction]:
    """theta and tau."""
    return alpha, alpha * gamma / 8


def textbook_that_certifies_alpha(alpha: Fraction, gamma: Fraction) -> tuple[Fraction, Fraction]:
    return alpha * Fraction(7, 8), alpha * gamma / 17


def nearly_the_worst_tolerance(alpha: Fraction, gamma: Fraction) -> tuple[Fraction, Fraction]:
    """e0 just below theta / 2."""
    e0 = alpha / 2 * Fraction(95, 100)
    return alpha, gamma * e0 / (2 + e0)


def nearly_the_worst_tolerance_of_shrunk_shifts(alpha: Fraction, gamma: Fraction) -> tuple[Fraction, Fraction]:
    """e0 just below theta."""
    e0 = alpha * Fraction(95, 100)
    return alpha, gamma * e0 / (2 + e0)


CHOICES = [
    (textbook, False),
    (textbook, True),
    (textbook_that_certifies_alpha, False),
    (textbook_that_certifies_alpha, True),
    (nearly_the_worst_tolerance, False),
    (nearly_the_worst_tolerance, True),
    (nearly_the_worst_tolerance_of_shrunk_shifts, True),
]


@pytest.mark.parametrize(("parameters", "shrunk"), CHOICES)
@pytest.mark.parametrize("adversary", ADVERSARIES)
@given(populations(), st.sampled_from([4, 6, 8, 12]), st.sampled_from([5, 10, 15]), st.integers(0, 2**20))
@settings(max_examples=40)
def test_theorem_a_holds_for_the_worst_answers_in_the_worst_order(
    adversary: type[Longest] | type[Hiding] | type[Erratic],
    parameters: Callable[[Fraction, Fraction], tuple[Fraction, Fraction]],
    shrunk: bool,
    drawn: tuple[Population, Report],
    fortieths_of_gamma: int,
    fortieths_of_alpha: int,
    seed: int,
) -> None:
    gamma, alpha = Fraction(fortieths_of_gamma, 40), Fraction(fortieths_of_alpha, 40)
    theta, tau = parameters(alpha, gamma)
    population, report = drawn
    oracle = adversary(gamma, theta, tau, shrunk, Random(seed))
    run = multicalibrate_with_oracle(population, report, oracle, gamma=gamma, theta=theta, tau=tau, shrunk=shrunk)

    e0 = 2 * tau / (gamma - tau)
    gain = (theta - e0) ** 2 if shrunk else theta * (theta - 2 * e0)
    for update in run.updates:
        assert update.mass >= gamma - 2 * tau
        assert update.fall >= update.mass * update.shift * (2 * update.residual - update.shift)
        assert update.fall >= (gamma - 2 * tau) * gain
    assert len(run.updates) <= population.potential(report) / ((gamma - 2 * tau) * gain)
    assert run.worst_residual(gamma) <= theta + e0
    assert all(0 <= p <= 1 for p in run.report)
    promised = guarantee(gamma, theta, tau, shrunk=shrunk)
    assert (promised.residual_error, promised.fall, promised.certified) == (e0, (gamma - 2 * tau) * gain, theta + e0)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_the_textbook_choice_certifies_9_7_alpha_after_at_most_3_12_parts(a: int, g: int) -> None:
    alpha, gamma = Fraction(a, 1000), Fraction(g, 1000)
    found = guarantee(gamma, *textbook(alpha, gamma))
    assert found.certified <= Fraction(9, 7) * alpha
    assert found.most_updates(1) <= Fraction(28, 9) / (gamma * alpha**2) <= Fraction(312, 100) / (gamma * alpha**2)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_the_finer_textbook_choice_certifies_alpha_after_at_most_2_08_parts(a: int, g: int) -> None:
    alpha, gamma = Fraction(a, 1000), Fraction(g, 1000)
    found = guarantee(gamma, *textbook_that_certifies_alpha(alpha, gamma))
    assert found.certified <= alpha
    assert found.most_updates(1) <= Fraction(1088, 525) / (gamma * alpha**2) <= Fraction(208, 100) / (gamma * alpha**2)


def test_both_constants_are_reached_at_alpha_1() -> None:
    one = Fraction(1)
    coarse, fine = guarantee(one, *textbook(one, one)), guarantee(one, *textbook_that_certifies_alpha(one, one))
    assert (coarse.certified, coarse.most_updates(1)) == (Fraction(9, 7), Fraction(28, 9))
    assert (fine.certified, fine.most_updates(1)) == (one, Fraction(1088, 525))


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_shrunk_shifts_fall_further_for_the_same_tolerance(a: int, g: int) -> None:
    alpha, gamma = Fraction(a, 1000), Fraction(g, 1000)
    theta, tau = textbook(alpha, gamma)
    whole, shrunk = guarantee(gamma, theta, tau), guarantee(gamma, theta, tau, shrunk=True)
    assert shrunk.fall == whole.fall + (gamma - 2 * tau) * whole.residual_error**2
    assert shrunk.certified == whole.certified


class Heavier:
    """Says of every cell that it is heavier by tau, with its true residual sum."""

    def __init__(self, tau: Fraction) -> None:
        self.tau = tau

    def answer(self, cells: Sequence[PopulationCell]) -> list[Answer]:
        return [Answer(cell.mass + self.tau, cell.residual_sum) for cell in cells]

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        return 0


@pytest.mark.parametrize(("truth", "sign"), [(0.9, 1), (0.1, -1)])
@pytest.mark.parametrize("shrunk", [False, True])
def test_shrunk_shifts_are_shorter_by_what_the_answer_may_be_off(truth: float, sign: int, shrunk: bool) -> None:
    population = make_population([1], [truth], {"all": [True]}, [0, 1])
    tau = Fraction(1, 50)
    run = multicalibrate_with_oracle(population, [0.5], Heavier(tau), gamma=1, theta=0.2, tau=tau, shrunk=shrunk)
    answered = Fraction(4, 10) / (1 + tau)
    assert [u.shift for u in run.updates] == [sign * (answered - (2 * tau / (1 + tau) if shrunk else 0))]


@given(populations(), st.sampled_from([8, 12, 20]))
def test_answers_misjudge_residuals_by_less_where_these_are_small(
    drawn: tuple[Population, Report], fortieths_of_gamma: int
) -> None:
    """By (1 + |r|) tau / mu^ at most, which theorem A bounds by 2 tau / mu^."""
    population, report = drawn
    gamma = Fraction(fortieths_of_gamma, 40)
    tau = gamma / 9
    adversary = Erratic(gamma, gamma, tau, False)
    for cell in population.audit(report):
        for answer in adversary.corners(cell):
            if answer.mass >= gamma - tau:
                most = (1 + abs(cell.residual)) * tau / answer.mass
                assert abs(answer.residual - cell.residual) <= most <= 2 * tau / answer.mass


def test_an_adversary_does_harm() -> None:
    """Of the same population: more updates than with true answers, and a worse end."""
    groups = {"a": [True, True, False], "b": [False, True, True], "c": [True, False, True]}
    population = make_population([1, 1, 1], [0.9, 0.2, 0.65], groups, [0, 1])
    start = population.report([0.5] * 3)
    gamma, theta = Fraction(1, 2), Fraction(1, 10)
    _, tau = nearly_the_worst_tolerance(theta, gamma)

    def run(kind: type[Longest] | type[Hiding], tolerance: Fraction) -> tuple[int, Fraction]:
        oracle = kind(gamma, theta, tolerance, shrunk=False)
        found = multicalibrate_with_oracle(population, start, oracle, gamma=gamma, theta=theta, tau=tolerance)
        return len(found.updates), found.worst_residual(gamma)

    assert run(Longest, tau)[0] > run(Longest, Fraction(0))[0]
    assert run(Hiding, tau)[1] > theta


@pytest.mark.parametrize("pulls", [10, 200])
def test_an_error_of_the_residual_of_half_of_theta_bounds_nothing(pulls: int) -> None:
    """A point of half the mass is pushed to and fro by groups that it shares with one light point each.

    Every answer is within alpha / 2 and every update beyond alpha. From a potential that stays at 1.25 gamma alpha^2
    or less there are as many updates as there are groups.
    """
    alpha = Fraction(1, 10)
    light = Fraction(1, 2 * pulls)
    signs = [1 if k % 2 == 0 else -1 for k in range(pulls)]
    population = make_population(
        [Fraction(1, 2), *[light] * pulls],
        [Fraction(1, 2) + alpha / 2, *(Fraction(1, 2) + sign * alpha for sign in signs)],
        {str(k): [True, *(j == k for j in range(pulls))] for k in range(pulls)},
        [0, 1],
    )
    gamma = Fraction(1, 2) + light
    report = start = population.report([Fraction(1, 2)] * (pulls + 1))
    answered = alpha + light * alpha / 2 / gamma
    updates = 0
    for sign, cell in zip(signs, population.audit(report), strict=True):
        now = next(found for found in population.audit(report) if found.group == cell.group)
        assert now.mass == gamma
        assert abs(sign * answered - now.residual) <= alpha / 2
        assert answered > alpha
        before, report = report, shifted(report, now.points, sign * answered)
        assert population.potential(report) < population.potential(before)
        updates += 1
    assert updates == pulls
    assert population.potential(start) <= Fraction(5, 4) * gamma * alpha**2


def test_the_theorem_refuses_that_error_for_whole_shifts_only() -> None:
    alpha, gamma = Fraction(1, 10), Fraction(1, 5)
    tau = gamma * alpha / (4 + alpha)
    with pytest.raises(
        ConfigurationError, match=r"theta = 0\.1 must be more than twice that; raise theta or lower tau"
    ):
        guarantee(gamma, alpha, tau)
    assert guarantee(gamma, alpha, tau, shrunk=True).residual_error == alpha / 2


# --- refusals


class Fixed:
    """Always the same answer."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers

    def answer(self, cells: Sequence[PopulationCell]) -> Sequence[Answer]:
        return self.answers

    def choose(self, found: Sequence[tuple[PopulationCell, Answer]]) -> int:
        return 0


@pytest.mark.parametrize(
    ("oracle", "message"),
    [
        (Fixed(), "0 answers for 1 cells"),
        (Fixed(Answer(Fraction(1), Fraction(1, 4))), "group 'all', interval 0 is off by 0.05; its tolerance is 0.02"),
        (Fixed(Answer(Fraction(3, 4), Fraction(1, 5))), "is off by 0.25"),
    ],
)
def test_an_oracle_beyond_its_tolerance_is_found_out(oracle: Oracle, message: str) -> None:
    population = make_population([1], [0.7], {"all": [True]}, [0, 1])
    with pytest.raises(FitError, match=message):
        multicalibrate_with_oracle(population, [0.5], oracle, gamma=0.5, theta=0.2, tau=0.02)


@pytest.mark.parametrize(
    ("gamma", "theta", "tau", "shrunk"),
    [
        (0, 0.1, 0, False),
        (1.1, 0.1, 0, False),
        (0.5, 0, 0, False),
        (0.5, 2, 0, True),
        (0.5, 0.1, 0.25, True),
        (0.5, 0.1, -0.01, False),
        (0.5, 0.1, 0.02, False),
        (0.5, 0.1, 0.03, True),
    ],
)
def test_parameters_beyond_the_theorem_are_refused(gamma: float, theta: float, tau: float, shrunk: bool) -> None:
    with pytest.raises(ConfigurationError, match=r"must lie in \(0, 1\]|must be more than"):
        guarantee(gamma, theta, tau, shrunk=shrunk)


def test_answered_residuals_are_cut_to_what_residuals_can_be() -> None:
    assert Answer(Fraction(1, 10), Fraction(3, 10)).residual == 1
    assert Answer(Fraction(1, 10), Fraction(-3, 10)).residual == -1
    assert Answer(Fraction(1, 2), Fraction(1, 10)).residual == Fraction(1, 5)
