from __future__ import annotations

import json

import numpy as np
import pytest

from stream_calib.refit.decider import Decider
from stream_calib.refit.settings import step_config
from stream_calib.snapshot.decision_log import DecisionLog, Request, Settled
from stream_calib.windows.cells import EMPTY_MATURED, EMPTY_SCORED
from stream_calib.windows.vocabulary import Vocabulary
from tests.outbox import alarms
from tests.unit.refit.world import FIRST_PANE, World, config


def test_a_closer_that_starts_anew_decides_the_same() -> None:
    steady, restarted = World(config()), World(config())
    for pane in range(70):
        if pane % 7 == 3:
            restarted.decider = restarted.new_decider()
        for world in (steady, restarted):
            world.run(1)
    for name in ("detector", "tip", "decided"):
        assert steady.state.read([name]) == restarted.state.read([name])
    assert steady.state.entries("outbox", 0) == restarted.state.entries("outbox", 0)


def test_a_change_of_traffic_opens_one_psi_alert_and_brings_one_refit_after_it_is_mature() -> None:
    world = World(config(max_age="30d", min_new_labels=200, min_rows=3_000), rows_a_pane=60, seed=4)
    world.run(130)  # bootstrap with three whole windows behind it
    assert world.store.current() is not None
    assert alarms(world.state) == []
    changed = FIRST_PANE + len(world.matured)
    world.low, world.high = 0.6, 0.95
    world.run(100)
    alerts = alarms(world.state)
    assert (alerts[0].kind, alerts[0].state) == ("psi", "open")
    assert sum(a.state == "open" for a in alerts if a.kind == "psi") == 1
    asked = [e for e in world.store.log().entries if isinstance(e, Request)][1:]
    assert asked[0].reason == "psi"
    # The alert is decided h panes behind the closed pane that it is about, the refit when that pane itself is mature.
    assert asked[0].pane == alerts[0].pane + world.decider.horizon_panes
    assert asked[0].last_pane >= changed


def test_a_change_of_outcomes_opens_alerts_and_brings_a_refit_and_a_closer_that_starts_anew_decides_the_same() -> None:
    settings = config(max_age="30d", min_new_labels=200, min_rows=3_000, gate_window="1d")
    steady, restarted = (World(settings, rows_a_pane=60, seed=4) for _ in range(2))
    for pane in range(190):
        if pane % 7 == 3:
            restarted.decider = restarted.new_decider()
        for world in (steady, restarted):
            world.west_odds = 1.0 if pane < 120 else 6.0
            world.run(1)
    for name in ("detector", "tip", "decided"):
        assert steady.state.read([name]) == restarted.state.read([name])
    assert steady.state.entries("outbox", 0) == restarted.state.entries("outbox", 0)
    alerts = alarms(steady.state)
    told = {kind: [a for a in alerts if a.kind == kind] for kind in ("residual", "residual_page", "psi")}
    opened, paged = told["residual"][0], told["residual_page"][0]
    assert (opened.state, paged.state, opened.severity, paged.severity) == ("open", "open", "warning", "critical")
    assert next(iter(opened.evidence["cells"])) == "region=west"
    assert FIRST_PANE + 118 <= opened.since_ms // 3_600_000 <= FIRST_PANE + 121
    assert opened.evidence["diagnosis"] == "concept_drift"
    assert FIRST_PANE + 121 <= opened.pane <= FIRST_PANE + 130
    assert told["psi"] == [], "the scores are what they were"
    requests = [e for e in steady.store.log().entries if isinstance(e, Request)]
    assert {e.reason for e in requests} == {"bootstrap", "residual"}
    assert requests[1].pane == opened.pane
    published = [e for e in steady.store.log().entries if isinstance(e, Settled) and e.outcome == "published"]
    assert len(published) >= 2, "what the detectors asked for is published"
    assert sum(a.state == "open" for a in told["residual"]) == 1


def test_budgets_are_panes_of_the_configured_days() -> None:
    made = config()
    made = made.model_copy(
        update={"drift": made.drift.model_copy(update={"false_alarm_days": 10.0, "page_days": 90.0})}
    )
    limits = step_config(made)
    assert (limits.budget_panes, limits.page_panes) == (240.0, 2_160.0)


