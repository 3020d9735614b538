"""An id with a composed accent and one with a decomposed accent look the same and never matched; a half of a surrogate
pair, which is legal JSON and no UTF-8, crashed the process when the record was written or logged.
"""

from __future__ import annotations

import json
import logging
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.events.dead_letters import MESSAGE_HEADER, REASON_HEADER
from stream_calib.events.event_ids import MAX_ID_BYTES
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.score_decoder import ScoreDecoder
from tests.cases.joined import a_score_and_a_label
from tests.cases.served import polls, served_by
from tests.unit.events.events_for_tests import T0, config, record, strict_json

COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "café-7"), unicodedata.normalize("NFD", "café-7")
LOG = logging.getLogger(__name__)


@pytest.mark.services
@pytest.mark.parametrize(
    ("scored", "labelled", "meet"),
    [
        (COMPOSED, COMPOSED, True),
        (DECOMPOSED, DECOMPOSED, True),
        (COMPOSED, DECOMPOSED, False),
        (DECOMPOSED, COMPOSED, False),
        ("a\x00b", "a\x00b", True),
        ("a\x00b", "a\x00c", False),
        ("\U0001f600", "\U0001f600", True),
        ("K", "\u212a", False),  # the sign of kelvin folds to k
    ],
)
def test_ids_are_their_bytes_on_both_topics(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, scored: str, labelled: str, meet: bool
) -> None:
    with a_score_and_a_label(redis_url, monkeypatch, scored, labelled) as (_, found):
        assert (found.labelled, found.unlabelled) == ((1, 0) if meet else (0, 1))
        assert found.record.counts["labels"] == 1


def test_an_unpaired_surrogate_is_a_dead_letter_that_can_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    escaped = f'{{"event_id":"x\\ud800","ts":{T0},"score":0.5}}'.encode()
    written = polls(served_by(), [[record(escaped, 3), record({"event_id": "good", "ts": T0, "score": 0.5}, 4)]])
    (letter,) = written["dead-letters"]
    headers = dict(letter.headers)
    assert headers[REASON_HEADER] == b"id_invalid"
    assert headers[MESSAGE_HEADER].isascii()
    assert letter.value == escaped
    LOG.warning("refused: %s", headers[MESSAGE_HEADER].decode())
    assert caplog.text.encode("utf-8")
    assert len(written["calibrated"]) == 1


def test_long_ids_are_refused_and_never_cut_into_one() -> None:
    ids = ["x" * 10_000, "x" * (MAX_ID_BYTES - 1) + "a", "x" * (MAX_ID_BYTES - 1) + "b", "x" * MAX_ID_BYTES + "a"]
    decoded = ScoreDecoder(config()).decode([_score(i) for i in ids])
    assert decoded.scores is not None
    assert [reject.record_index for reject in decoded.rejects] == [0, 3]
    assert len(set(decoded.scores.fingerprint.tolist())) == 2


text = st.text(st.characters(), max_size=200)  # surrogates too


@given(st.lists(text, min_size=1, max_size=6, unique=True))
@settings(max_examples=100)
def test_whatever_the_text_it_is_itself_or_refused_alike(ids: list[str]) -> None:
    scored = ScoreDecoder(config()).decode([_score(i) for i in ids])
    labelled = LabelDecoder(config()).decode([_score(i, label=1) for i in ids])
    assert scored.scores is not None
    assert labelled.labels is not None
    accepted = [i for i in ids if i and len(i.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES and _is_utf8(i)]
    assert scored.scores.event_id == accepted
    assert scored.scores.fingerprint.tolist() == labelled.labels.fingerprint.tolist()
    assert len(set(scored.scores.fingerprint.tolist())) == len(accepted)
    written = polls(served_by(), [[_score(i) for i in ids]])
    assert [strict_json(o.value or b"")["event_id"] for o in written["calibrated"]] == accepted
    assert all(dict(o.headers)[MESSAGE_HEADER].isascii() for o in written["dead-letters"])


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _score(event_id: str, **more: Any) -> Any:
    return record(json.dumps({"event_id": event_id, "ts": T0, "score": 0.5, **more}).encode())
