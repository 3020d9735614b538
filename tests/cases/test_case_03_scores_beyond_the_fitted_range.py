"""A score just above the highest one of the training data came back as null, because a map's value outside of its
fitted range was NaN by default; and where that was set otherwise, the setting was lost when the map was stored.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration import GIRB, BetaCalibration, CenteredIsotonic, Isotonic, Platt, ServedMap
from stream_calib.calibration.calibrator import Calibrator
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.snapshot.compiled import base_document, compile_snapshot
from stream_calib.snapshot.model import decode_snapshot, resolve, version_of
from tests.unit.snapshot.documents import structure

rng = np.random.default_rng(3)
SCORES = np.concatenate([[0.1, 0.8], rng.uniform(0.1, 0.8, 998)])
LABELS = rng.random(1_000) < SCORES
KEPT = [Isotonic(), CenteredIsotonic(), GIRB(), GIRB(strict=False, prior_strength=0.0, shape="step")]
"""Those whose map is constant beyond the fitted scores. The others go on as their formula says."""


def stored_and_read(fitted: Calibrator) -> ServedMap:
    """The fitted map after a snapshot's way through its bytes."""
    snapshot = structure(base=base_document(fitted.base_map()), families=(), level=0.0, attributes=())
    encoded = snapshot.encode()
    version = version_of(1, encoded)
    return compile_snapshot(resolve(version, decode_snapshot(version, encoded), None))


def served(served_map: ServedMap, scores: list[float]) -> list[float]:
    values: list[float] = served_map.apply(np.array(scores), np.zeros(len(scores), dtype=np.intp), [()]).tolist()
    return values


@pytest.mark.parametrize("made", KEPT, ids=lambda made: type(made).__name__)
def test_beyond_the_range_stands_the_value_at_its_end(made: Calibrator) -> None:
    below, low, high, above = made.fit(SCORES, LABELS).predict([0.05, 0.1, 0.8, 0.95])
    # The strict increase moves a probability by at most 5e-6.
    assert below == pytest.approx(low, abs=5e-6)
    assert above == pytest.approx(high, abs=5e-6)
    assert abs(below - 0.05) > 0.01
    assert abs(above - 0.95) > 0.01


@pytest.mark.parametrize("made", KEPT, ids=lambda made: type(made).__name__)
def test_and_again_after_the_snapshot_was_stored_and_read(made: Calibrator) -> None:
    fitted = made.fit(SCORES, LABELS)
    read = stored_and_read(fitted)
    scores = [0.0, 0.05, 0.1, 0.3, 0.8, 0.95, 1.0]
    unstored = served(ServedMap(MapParts(fitted.base_map(), p_min=1e-6)), scores)
    assert served(read, scores) == unstored
    below, above = fitted.predict([0.1, 0.8]).tolist()
    assert [unstored[i] for i in (0, 1, 5, 6)] == pytest.approx([below, below, above, above], abs=5e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@settings(max_examples=40)
def test_no_score_has_no_value(scores: list[float]) -> None:
    for made in (*KEPT, Platt(), BetaCalibration()):
        fitted = made.fit(SCORES, LABELS)
        for values in (fitted.predict(scores).tolist(), served(stored_and_read(fitted), scores)):
            assert all(0 < value < 1 for value in values)  # NaN is in no interval
