import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.calibration import _SigmoidCalibration

from stream_calib.calibration.baselines import Platt
from stream_calib.errors import FitError


@pytest.mark.parametrize("weighted", [False, True])
def test_is_scikit_learns_sigmoid_on_log_odds(weighted: bool) -> None:
    rng = np.random.default_rng(2)
    score = rng.beta(1.5, 3.0, 300)
    label = (rng.random(300) < expit(0.7 * logit(score) - 0.4)).astype(float)
    weight = rng.uniform(0.2, 5.0, 300) if weighted else None
    theirs = _SigmoidCalibration().fit(logit(score), label, weight)
    ours = Platt().fit(score, label, weight)
    # Theirs stops at a gradient of 1e-6; its sign is Platt's, 1 / (1 + exp(A f + B)).
    assert ours.slope_ == pytest.approx(-theirs.a_, abs=2e-6)
    assert ours.intercept_ == pytest.approx(-theirs.b_, abs=2e-6)
    np.testing.assert_allclose(ours.predict(score), theirs.predict(logit(score)), atol=1e-6)


def test_separated_classes_reach_platts_targets_and_no_further() -> None:
    fitted = Platt().fit(np.repeat([0.1, 0.9], 50), np.repeat([0, 1], 50))
    np.testing.assert_allclose(fitted.predict([0.1, 0.9]), [1 / 52, 51 / 52], rtol=1e-6)


def test_a_score_that_ranks_the_wrong_way_round_is_calibrated_but_is_no_base_map() -> None:
    fitted = Platt().fit([0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [1, 1, 0, 1, 0, 0])
    assert (np.diff(fitted.predict(np.linspace(0, 1, 11))) < 0).any()
    with pytest.raises(FitError, match=r"Platt falls with the score, from log-odds .* check labels and scores"):
        fitted.base_map()


def test_scores_beyond_the_grid_count_as_its_edges() -> None:
    fitted = Platt().fit([0.0, 1e-9, 0.4, 0.6, 1.0], [0, 0, 1, 0, 1])
    assert fitted.predict([0.0, 1e-9]).tolist() == [fitted.predict([expit(-10.0)])[0]] * 2
    assert fitted.slope_ == Platt().fit([expit(-10.0)] * 2 + [0.4, 0.6, expit(10.0)], [0, 0, 1, 0, 1]).slope_
