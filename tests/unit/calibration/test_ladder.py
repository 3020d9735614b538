import numpy as np
import pytest
from scipy.special import expit, logit

from stream_calib.calibration import GIRB
from stream_calib.calibration.baselines import Isotonic
from stream_calib.calibration.configuration import RUNGS
from stream_calib.calibration.grid import EDGE_LOG_ODDS
from stream_calib.calibration.ladder import LADDER, make_rung
from stream_calib.errors import ConfigurationError


def test_has_the_rungs_in_their_order() -> None:
    assert tuple(LADDER) == RUNGS


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_gives_a_base_map_that_increases_strictly(name: str) -> None:
    rng = np.random.default_rng(1)
    score = rng.beta(1, 3, 2000)
    rung = make_rung(name, p_min=1e-3, n_groups=20, prior_strength=5.0)
    assert type(rung) is LADDER[name]  # type: ignore[index]  # one of RUNGS
    base_map = rung.fit(score, rng.random(2000) < expit(1.5 * logit(score))).base_map()
    assert (np.diff(base_map.log_odds_at(EDGE_LOG_ODDS)) > 0).all()
    assert base_map.p_min == 1e-3


def test_girb_gets_its_parameters() -> None:
    girb = make_rung("girb", p_min=1e-3, n_groups=20, prior_strength=5.0)
    assert girb.get_params() == GIRB(p_min=1e-3, n_groups=20, prior_strength=5.0, strict=True).get_params()


def test_an_unknown_rung() -> None:
    with pytest.raises(ConfigurationError, match="'spline' is unknown; the rungs are identity, platt, beta"):
        make_rung("spline", p_min=1e-3, n_groups=20, prior_strength=5.0)


def isotonic_rung(score: list[float], label: list[int]) -> list[float]:
    rung = make_rung("isotonic", p_min=1e-6, n_groups=20, prior_strength=5.0)
    return [float(p) for p in rung.fit(score, label).predict(score)]


def test_the_isotonic_rung_is_never_sure() -> None:
    score, label = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], [0, 0, 0, 1, 0, 1, 1]
    expected = [1 / 8, 1 / 8, 1 / 8, 1 / 2, 1 / 2, 5 / 6, 5 / 6]
    assert isotonic_rung(score, label) == pytest.approx(expected, abs=1e-5)


def test_the_isotonic_rung_stays_isotonic() -> None:
    # One row says 1 / 4, no more than the 1 / 9 of the next block.
    score, label = [0.1, *np.linspace(0.2, 0.8, 9).tolist(), 0.9], [0, 1, *[0] * 8, 1]
    assert isotonic_rung(score, label) == pytest.approx([1 / 9] * 10 + [3 / 4], abs=1e-5)
    assert isotonic_rung([0.2, 0.7], [0, 1]) == pytest.approx([1 / 4, 3 / 4], abs=1e-5)


def test_the_isotonic_rung_beats_plain_isotonic_regression_on_other_rows_of_the_same_law() -> None:
    rng = np.random.default_rng(1)
    score, fresh = rng.beta(1, 3, (2, 2000))
    label = rng.random(2000) < expit(1.5 * logit(score))
    truth, losses = expit(1.5 * logit(fresh)), []
    for calibrator in (make_rung("isotonic", p_min=1e-6, n_groups=20, prior_strength=5.0), Isotonic(p_min=1e-6)):
        p = calibrator.fit(score, label).predict(fresh)
        losses.append(float(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean()))
    assert losses[0] < losses[1]