def test_ids_depend_on_content_alone() -> None:
    first, second = World(config()), World(config())
    for world in (first, second):
        world.run(40)
    ids = [[e.id for e in w.store.log().entries if isinstance(e, Request)] for w in (first, second)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0]) >= 1


def decider() -> Decider:
    return World(config()).decider


def test_panes_needed_are_named_and_asked_for() -> None:
    made = decider()
    assert made.horizon_panes == 2
    assert made.missing(FIRST_PANE) == range(FIRST_PANE, FIRST_PANE + 3)
    with pytest.raises(ValueError, match="push"):
        made.decide(FIRST_PANE, None, DecisionLog(), EMPTY_MATURED, "")
    for pane in made.missing(FIRST_PANE):
        made.push(pane, EMPTY_SCORED)
    assert list(made.missing(FIRST_PANE)) == []
    assert made.missing(FIRST_PANE + 1) == range(FIRST_PANE + 3, FIRST_PANE + 4)
    # Far ahead, or back: the whole window of 24 panes that ends there.
    assert made.missing(FIRST_PANE + 500) == range(FIRST_PANE + 479, FIRST_PANE + 503)
    assert made.missing(FIRST_PANE + 30) == range(FIRST_PANE + 9, FIRST_PANE + 33)


def test_a_window_that_was_filled_in_part_when_the_state_went_back_is_filled_anew() -> None:
    made = decider()
    whole = made.missing(FIRST_PANE + 60)
    for pane in whole[:-1]:
        made.push(pane, EMPTY_SCORED)
    assert made.missing(FIRST_PANE + 60) == whole[-1:], "it goes on"
    assert made.missing(FIRST_PANE + 59) == range(whole[0] - 1, whole[-1])


def test_nothing_is_decided_while_a_request_is_open() -> None:
    world = World(config())
    while world.store.log().open_request is None:
        world.run(1, refit=False)
    fields, log = world.reader.read(["decided"])
    with pytest.raises(ValueError, match="open"):
        world.decider.decide(int(fields["decided"] or 0) + 1, None, log, EMPTY_MATURED, "")


def test_empty_panes_are_decided_too_and_cost_little() -> None:
    made = decider()
    detector = None
    for pane in range(FIRST_PANE, FIRST_PANE + 300):
        for closed in made.missing(pane):
            made.push(closed, EMPTY_SCORED)
        decision = made.decide(pane, detector, DecisionLog(), EMPTY_MATURED, "")
        detector = decision.detector
        assert decision.decisions == ()
        assert decision.open_request == ""
    assert json.loads(detector or "")["coverage"]["winners"] == 0


def test_the_request_names_its_panes_cells_and_parent() -> None:
    world = World(config())
    world.run(60)
    requests = [e for e in world.store.log().entries if isinstance(e, Request)]
    for request in requests:
        assert (request.first_pane, request.last_pane) == (FIRST_PANE, request.pane)
        assert request.cells_sha256 == world.chains[request.last_pane]
        assert request.parent == world.store.log().current_at(request.pane)
    assert np.diff([r.pane for r in requests]).min() > 0


def test_values_that_are_not_counted_apart_are_found_in_the_cells() -> None:
    settings = config()
    world = World(settings.model_copy(update={"scores": settings.scores.model_copy(update={"max_values": 2})}))
    vocabulary = Vocabulary.of(world.config)
    for pane in range(5):
        made = world.add_pane()
        if pane == 3:
            capped = vocabulary.cap(world.matured[made], world.state.signatures)
            world.state.put_signatures(capped.signatures, 0)
            world.matured[made] = capped.cells
        world.decide()
    for _ in range(2):
        world.add_pane()
        world.decide()
    (alert,) = alarms(world.state)
    assert (alert.kind, alert.state, alert.severity, alert.pane) == ("vocabulary", "open", "warning", FIRST_PANE + 3)
    assert list(alert.evidence["capped"]) == ["region"]
    assert 0 < alert.evidence["capped"]["region"] < alert.evidence["winners"] == 50
