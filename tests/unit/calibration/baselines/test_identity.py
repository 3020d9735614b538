import numpy as np

from stream_calib.calibration.baselines import Identity
from stream_calib.calibration.grid import EDGE_LOG_ODDS


def test_is_the_identity_bit_for_bit() -> None:
    score = np.random.default_rng(1).random(1000) ** 4
    assert Identity(p_min=0.0).fit([0.1, 0.9], [0, 1]).predict(score).tobytes() == score.tobytes()


def test_keeps_to_its_limits() -> None:
    predicted = Identity(p_min=1e-3).fit([0.1, 0.9], [0, 1]).predict([0.0, 1e-4, 0.3, 1.0])
    assert predicted.tolist() == [1e-3, 1e-3, 0.3, 1 - 1e-3]


def test_a_strict_one_is_off_by_the_price_of_strictness_alone() -> None:
    score = np.linspace(0.001, 0.999, 500)
    strict = Identity(strict=True).fit([0.1, 0.9], [0, 1])
    np.testing.assert_allclose(strict.predict(score), score, atol=2.5e-6)
    base_map = strict.base_map()
    np.testing.assert_allclose(base_map.log_odds_at(EDGE_LOG_ODDS), EDGE_LOG_ODDS * (1 + 1e-6), rtol=1e-7, atol=1e-9)
