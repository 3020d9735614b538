"""A file of labels held the same sample more than once, and people had to decide which one to take and how to report
it; elsewhere the copies were averaged, or counted each.
"""

from __future__ import annotations

import pytest

from tests.cases.joined import joined, label, score

pytestmark = pytest.mark.services


def test_repeats_of_score_and_label_are_one_row(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(score("s1", 3))
        j.scores(score("s1", 3))
        j.labels(*[label("s1", 5, 1)] * 3)
        j.matured(3)
        found = j.pane(3)
        counts = found.record.counts
        assert (counts["accepted"], counts["accepted"] - counts["winners"]) == (2, 1)
        assert (found.labelled, found.positives, counts["matched"]) == (1, 1, 3)


def test_one_id_in_two_panes_is_two_predictions(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(score("s1", 3), score("s1", 13))
        j.labels(label("s1", 15))
        j.matured(13)
        assert (j.pane(3).labelled, j.pane(13).labelled) == (1, 1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_labels_that_differ_are_never_averaged(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    """The newest counts; of equally new ones 0 before 1, in whatever order they come."""
    with joined(redis_url, monkeypatch) as j:
        j.scores(score("equal", 3), score("newer", 3))
        j.labels(*(label("equal", 5, value) for value in order))
        j.labels(*(label("newer", 5 + value, value) for value in order))
        j.matured(3)
        found = j.pane(3)
        assert (found.labelled, found.positives) == (2, 1)
