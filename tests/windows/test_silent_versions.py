"""Which version of a model speaks for it when nobody scores it any more."""

from __future__ import annotations

import pytest

from tests.oracle.offline import Score
from tests.windows.monitors import A, B, at, monitored

pytestmark = pytest.mark.services


def test_the_version_that_was_scored_last_and_of_equals_the_one_with_the_greatest_name(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitored(redis_url, monkeypatch, partitions=1) as m:
        m.clocks(0)
        m.scores(A, 0, Score("a", at(5), 0.4, ("x",)))
        m.scores(B, 0, Score("b", at(6), 0.4, ("x",)))
        models = m.start()._models
        m.until_applied(A, B)
        pane = at(5) // 10_000
        assert (models._scored_later(A, pane), models._scored_later(B, pane)) == (B, None)
        m.scores(A, 0, Score("c", at(15), 0.4, ("x",)))
        m.until_applied(A, B)
        assert (models._scored_later(A, pane + 1), models._scored_later(B, pane)) == (None, A)
