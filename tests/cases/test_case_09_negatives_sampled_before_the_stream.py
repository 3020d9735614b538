"""A model was trained on thinned negatives: it ranked well, and its probabilities were far too high, because the rate
at which events had been kept was not carried as a weight.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stream_calib.calibration import GIRB
from stream_calib.events.contracts import RejectReason
from stream_calib.events.score_decoder import ScoreDecoder
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.labelled import fit_data
from stream_calib.refit.row_weights import RowWeights
from stream_calib.windows.pane_record import PaneNames
from tests.cases.joined import joined, label, score
from tests.unit.events.events_for_tests import T0, config, record
from tests.windows.monitors import A, at

RIGHT = 100 / (100 + 10_000)


def test_weights_of_rows() -> None:
    labels, weights = np.arange(200) < 100, np.where(np.arange(200) < 100, 1.0, 1 / 0.01)
    fitted = GIRB(prior_strength=0.0, strict=False).fit(np.full(200, 0.6), labels, weights)
    assert fitted.predict([0.6])[0] == pytest.approx(RIGHT, abs=1e-12)
    assert f"{RIGHT:.4f}" == "0.0099"


@pytest.mark.services
@pytest.mark.parametrize("by_event", [True, False])
def test_from_the_topics_to_the_fit(redis_url: str, monkeypatch: pytest.MonkeyPatch, by_event: bool) -> None:
    """The rate is a field of each event (missing: 1), or a constant of the class."""
    how: dict[str, Any] = {"scores": {"keep_rate": "kept"}} if by_event else {"labels": {"keep_rate_negatives": 0.01}}
    with joined(redis_url, monkeypatch, **how) as j:
        negatives = {"kept": 0.01} if by_event else {}
        j.scores(*(score(f"p{i}", 3, 0.6) for i in range(100)))
        j.scores(*(score(f"n{i}", 3, 0.6, **negatives) for i in range(100)))
        j.labels(*(label(f"p{i}", 5, 1) for i in range(100)), *(label(f"n{i}", 5, 0) for i in range(100)))
        j.matured(3)
        assert j.pane(3).labelled == 200, "cells count rows"
        pane, store = at(3) // j.monitors.config.windows.pane_ms, j.monitors.state(A).store
        (blob,) = store.blobs([PaneNames.of(pane).matured])
        assert blob is not None
        evidence = Evidence(pane, j.monitors.config)
        evidence.advance(pane, blob)
        data = fit_data(evidence.counts.cells(), store.signatures, (), RowWeights.of(j.monitors.config)).cells
        rate = data.positives.sum() / data.labelled.sum()
        assert rate == pytest.approx(RIGHT, rel=0.25)  # only the fit's buckets, so not exactly a hundred of each


@pytest.mark.parametrize("rate", ["0", "-0.5", "1.0000001", "NaN", '"0.5"', "true", "1e999"])
def test_what_is_no_rate_is_rejected(rate: str) -> None:
    text = json.dumps({"event_id": "e", "ts": T0, "score": 0.5})[:-1] + f', "kept": {rate}}}'
    decoded = ScoreDecoder(config(scores={"keep_rate": "kept"})).decode([record(text.encode())])
    expected = RejectReason.NOT_JSON if rate in ("NaN", "1e999") else RejectReason.KEEP_RATE_INVALID
    assert [reject.reason for reject in decoded.rejects] == [expected]


@pytest.mark.parametrize("fields", [{}, {"kept": None}, {"kept": 1}])
def test_a_missing_rate_is_1(fields: dict[str, Any]) -> None:
    event = {"event_id": "e", "ts": T0, "score": 0.5, **fields}
    decoded = ScoreDecoder(config(scores={"keep_rate": "kept"})).decode([record(event)])
    assert decoded.scores is not None
    assert decoded.scores.signatures == [("1.0",)]
