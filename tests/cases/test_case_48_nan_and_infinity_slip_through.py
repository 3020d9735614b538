"""Numbers that are not finite were accepted, because float fields take NaN by default, and written back as null, or as
text that a strict reader refuses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from stream_calib.alerts.model import Alert, make_alert
from stream_calib.calibration import GIRB
from stream_calib.errors import BlockFormatError, DamagedSnapshotError, NonFiniteInputError
from stream_calib.events.blocks import pack, unpack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.dead_letters import REASON_HEADER
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.snapshot.model import decode_snapshot, version_of
from tests.cases.served import polls, served_by
from tests.unit.events.events_for_tests import T0, record, strict_json
from tests.unit.snapshot.documents import report, structure

REFUSED = {
    "NaN": b"not_json",
    '"NaN"': b"score_invalid",
    "Infinity": b"not_json",
    "-Infinity": b"not_json",
    "1e999": b"not_json",
    "-1e999": b"not_json",
    "null": b"score_invalid",
}


def with_score(token: str, offset: int = 0) -> Any:
    return record(f'{{"event_id":"e{offset}","ts":{T0},"score":{token}}}'.encode(), offset=offset)


def alert(**evidence: float) -> Alert:
    how: dict[str, Any] = {"pane": 7, "since_ms": T0, "diagnosis": "d", "evidence": evidence}
    return make_alert(ModelKey("m", "1"), "g", "psi", "open", **how)


def test_each_is_a_dead_letter_and_none_reaches_the_monitor() -> None:
    records = [with_score(token, i) for i, token in enumerate([*REFUSED, "0.5"])]
    written = polls(served_by(), [records])
    reasons = [dict(letter.headers)[REASON_HEADER] for letter in written["dead-letters"]]
    assert reasons == list(REFUSED.values())
    (output,), (block,) = written["calibrated"], written["blocks"]
    assert strict_json(output.value or b"")["stream_calib"]["m"]["calibrated"] == 0.5
    assert unpack(block.value or b"").score.tolist() == [0.5]


tokens = st.one_of(
    st.floats().map(repr),
    st.floats(0, 1).map(repr),
    st.sampled_from([*REFUSED, "0.5", "1", "0", "-0.0", "5e-324", "1e-400", "1E+0", "1e308", "1" * 400]),
)


@given(st.lists(tokens, min_size=1, max_size=12), st.sampled_from(["compact", "enrich"]), st.booleans())
@settings(max_examples=80)
def test_whatever_comes_what_goes_out_is_strict_json_with_a_probability(
    scores: list[str], output: str, passthrough: bool
) -> None:
    how = {"serving": {"output": output}, "records": {"on_reject": "passthrough" if passthrough else "dead_letter"}}
    records = [with_score(token, i) for i, token in enumerate(scores)]
    written = polls(served_by(**how), [records])
    served = 0
    for made in written["calibrated"]:
        if dict(made.headers).get("stream-calib-status") == b"passthrough":
            continue  # a refused record may be what no strict reader takes; it is handed on as it came
        member = strict_json(made.value or b"")["stream_calib"]["m"]
        served += 1
        assert 0.0 <= member["calibrated"] <= 1.0
        assert 0.0 <= member["raw"] <= 1.0
    assert served + len(written["dead-letters"]) == len(records)
    for block in written["blocks"]:
        assert np.isfinite(unpack(block.value or b"").score).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_document_that_is_stored_or_sent_can_hold_one(bad: float) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        canonical_json({"a": [bad]})
    with pytest.raises(ValidationError, match="finite number"):
        structure(level=bad)
    with pytest.raises(ValueError, match="Out of range float"):  # a copy is not checked
        structure().model_copy(update={"level": bad}).encode()


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "null"])
def test_a_stored_snapshot_with_one_is_refused(token: str) -> None:
    good = structure().encode()
    bad = good.replace(b'"level":0.25', f'"level":{token}'.encode())
    assert bad != good
    with pytest.raises(DamagedSnapshotError):
        decode_snapshot(version_of(1, bad), bad)


def test_snapshots_reports_and_alerts_are_strict_json() -> None:
    for document in (structure(), report("r"), alert(psi=0.25), alert(psi=float("nan"))):
        strict_json(document.encode())


def test_a_block_with_one_is_refused() -> None:
    (block,) = polls(served_by(), [[with_score("0.5")]])["blocks"]
    rows = unpack(block.value or b"")
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(BlockFormatError, match="not in \\[0, 1\\]"):
            pack(replace(rows, score=np.array([bad])))


def test_a_fit_refuses_them_in_rows_and_in_counts() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(NonFiniteInputError):
            GIRB().fit([0.2, bad], [0, 1])
        with pytest.raises(NonFiniteInputError):
            GIRB().fit([0.2, 0.3], [0, 1], [1.0, bad])
        counts = np.ones(402)
        counts[7] = bad
        with pytest.raises(NonFiniteInputError):
            GIRB().fit_cells(counts, np.zeros(402))
