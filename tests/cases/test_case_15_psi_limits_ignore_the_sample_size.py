"""A fixed limit of PSI, as .1, asked for rebuilds all the time where samples are small, because PSI under no change is
not 0 but about (bins - 1) (1/n + 1/m), and seldom enough where they are large.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.drift import counts_of, look_at, reference_of

TAIL = 0.05
"""The probability of an alarm at each look under no change, here."""


def test_windows_of_the_reference_itself_do_not_alarm_more_than_the_tail_says() -> None:
    rng = np.random.default_rng(15)
    reference = reference_of(counts_of(rng.random(100_000)))
    looks = [look_at(reference, counts_of(rng.random(40)), TAIL) for _ in range(200)]
    assert np.mean([found.psi[0] > 0.1 for found in looks]) > 0.8  # so a fixed limit would do
    assert sum(bool(found.alarm[0]) for found in looks) <= 10


@pytest.mark.parametrize("rows", [10, 40, 200, 1_000])
@pytest.mark.parametrize("fit_rows", [400, 50_000])
def test_nor_with_other_sizes_of_window_and_reference(rows: int, fit_rows: int) -> None:
    rng = np.random.default_rng(rows + fit_rows)
    alarms = 0
    for _ in range(100):
        reference = reference_of(counts_of(rng.random(fit_rows)))
        alarms += bool(look_at(reference, counts_of(rng.random(rows)), TAIL).alarm[0])
    assert alarms <= 5


def test_a_true_change_over_enough_rows_alarms() -> None:
    rng = np.random.default_rng(16)
    reference = reference_of(counts_of(rng.random(100_000)))
    assert look_at(reference, counts_of(rng.beta(2, 1, 5_000)), 1e-5).alarm[0]
    # So small a change that its PSI is above the limit by little only shows in many rows.
    small, large = (counts_of(rng.random(n) ** 1.4) for n in (40, 100_000))
    assert not look_at(reference, small, 1e-5).alarm[0]
    assert look_at(reference, large, 1e-5, threshold=0.05).alarm[0]
