import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from stream_calib.calibration.grid import (
    CENTRE_LOG_ODDS,
    EDGE_LOG_ODDS,
    LOWER_LOG_ODDS,
    N_BINS,
    UPPER_LOG_ODDS,
    locate,
    log_odds,
)

scores = st.floats(0.0, 1.0)


def test_exact_bounds_have_bins_of_their_own_and_the_outer_bins_are_open() -> None:
    grid_bin, position = locate(np.array([0.0, 5e-324, 1e-9, 1 - 1e-9, np.nextafter(1.0, 0.0), 1.0]))
    assert grid_bin.tolist() == [0, 1, 1, 400, 400, 401]
    assert position.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 0.0]


def test_centres_lie_in_their_bins_and_in_the_middle() -> None:
    grid_bin, position = locate(expit(CENTRE_LOG_ODDS[1:-1]))
    assert grid_bin.tolist() == list(range(1, N_BINS - 1))
    np.testing.assert_allclose(position, 0.5, atol=1e-9)


def test_neighbouring_bins_share_an_edge() -> None:
    assert (UPPER_LOG_ODDS[:-1] == LOWER_LOG_ODDS[1:]).all()
    assert len(EDGE_LOG_ODDS) == 401
    assert EDGE_LOG_ODDS[200] == 0.0


@given(st.lists(scores, min_size=1, max_size=40))
def test_position_and_bin_give_the_score_back(values: list[float]) -> None:
    score = np.array(values)
    grid_bin, position = locate(score)
    back = LOWER_LOG_ODDS[grid_bin] + position * (UPPER_LOG_ODDS - LOWER_LOG_ODDS)[grid_bin]
    np.testing.assert_allclose(back, log_odds(score), atol=1e-11)


@given(st.lists(scores, min_size=1, max_size=40))
def test_a_score_is_located_alike_alone_and_in_any_batch(values: list[float]) -> None:
    score = np.array(values)
    grid_bin, position = locate(score)
    alone = [locate(np.array([v])) for v in values]
    assert grid_bin.tolist() == [int(b[0]) for b, _ in alone]
    assert position.tolist() == [float(p[0]) for _, p in alone]
