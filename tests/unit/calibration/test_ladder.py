import numpy as np
import pytest
from scipy.special import expit, logit

from stream_calib.calibration import GIRB
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
