"""What is kept of every request, whatever became of it."""

from __future__ import annotations

import pytest

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.errors import FitError
from stream_calib.refit.roles import ROLES
from stream_calib.snapshot.decision_log import Request
from stream_calib.snapshot.report import RefitReport
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.state_store import Commit
from tests.unit.refit.world import FIRST_PANE, KEY, World, config


def deciding(**refit: object) -> Config:
    plain = config()
    decisions = {"decline": 0.8, "review": 0.5}
    return plain.model_copy(update={"decisions": decisions, "refit": plain.refit.model_copy(update=refit)})


@pytest.fixture(scope="module")
def world() -> World:
    made = World(deciding())
    made.run(100)
    return made


def request_of(world: World, report: RefitReport) -> Request:
    (found,) = [e for e in world.store.log().entries if isinstance(e, Request) and e.id == report.request_id]
    return found


def test_a_report_says_what_was_asked(world: World) -> None:
    for report in world.store.reports():
        request, asked = request_of(world, report), report.asked
        assert asked is not None
        assert (asked.first_pane, asked.last_pane, asked.parent) == (FIRST_PANE, request.pane, request.parent)
        assert (asked.cells_sha256, asked.config_hash) == (request.cells_sha256, request.config_hash)
        assert report.choices is not None
        assert asked.evidence_sha256 == report.choices.evidence_sha256


def test_a_report_says_by_what_data_the_candidate_was_made_and_judged(world: World) -> None:
    report = world.store.reports()[-1]
    roles = {role.role: role for role in report.roles}
    assert {name: list(role.unit_buckets) for name, role in roles.items()} == ROLES
    assert report.gate is not None
    assert (roles["fit"].rows, roles["fit"].positives) == (report.rows, report.positives)
    assert (roles["gate"].rows, roles["gate"].positives) == (report.gate.rows, report.gate.positives)
    assert report.certificate is not None
    assert roles["certificate"].rows == report.certificate.rows
    assert report.reliability is not None
    assert sum(report.reliability.candidate.rows) == report.gate.rows
    assert report.groups is not None
    assert sum(line.rows for line in report.groups.lines) == report.gate.rows
    assert report.changes is not None
    assert report.changes.events == report.gate.rows


def test_decisions_are_in_the_gate_report_of_the_snapshot_too(world: World) -> None:
    report = world.store.reports()[0]
    assert report.version is not None
    gate = world.store.document(report.version).gate
    assert gate == report.gate
    assert [(decision.name, decision.threshold) for decision in gate.decisions] == [("review", 0.5), ("decline", 0.8)]
    # Raw scores of the south are three times too large in odds; so the first snapshot takes many below the thresholds.
    south = next(group for group in gate.decisions[0].groups if group.name == "region=south")
    assert south.down > 0.15
    assert south.down > gate.decisions[0].down
    told = [Alert.decode(raw) for raw in world.state.entries("outbox", 0)]
    published = next(alert for alert in told if alert.kind == "refit_published")
    assert published.evidence["version"] == report.version
    (review, _) = published.evidence["decisions"]
    assert (review["name"], review["down"]) == ("review", gate.decisions[0].down)
    assert south.name in [group["name"] for group in review["groups"]]


def test_two_workers_keep_the_same_bytes(world: World) -> None:
    again = World(deciding())
    again.now_ms = 777_000
    for _ in range(100):
        again.run(1, refit=False)
        anew = type(again.refitter)(again.state, again.store, KEY, again.config)
        while anew.run_once(again.token) is not None or again.decide():
            pass
    assert [r.encode() for r in again.store.reports()] == [r.encode() for r in world.store.reports()]


def test_a_request_that_could_not_be_fitted_says_what_data_there_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fit(*_: object) -> None:
        raise FitError("it does not converge")

    monkeypatch.setattr("stream_calib.refit.candidate.fit_structure", no_fit)
    world = World(config())
    world.run(30)
    report = world.store.reports()[0]
    assert (report.outcome, report.detail) == ("failed", "FitError: it does not converge")
    assert report.asked is not None
    assert [role.role for role in report.roles] == list(ROLES)
    assert report.roles[0].rows >= 600
    assert (report.gate, report.groups, report.changes) == (None, None, None)


def test_where_the_cells_are_others_no_data_is_claimed() -> None:
    world = World(config())
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    pane = FIRST_PANE + 3
    world.state.commit(Commit(blobs={f"matured:{pane}": MaturedCells.merge([world.matured[pane]] * 2).pack()}))
    report = world.refitter.run_once(world.token)
    assert report is not None
    assert report.outcome == "failed"
    assert report.asked is not None
    assert report.roles == ()


def test_who_asked_by_hand_and_why(world: World) -> None:
    by_hand = World(config())
    by_hand.run(40)
    by_hand.store.request_manual("ann", "new campaign")
    by_hand.run(10)
    report = next(r for r in by_hand.store.reports() if r.reason == "manual")
    assert report.asked is not None
    assert report.asked.asked_by == ("ann: new campaign",)
    assert {r.asked.asked_by for r in world.store.reports() if r.asked is not None} == {()}


def test_a_candidate_that_moves_too_many_decisions_is_refused_and_the_alert_says_whose() -> None:
    made = World(deciding(max_decision_shift=0.001, gate_margin=0.5, max_auc_drop=1.0))
    made.run(120)
    first, *others = made.store.reports()
    assert first.outcome == "published"  # against raw scores there is no limit
    refused = [r for r in others if "decision_shift" in r.refused_for]
    assert refused
    opened = [Alert.decode(raw) for raw in made.state.entries("outbox", 0)]
    alert = next(a for a in opened if a.kind == "refit_refused" and a.state == "open")
    (report,) = [r for r in others if r.request_id == alert.evidence["request_id"]]
    assert report.gate is not None
    assert [d["name"] for d in alert.evidence["decisions"]] == ["review", "decline"]
    assert alert.evidence["decisions"][0]["up"] == report.gate.decisions[0].up
