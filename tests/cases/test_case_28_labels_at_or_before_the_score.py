"""A prediction was stamped with the very time of the event, so that the answer leaked into it; labels that came before
their score were lost; and one row stood on both sides of fit and test.
"""

from __future__ import annotations

import pytest

from stream_calib.events.identity import fingerprints, unit_buckets
from stream_calib.refit.roles import ROLES
from tests.cases.joined import joined, label, score
from tests.unit.refit.world import World
from tests.unit.refit.world import config as world_config
from tests.windows.monitors import A

SERVICES = pytest.mark.services


@SERVICES
@pytest.mark.parametrize("seconds", [2, 3])
def test_a_label_dated_at_or_before_its_score_is_flagged_and_in_no_fit(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.scores(score("s1", 3))
        j.labels(label("s1", seconds))
        j.matured(3)
        found = j.pane(3)
        assert (found.labelled, found.unlabelled) == (0, 1)
        counts = found.record.counts
        assert (counts["label_leaked"], counts.get("matched", 0)) == (1, 0)


@SERVICES
def test_a_label_that_comes_first_and_is_dated_later_is_held(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(redis_url, monkeypatch) as j:
        j.clocks(0)
        j.monitors.start()
        j.labels(label("s1", 9))
        j.monitors.until_applied(A)
        j.scores(score("s1", 3))
        j.matured(3)
        assert (j.pane(3).labelled, j.pane(3).positives) == (1, 1)


def test_an_id_that_is_scored_twice_is_on_one_side_of_fit_and_gate() -> None:
    buckets = {bucket: role for role, numbers in ROLES.items() for bucket in numbers}
    assert len(buckets) == sum(map(len, ROLES.values())) == 20
    first, again = unit_buckets(fingerprints(["twice", "twice"])).tolist()
    assert buckets[first] == buckets[again]


def test_the_gates_report_has_no_overlap() -> None:
    world = World(world_config())
    world.run(40)
    gates = [report.gate for report in world.store.reports() if report.gate is not None]
    assert gates
    assert {gate.role_overlap for gate in gates} == {0}
