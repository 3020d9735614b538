"""Where many scores are equal, bins by quantiles had the same edge several times: empty bins, a bin without a width, or
an error about edges that are out of order.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration import GIRB
from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.drift.psi_reference import quantile_bins


def plain_girb(n_groups: int) -> GIRB:
    return GIRB(n_groups=n_groups, prior_strength=0.0, strict=False, p_min=0.0)


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_constant_scores_are_one_bin() -> None:
    fitted = plain_girb(20).fit(np.full(1_000, 0.5), np.arange(1_000) < 37)
    assert len(fitted.groups_.labelled) == 1
    assert fitted.predict([0.2, 0.5, 0.9]).tolist() == pytest.approx([0.037] * 3, abs=1e-15)


def test_a_pile_at_0_beside_scores_that_differ() -> None:
    scores = np.concatenate([np.zeros(900), np.arange(1, 101) / 100])
    labels = np.concatenate([np.arange(900) < 9, np.arange(100) >= 40])
    fitted = plain_girb(10).fit(scores, labels)
    assert fitted.predict([0.0])[0] == pytest.approx(0.01, abs=1e-15)
    assert (np.diff(fitted.groups_.boundaries) > 0).all()
    assert (np.diff(fitted.groups_.log_odds) > 0).all()
    assert fitted.groups_.labelled.sum() == 1_000
    assert fitted.groups_.positives.sum() == 69


VALUES = [0.0, 1e-12, 0.2, 0.2 + 1e-12, 0.5, 0.999999, 1.0]


@given(st.lists(st.sampled_from(VALUES), min_size=2, max_size=60), st.integers(1, 20))
@settings(max_examples=80)
def test_few_values_asked_for_many_bins(scores: list[float], n_groups: int) -> None:
    groups = plain_girb(n_groups).fit(scores, np.arange(len(scores)) % 2).groups_
    assert len(groups.labelled) <= min(n_groups, len(set(scores)))
    assert groups.labelled.sum() == len(scores)
    assert (groups.labelled > 0).all()
    assert (np.diff(groups.log_odds) > 0).all()
    assert (np.diff(groups.boundaries) > 0).all()


@given(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.501, 1.0]), min_size=1, max_size=60), st.integers(2, 20))
@settings(max_examples=80)
def test_the_bins_of_psi_likewise(scores: list[float], bins: int) -> None:
    histogram = np.bincount(locate(np.array(scores))[0], minlength=N_BINS).astype(np.float64)
    ends = quantile_bins(histogram, bins)
    assert ends == sorted(set(ends))
    assert ends[-1] == N_BINS - 1
    assert len(ends) <= max(1, int((histogram > 0).sum()))
