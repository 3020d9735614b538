"""docs/events.md shows real outputs and every reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from stream_calib.events.contracts import RejectReason
from stream_calib.events.fused_scores import FusedScores, with_fused
from stream_calib.events.output_members import ServedAs, Status
from stream_calib.events.outputs import OutputEncoder
from stream_calib.events.score_decoder import ScoreDecoder
from tests.unit.events.events_for_tests import config, record

SERVED = ServedAs("000012-9f86d081884c7d65", "calibrated")
PAGE = (Path(__file__).parents[3] / "docs/events.md").read_text(encoding="utf-8")


def shown(name: str) -> bytes:
    found = re.search(rf"<!-- output: {name} -->\n```json\n(.*)\n```", PAGE)
    assert found is not None
    return found[1].encode()


@pytest.mark.parametrize("form", ["compact", "enrich"])
def test_the_outputs_shown_are_real(form: str) -> None:
    records = [record(b'{"event_id": "A-17", "score": 8e-1, "ts": 1714557600000}')]
    settings = config(model={"name": "churn"}, serving={"output": form})
    batch = ScoreDecoder(settings).decode(records).scores
    assert batch is not None

    (outgoing,) = OutputEncoder(settings).encode(records, batch, np.array([0.6180339887498949]), [SERVED])

    assert outgoing.value == shown(form)


def test_the_output_of_several_models_is_real() -> None:
    value = {"event_id": "A-17", "scores": {"fraud": 0.25, "abuse": "high"}, "ts": 1714557600000, "fraud_version": "7"}
    settings = config(
        model={"max_keys": 4},
        models=[
            {"name": "fraud", "score": "scores.fraud", "version_path": "fraud_version"},
            {"name": "abuse", "score": "scores.abuse"},
            {"name": "spam", "score": "scores.spam"},
        ],
    )
    records = [record(value)]
    batch = ScoreDecoder(settings).decode(records).scores
    assert batch is not None

    (outgoing,) = OutputEncoder(settings).encode(records, batch, np.array([0.125]), [SERVED])

    assert outgoing.value == shown("several")


def test_every_reason_and_every_status_is_explained() -> None:
    words = [reason.value for reason in RejectReason] + list(get_args(Status))

    assert [word for word in words if f"`{word}`" not in PAGE] == []


def test_the_output_of_a_fusion_is_real() -> None:
    page = (Path(__file__).parents[3] / "docs/fusion.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- output: fused -->\n```json\n(.*)\n```", page)
    settings = config(
        models=[{"name": "tree", "score": "tree"}, {"name": "rules", "score": "rules"}],
        fusion={"name": "fused", "members": {"tree": 0.7, "rules": 0.3}},
    )
    records = [record({"event_id": "A-17", "tree": 0.8, "rules": 0.25, "ts": 1714557600000})]
    batch = ScoreDecoder(settings).decode(records).scores
    assert batch is not None
    served = [SERVED, ServedAs("000009-1c5a7e02d4b8f3a6", "calibrated")]
    fusion = settings.fused()
    assert fusion is not None
    calibrated = np.array([0.6, 0.2])
    fused = FusedScores(fusion).of(batch, calibrated, served).batch
    both, _ = with_fused(batch, fused)

    (outgoing,) = OutputEncoder(settings).encode(
        records, both, np.array([*calibrated, *fused.score]), [*served, ServedAs("", "identity")]
    )

    assert found is not None
    assert outgoing.value == found[1].encode()
