"""Delete markers on a topic, which are records with a key and without a value, crashed the decoder."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_calib.events.dead_letters import REASON_HEADER
from stream_calib.transport.port import TopicPartition
from tests.cases.calibrating import NOW_MS, Calibrating
from tests.cases.joined import joined, label, score
from tests.windows.monitors import A

SCORES = TopicPartition("scores", 0)


def _event(name: str) -> dict[str, Any]:
    return {"event_id": name, "score": 0.5, "t": NOW_MS}


def test_on_scores_a_marker_is_counted_and_passed() -> None:
    made = Calibrating(scores={"time": {"path": "t"}})
    role, consumer = made.member("a")
    made.produce(_event("s1"))
    made.produce(None, key=b"s1")
    made.produce(None)
    made.produce(_event("s2"))
    role.step()
    assert [json.loads(r.value or b"")["event_id"] for r in made.read("calibrated")] == ["s1", "s2"]
    assert consumer.committed(SCORES) == 4
    assert made.read("dead-letters") == []
    decoded, _ = role._transform.decode(made.read("scores"))
    assert decoded.tombstones == [1, 2]


@pytest.mark.parametrize(
    ("value", "reason"),
    [(b"", b"empty_value"), (b" \n", b"empty_value"), (b"null", b"not_an_object"), (b"\x00", b"not_json")],
)
@pytest.mark.parametrize("key", [b"s1", b"", None])
def test_what_only_looks_like_a_marker_is_refused(value: bytes, reason: bytes, key: bytes | None) -> None:
    made = Calibrating(scores={"time": {"path": "t"}})
    role, consumer = made.member("a")
    made.produce(_event("s1"), value, _event("s2"), key=key)
    role.step()
    (letter,) = made.read("dead-letters")
    assert (letter.value, dict(letter.headers)[REASON_HEADER]) == (value, reason)
    assert len(made.read("calibrated")) == 2
    assert consumer.committed(SCORES) == 3


@pytest.mark.services
def test_on_labels_a_marker_withdraws_the_label_of_its_key(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(score("s1", 3), score("s2", 3), score("7", 3))
        j.labels(label("s1", 5), label("s2", 5), label(7, 5))
        j.labels(None, key=b"s2")
        j.labels(None, key=b"7")
        j.labels(None, key=b"never-scored")
        j.matured(3)
        found = j.pane(3)
        assert (found.labelled, found.positives, found.unlabelled) == (1, 1, 2)
        assert j.dead_letters() == []


@pytest.mark.services
def test_a_marker_on_labels_without_a_usable_key_is_refused_and_passed(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(score("s1", 3))
        for key in (None, b"", b"\xff", b"x" * 513):
            j.labels(None, key=key)
        j.labels(b"", b"null", key=b"s1")
        j.labels(label("s1", 5))
        j.matured(3)
        assert j.pane(3).labelled == 1
        reasons = j.dead_letters()
        assert sorted(set(reasons)) == [b"empty_value", b"id_invalid", b"id_missing", b"not_an_object"]
        assert len(reasons) == 6
        assert j.monitors.positions(A, TopicPartition("labels", 0)) == {8}
