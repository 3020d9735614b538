"""A record out of order was given out as unmatched when its window had ended, before its time of grace had, and then
matched as well: one score, counted twice.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.joined import Joined, joined, label, score
from tests.windows.monitors import A

pytestmark = pytest.mark.services
GRACE: dict[str, Any] = {"windows": {"horizon": "10s", "label_lateness": "5s"}}


def counts(j: Joined, *seconds: float) -> dict[str, int]:
    """Over the panes of these times."""
    total: dict[str, int] = {}
    for pane in seconds:
        for kind, n in j.pane(pane).record.counts.items():
            total[kind] = total.get(kind, 0) + n
    return total


def test_a_label_within_its_grace_is_joined_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch, **GRACE) as j:
        j.monitors.start()
        j.scores(score("s1", 0))
        j.labels(label("other", 12))
        j.scores(score("other", 12))
        j.monitors.until_applied(A)
        j.labels(label("s1", 9))
        j.matured(12)
        found = j.pane(0)
        assert (found.scored, found.labelled, found.unlabelled) == (1, 1, 0)
        assert counts(j, 0, 12).get("label_late", 0) == 0


def test_a_label_after_its_grace_is_late_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch, **GRACE) as j:
        j.monitors.start()
        j.scores(score("s1", 0))
        j.labels(label("other", 16), label("s1", 9))
        j.monitors.until_applied(A)
        j.matured(16)
        found = j.pane(0)
        assert (found.scored, found.labelled, found.unlabelled) == (1, 0, 1)
        total = counts(j, 0, 16)
        assert (total["label_late"], total.get("matched", 0)) == (1, 0)


@pytest.mark.parametrize("seconds", [9.999, 10, 10.001])
def test_the_window_ends_with_its_last_millisecond(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    with joined(redis_url, monkeypatch, **GRACE) as j:
        j.scores(score("s1", 0))
        j.labels(label("s1", seconds))
        j.matured(12)
        assert j.pane(0).labelled == (1 if seconds <= 10 else 0)
