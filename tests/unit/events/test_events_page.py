"""docs/events.md shows real outputs and every reason."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from stream_calib.events.contracts import RejectReason
from stream_calib.events.outputs import OutputEncoder
from stream_calib.events.score_decoder import ScoreDecoder
from tests.unit.events.events_for_tests import config, record

PAGE = (Path(__file__).parents[3] / "docs/events.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["compact", "enrich"])
def test_the_outputs_shown_are_real(form: str) -> None:
    records = [record(b'{"event_id": "A-17", "score": 8e-1, "ts": 1714557600000}')]
    settings = config(model={"name": "churn"}, serving={"output": form})
    batch = ScoreDecoder(settings).decode(records).scores
    assert batch is not None

    (outgoing,) = OutputEncoder(settings).encode(
        records, batch, np.array([0.6180339887498949]), "000012-9f86d081884c7d65"
    )

    shown = re.search(rf"<!-- output: {form} -->\n```json\n(.*)\n```", PAGE)
    assert shown is not None
    assert outgoing.value == shown[1].encode()


def test_every_reason_is_explained() -> None:
    assert [reason.value for reason in RejectReason if f"`{reason.value}`" not in PAGE] == ["model_invalid"], (
        "model_invalid waits for records that name their model"
    )
