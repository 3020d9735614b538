"""A boolean passed as a number without complaint, bool("False") was true, and a null counted as a negative."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.events.contracts import WITHDRAWN, RejectReason
from stream_calib.events.label_decoder import LABEL_TABLE, LabelDecoder
from stream_calib.events.score_decoder import ScoreDecoder
from tests.cases.joined import joined, label, score
from tests.unit.events.events_for_tests import T0, config, record
from tests.unit.events.events_for_tests import label as label_record
from tests.unit.events.events_for_tests import score as score_record

REFUSED = "refused"
COSTUMES: list[tuple[Any, int | str]] = [
    (True, 1),
    (False, 0),
    ("1", 1),
    ("0", 0),
    ("true", REFUSED),
    ("False", REFUSED),
    (1.0, 1),
    (0.5, REFUSED),
    (2, REFUSED),
    (-1, REFUSED),
    ("", REFUSED),
    (None, WITHDRAWN),
    ("yes", REFUSED),
]


def read(value: Any) -> int | str:
    decoded = LabelDecoder(config()).decode([record(label_record(label=value))])
    assert decoded.labels is not None
    if decoded.rejects:
        assert [r.reason for r in decoded.rejects] == [RejectReason.LABEL_INVALID]
        assert not len(decoded.labels.label)
        return REFUSED
    return int(decoded.labels.label[0])


@pytest.mark.parametrize(("value", "expected"), COSTUMES, ids=[json.dumps(value) for value, _ in COSTUMES])
def test_the_written_table(value: Any, expected: int | str) -> None:
    assert read(value) == expected


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
                 st.text(max_size=6), st.lists(st.integers(), max_size=1)))  # fmt: skip
@settings(max_examples=150)
def test_all_that_is_not_in_the_table_is_refused(value: Any) -> None:
    found = read(value)
    key = (type(value), value)
    known = not isinstance(value, list) and key in LABEL_TABLE
    assert found == (LABEL_TABLE[key] if known else REFUSED)
    if isinstance(value, str):
        assert (found == 1) == (value == "1")


@pytest.mark.parametrize("value", [True, False, "0.7", "1", None])
def test_a_boolean_or_a_text_is_no_score(value: Any) -> None:
    decoded = ScoreDecoder(config()).decode([record(score_record(score=value))])
    assert [r.reason for r in decoded.rejects] == [RejectReason.SCORE_INVALID]


@pytest.mark.services
def test_null_is_never_counted_as_a_negative(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(*(score(str(i), 3) for i in range(len(COSTUMES))))
        j.labels(*(label(str(i), 5, value) for i, (value, _) in enumerate(COSTUMES)))
        j.matured(3)
        found = j.pane(3)
        outcomes = [outcome for _, outcome in COSTUMES]
        assert found.positives == outcomes.count(1)
        assert found.labelled == outcomes.count(1) + outcomes.count(0)
        assert found.unlabelled == len(COSTUMES) - found.labelled
        assert j.dead_letters() == [b"label_invalid"] * outcomes.count(REFUSED)


@pytest.mark.services
def test_a_null_after_a_label_takes_it_back(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(score("a", 3), score("b", 3))
        j.labels(label("a", 5, 0), label("b", 5, 1), label("a", 6, None))
        j.matured(3)
        found = j.pane(3)
        assert (found.labelled, found.positives, found.unlabelled) == (1, 1, 1)


def test_a_label_that_is_missing_is_not_null() -> None:
    decoded = LabelDecoder(config()).decode([record({"event_id": "e", "ts": T0})])
    assert [r.reason for r in decoded.rejects] == [RejectReason.LABEL_MISSING]
