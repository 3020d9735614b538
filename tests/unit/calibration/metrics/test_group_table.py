import numpy as np
import pytest
from scipy.stats import binomtest

from stream_calib.calibration.metrics import EVERYTHING, group_table, group_table_of_counts

DRAWS = 2000


def test_lines_by_hand() -> None:
    y = np.array([1, 0, 0, 1, 1, 0, 0, 0])
    p = np.array([0.5, 0.5, 0.1, 0.9, 0.9, 0.2, 0.2, 0.3])
    table = group_table(y, p, [[5, 5, 5, 5, 9, 9, 9, 9], [-1, -1, 0, 0, 0, 0, -1, -1]], confidence=0.9)
    assert table.family.tolist() == [EVERYTHING, 0, 0, 1]
    assert table.group.tolist() == [0, 5, 9, 0]
    assert table.labelled.tolist() == [8, 4, 4, 4]
    assert table.positives.tolist() == [3, 2, 1, 2]
    np.testing.assert_allclose(table.mean_probability, [0.45, 0.5, 0.4, 0.525])
    np.testing.assert_allclose(table.rate, [0.375, 0.5, 0.25, 0.5])
    np.testing.assert_allclose(table.residual, [-0.075, 0, -0.15, -0.025])
    for i in range(4):
        # .9 for four lines at once: .975 for each.
        exact = binomtest(int(table.positives[i]), int(table.labelled[i])).proportion_ci(0.975, method="exact")
        assert table.lower[i] == pytest.approx(exact.low - table.mean_probability[i])
        assert table.upper[i] == pytest.approx(exact.high - table.mean_probability[i])


def test_all_intervals_hold_together_as_often_as_stated() -> None:
    # Overlapping groups of 5 to 400 rows, truths that differ within groups and are not the probabilities.
    rng = np.random.default_rng(8)
    n, confidence = 900, 0.9
    first, second = rng.choice(30, n, p=np.arange(1, 31) / 465), rng.choice(4, n)
    groups = [first, second, first * 4 + second]
    p = rng.beta(1, 6, n)
    truth = np.clip(p * rng.uniform(0.3, 2, n), 0, 1)
    true_residual = group_table_of_counts(p, np.ones(n), truth, groups).residual
    held = 0
    for _ in range(DRAWS):
        table = group_table(rng.random(n) < truth, p, groups, confidence=confidence)
        held += bool(((table.lower <= true_residual) & (true_residual <= table.upper)).all())
    assert held / DRAWS >= confidence - 3 * np.sqrt(confidence * (1 - confidence) / DRAWS)
    assert held < DRAWS


def test_shared_shocks_need_the_overdispersion() -> None:
    # Rows come in fours with one label: the variance is four times that of independent rows.
    rng = np.random.default_rng(9)
    truth = rng.beta(2, 4, 400)
    group = np.arange(400) % 8
    held = np.zeros(2)
    for _ in range(500):
        label = rng.random(400) < truth
        for i, phi in enumerate((1.0, 4.0)):
            table = group_table_of_counts(
                truth, np.full(400, 4), 4 * label, [group], confidence=0.9, overdispersion=phi
            )
            held[i] += bool(((table.lower <= 0) & (table.upper >= 0)).all())
    assert held[0] / 500 < 0.7
    assert held[1] / 500 >= 0.9 - 3 * np.sqrt(0.09 / 500)


def test_weights_count_as_their_effective_rows() -> None:
    y, p = np.arange(40) % 2, np.full(40, 0.4)
    plain = group_table(y, p, [])
    heavier = group_table(y, p, [], np.full(40, 7.0))
    np.testing.assert_allclose(heavier.upper, plain.upper)
    assert heavier.labelled == plain.labelled * 7
    uneven = group_table(y, p, [], np.repeat([1.0, 9.0], 20))
    assert uneven.upper > plain.upper
