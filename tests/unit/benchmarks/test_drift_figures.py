from __future__ import annotations

import numpy as np
import pytest

from benchmarks.drift_runs import Delays, FalseAlarms
from benchmarks.drift_traffic import GROUPS, LAWS, PER_WINDOW, SERVED, SHIFT, draw


def test_intervals_of_counts_are_those_of_the_tables() -> None:
    """Garwood's exact 95 % limits of a Poisson mean, as tables give them."""
    for alarms, lower, upper in ((0, 0.0, 3.6889), (1, 0.02532, 5.5716), (10, 4.7954, 18.3904)):
        found = FalseAlarms(alarms, 2_000_000)
        assert found.rate == alarms / 2
        assert found.interval == pytest.approx((lower / 2, upper / 2), abs=1e-4)


def test_runs_that_detect_nothing_count_in_quantiles() -> None:
    found = Delays(np.array([200.0, np.inf, 400.0, 600.0]))
    assert found.detected == 0.75
    assert found.quantile(0.5) == 400.0
    assert found.quantile(0.9) == np.inf


@pytest.mark.parametrize("law", LAWS)
def test_windows_are_of_the_law_and_served_is_the_truth_but_for_the_shift(law: str) -> None:
    rng = np.random.default_rng(6)
    for shift, cluster in ((0.0, 1), (SHIFT, 1), (0.0, 5)):
        drawn = draw(LAWS[law], rng, 20, GROUPS, shift, cluster)
        assert (drawn.labelled.sum(axis=2) == PER_WINDOW).all()
        expected = float((drawn.labelled @ SERVED).sum())
        deviation = np.sqrt(cluster * (drawn.labelled @ (SERVED * (1 - SERVED))).sum())
        a, b = LAWS[law]
        assert expected / drawn.events == pytest.approx(a / (a + b), abs=0.004)
        off = drawn.positives.sum() - expected - shift * drawn.events
        assert abs(off) < 4 * deviation + (shift > 0) * 0.001 * drawn.events
