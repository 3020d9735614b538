"""A library took scores for logits only in batches that held some value outside [0, 1], so that what became of a score
depended on which others it came with. Others divided by 100, or clipped, where a value looked like it.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration import GIRB
from stream_calib.errors import ScoreRangeError
from stream_calib.events.blocks import unpack
from stream_calib.events.dead_letters import REASON_HEADER
from stream_calib.transport.port import Record
from tests.cases.served import polls, served_by
from tests.unit.events.events_for_tests import record, score


def scores_of(values: list[float]) -> list[Record]:
    return [record(score(event_id=str(i), score=v), offset=i) for i, v in enumerate(values)]


def test_a_batch_and_its_records_one_by_one_give_the_same() -> None:
    records = scores_of([0.3, 2.4, 0.7, 73.0])
    together, apart = polls(served_by(), [records]), polls(served_by(), [[r] for r in records])
    for made in (together, apart):
        assert [dict(letter.headers)[REASON_HEADER] for letter in made["dead-letters"]] == [b"score_out_of_range"] * 2
        assert [letter.value for letter in made["dead-letters"]] == [records[1].value, records[3].value]
        raw = [json.loads(o.value or b"")["stream_calib"]["m"]["raw"] for o in made["calibrated"]]
        assert raw == [0.3, 0.7]
        rows = [unpack(block.value or b"").score for block in made["blocks"]]
        assert np.concatenate(rows).tobytes() == np.array([0.3, 0.7]).tobytes()
    assert [o.value for o in together["calibrated"]] == [o.value for o in apart["calibrated"]]


def test_where_logits_are_declared_each_score_is_one() -> None:
    made = polls(served_by(scores={"scale": "logit"}), [scores_of([0.3, 2.4, 73.0])])
    raw = [json.loads(o.value or b"")["stream_calib"]["m"]["raw"] for o in made["calibrated"]]
    assert raw == pytest.approx([1 / (1 + np.exp(-x)) for x in (0.3, 2.4, 73.0)])


LARGEST = {"probability": 1.0, "percent": 100.0, "logit": 800.0}


@given(st.lists(st.floats(0, 800), min_size=1, max_size=20), st.sampled_from(list(LARGEST)))
@settings(max_examples=40)
def test_no_score_depends_on_its_neighbours(values: list[float], scale: str) -> None:
    configured = {"scores": {"scale": scale}}
    together = polls(served_by(**configured), [scores_of(values)])
    apart = polls(served_by(**configured), [[r] for r in scores_of(values)])
    assert [o.value for o in together["calibrated"]] == [o.value for o in apart["calibrated"]]
    assert [o.key for o in together["dead-letters"]] == [o.key for o in apart["dead-letters"]]
    refused = {int((o.key or b"").rpartition(b"-")[2]) for o in together["dead-letters"]}
    if scale != "logit":
        assert refused == {i for i, v in enumerate(values) if v > LARGEST[scale] * (1 + 1e-6)}
    else:
        assert refused == set()


def test_a_fit_refuses_what_is_out_of_scale_too() -> None:
    with pytest.raises(ScoreRangeError):
        GIRB().fit([0.3, 2.4, 0.7], [0, 1, 1])
    fitted = GIRB().fit([0.3, 0.4], [0, 1])
    for wrong in (7.3, -0.1):
        with pytest.raises(ScoreRangeError):
            fitted.predict([0.3, wrong])
