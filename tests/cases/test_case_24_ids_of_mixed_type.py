"""A number and the same digits as text never met in a join, without a word; elsewhere "007" met 7, which is another
thing; elsewhere one UUID in two spellings stayed apart and nobody had said so.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.events.contracts import RejectReason
from stream_calib.events.event_ids import canonical_id
from stream_calib.events.label_decoder import LabelDecoder
from stream_calib.events.score_decoder import ScoreDecoder
from tests.cases.joined import a_score_and_a_label, joined, label, score
from tests.unit.events.events_for_tests import T0, config, record

UUID_TEXT = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"


@pytest.mark.services
@pytest.mark.parametrize(
    ("scored", "labelled", "meet"),
    [
        (7, "7", True),
        ("7", 7, True),
        (2**70, str(2**70), True),
        ("007", "7", False),
        ("007", 7, False),
        (" 7", "7", False),
        ("7.0", 7, False),
        (UUID_TEXT, UUID_TEXT, True),
        (UUID_TEXT, UUID_TEXT.lower().replace("-", ""), False),
        ("A", "a", False),
    ],
)
def test_ids_meet_as_text_and_are_not_normalised(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, scored: Any, labelled: Any, meet: bool
) -> None:
    with a_score_and_a_label(redis_url, monkeypatch, scored, labelled) as (j, found):
        assert (found.labelled, found.positives, found.unlabelled) == ((1, 1, 0) if meet else (0, 0, 1))
        assert (j.refused, j.dead_letters()) == ([], [])


@pytest.mark.services
def test_a_numeric_id_is_not_a_dead_letter_and_what_is_no_id_is_one(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: list[Any] = [7.0, True, None, "", [7], {"id": 7}]
    with joined(redis_url, monkeypatch) as j:
        j.scores(*(score(i, 3) for i in (7, *wrong)))
        j.labels(*(label(i, 5) for i in (7, *wrong)))
        j.matured(3)
        assert (j.pane(3).scored, j.pane(3).labelled) == (1, 1)
        assert j.refused == j.dead_letters() == [b"id_invalid"] * len(wrong)


ids = st.one_of(
    st.text(max_size=8), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.integers(), max_size=1)
)


@given(ids, ids)
@settings(max_examples=150)
def test_both_topics_read_an_id_by_one_rule(one: Any, other: Any) -> None:
    found = []
    for event_id in (one, other):
        scored = ScoreDecoder(config()).decode([_with_id(event_id, score=0.5)])
        labelled = LabelDecoder(config()).decode([_with_id(event_id, label=1)])
        assert scored.scores is not None
        assert labelled.labels is not None
        assert scored.scores.fingerprint.tolist() == labelled.labels.fingerprint.tolist()
        assert [r.reason for r in scored.rejects] == [r.reason for r in labelled.rejects]
        assert {r.reason for r in scored.rejects} <= {RejectReason.ID_INVALID, RejectReason.NOT_JSON}
        found.append((canonical_id(event_id), scored.scores.fingerprint.tolist()))
    if None not in (found[0][0], found[1][0]):
        assert (found[0][0] == found[1][0]) == (found[0][1] == found[1][1])


def _with_id(event_id: Any, **fields: Any) -> Any:
    return record(json.dumps({"event_id": event_id, "ts": T0, **fields}).encode())
