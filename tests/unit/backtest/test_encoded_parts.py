from __future__ import annotations

import pytest

from stream_calib.backtest.policies import encoded_parts
from stream_calib.backtest.policies.encoded_parts import EncodedParts
from stream_calib.backtest.policies.stepping import Stepper
from stream_calib.snapshot.report import GateReason, RefitReport
from tests.unit.backtest.made_up import history
from tests.unit.refit.world import config


@pytest.mark.parametrize("kept", [1, 10_000])
def test_bytes_are_those_of_the_documents(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every report and snapshot of a run, twice over."""
    monkeypatch.setattr(encoded_parts, "_MOST_KEPT", kept)
    cells = history(4 * 24, rows_a_pane=60)
    made = Stepper(cells, config())
    for pane in range(cells.first_pane, made.last_pane + 1):
        made.step(pane)
    documents = [*made.reports, *(made.store.document(move.version) for move in made.publications())]
    assert len(documents) > 2
    parts = EncodedParts()
    for document in [*documents, *documents]:
        assert parts.encode(document) == document.encode()


def test_numbers_that_are_not_finite_are_refused_as_by_the_document() -> None:
    reason = GateReason(code="no_gain", detail="")
    report = RefitReport(request_id="1", kind="level", reason="age", pane=1, outcome="refused", detail="")
    unchecked = report.model_copy(update={"rows": float("nan"), "coverage": (reason,)})
    with pytest.raises(ValueError, match="Out of range"):
        EncodedParts().encode(unchecked)
