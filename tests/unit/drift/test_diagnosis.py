from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import chi2

from stream_calib.drift.diagnosis import OutcomeSums, common_shift, most_uneven


def sums(groups: list[tuple[int, float, float]]) -> OutcomeSums:
    """Of (events, p, shift in log-odds), at the expectation."""
    n = np.array([g[0] for g in groups])
    p = np.array([g[1] for g in groups])
    outcome = expit(logit(p) + np.array([g[2] for g in groups]))
    return OutcomeSums(n, np.rint(n * outcome).astype(np.int64), n * p, n * p * (1 - p))


def test_q_and_the_shift_as_by_hand() -> None:
    groups = OutcomeSums(np.array([400, 900]), np.array([130, 200]), np.array([100.0, 180.0]), np.array([75.0, 144.0]))
    phi = 2.0
    weights, shifts = [], []
    for n, k, e, v in ((400, 130, 100.0, 75.0), (900, 200, 180.0, 144.0)):
        y, f = k / n, e / n
        information = v * (1 + y * (1 - y) / (f * (1 - f))) / 2
        weights.append(information / phi)
        shifts.append((k - e) / information)
    mean = math.fsum(w * d for w, d in zip(weights, shifts, strict=True)) / math.fsum(weights)
    q = math.fsum(w * (d - mean) ** 2 for w, d in zip(weights, shifts, strict=True))
    found = common_shift(groups, phi)
    assert found.shift == pytest.approx(mean, rel=1e-12)
    assert found.error == pytest.approx(1 / math.sqrt(math.fsum(weights)), rel=1e-12)
    assert found.q == pytest.approx(q, rel=1e-12)
    assert found.p_value == pytest.approx(chi2.sf(q, 1), rel=1e-9)


@pytest.mark.parametrize("shift", [-1.0, -0.3, 0.3, 1.0])
def test_one_shift_of_all_is_a_prior_shift_of_that_size(shift: float) -> None:
    found = common_shift(sums([(20_000, 0.05, shift), (50_000, 0.2, shift), (20_000, 0.6, shift)]), 1.0)
    assert found.kind == "prior_shift"
    assert found.shift == pytest.approx(shift, rel=0.08)


def test_a_shift_of_one_group_is_concept_drift_however_many_labels_there_are() -> None:
    assert common_shift(sums([(2_000, 0.3, 0.6), (30_000, 0.3, 0.0)]), 1.0).kind == "concept_drift"
    assert common_shift(sums([(2_000_000, 0.3, 0.6), (30_000_000, 0.3, 0.0)]), 1.0).kind == "concept_drift"


def test_too_few_labels_or_nothing_off_is_undetermined() -> None:
    assert common_shift(sums([(10, 0.3, 0.9), (10, 0.3, 0.0)]), 1.0).kind == "undetermined"
    alone = common_shift(sums([(5_000, 0.3, 0.9), (10, 0.3, 0.0)]), 1.0)
    assert alone.kind == "undetermined"
    assert math.isnan(alone.p_value)
    assert common_shift(sums([(5_000, 0.3, 0.0), (5_000, 0.6, 0.0)]), 1.0).kind == "undetermined"
    nothing = common_shift(sums([(0, 0.5, 0.0), (0, 0.5, 0.0)]), 1.0)
    assert (nothing.kind, math.isnan(nothing.shift)) == ("undetermined", True)


def test_of_several_partitions_the_most_uneven_counts_at_their_number() -> None:
    even, uneven = sums([(9_000, 0.3, 0.3), (9_000, 0.5, 0.3)]), sums([(9_000, 0.3, 0.7), (9_000, 0.3, 0.0)])
    found = most_uneven([(even, 1.0), (uneven, 1.5)])
    assert found.kind == "concept_drift"
    assert found.p_value == pytest.approx(min(1.0, 2 * common_shift(uneven, 1.5).p_value))
    assert most_uneven([(even, 1.0), (even, 1.0)]).kind == "prior_shift"
    assert most_uneven([]).kind == "undetermined"


def test_all_labels_of_one_class_have_a_shift() -> None:
    found = common_shift(
        OutcomeSums(np.array([900, 900]), np.array([900, 900]), np.full(2, 450.0), np.full(2, 225.0)), 1.0
    )
    assert found.kind == "prior_shift"
    assert found.shift > 2
