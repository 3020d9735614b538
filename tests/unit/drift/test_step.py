from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.drift.outcome_step import PaneOutcomes
from stream_calib.drift.policy import Asked, TriggerConfig
from stream_calib.drift.psi import PsiReference, ReferenceGroup
from stream_calib.drift.psi_alert import PsiFacts
from stream_calib.drift.residual import ResidualSums, WatchedCells
from stream_calib.drift.served_words import before_the_first_serves
from stream_calib.drift.step import (
    VOCABULARY_CALM_PANES,
    DetectorState,
    PaneCounts,
    PaneFacts,
    StepConfig,
    StepResult,
    step,
)

CONFIG = StepConfig(
    TriggerConfig(1_000, None, 6, 100, 50, 5),
    horizon_panes=3,
    psi_threshold=0.1,
    budget_panes=720.0,
    page_panes=8_760.0,
)
REFERENCE = PsiReference(
    [
        ReferenceGroup(None, None, (200, 401), (5_000.0, 5_000.0), 1.0),
        ReferenceGroup("a", "x", (200, 401), (2_000.0, 2_000.0), 1.0),
    ],
    rows_per_pane=50.0,
)
SAME, MOVED = np.array([[500, 500], [200, 200]]), np.array([[900, 100], [200, 200]])
BOTH_MOVED, NEAR = np.array([[900, 100], [390, 10]]), np.array([[620, 380], [200, 200]])


def facts(
    pane: int, psi_counts: Any = SAME, labelled: int = 45, reference: PsiReference | None = REFERENCE
) -> PaneFacts:
    return PaneFacts(
        pane=pane,
        counts=PaneCounts(labelled, 50 - labelled, labelled // 2, labelled // 8),
        has_snapshot=reference is not None,
        manual=False,
        psi=None
        if reference is None
        else PsiFacts(pane + CONFIG.horizon_panes, reference, np.asarray(psi_counts, dtype=np.int64), newest_rows=50),
    )


def play(looks: list[Any]) -> list[StepResult]:
    state = step(DetectorState(), facts(0, reference=None), CONFIG).state
    state = replace(state, trigger=replace(state.trigger, last_structure_pane=0))
    results = []
    for pane, psi_counts in enumerate(looks, 1):
        results.append(step(state, facts(pane, psi_counts), CONFIG))
        state = results[-1].state
    return results


def changes(results: list[StepResult]) -> list[tuple[int, str, str]]:
    return [(pane, a.kind, a.state) for pane, r in enumerate(results, 1) for a in r.alerts]


def test_psi_alert_opens_once_and_closes_once() -> None:
    # NEAR (psi .06, excess just below .06) is below the alarm but not calm: it neither opens nor closes anything.
    results = play([SAME, NEAR, MOVED, MOVED, NEAR, MOVED, SAME, SAME])
    assert changes(results) == [(3, "psi", "open"), (7, "psi", "close")]
    opened, closed = results[2].alerts[0], results[6].alerts[0]
    assert opened.since_pane == closed.since_pane == 3 + CONFIG.horizon_panes
    assert list(opened.evidence["groups"]) == ["all"]
    assert "all" in opened.diagnosis


def test_a_further_group_is_an_update() -> None:
    assert changes(play([MOVED, BOTH_MOVED, BOTH_MOVED, SAME])) == [
        (1, "psi", "open"),
        (2, "psi", "update"),
        (4, "psi", "close"),
    ]


def test_an_open_group_without_figures_stays_open_and_does_not_enter_the_evidence() -> None:
    results = play([[[500, 500], [390, 10]], [[900, 100], [0, 0]]])
    assert changes(results) == [(1, "psi", "open"), (2, "psi", "update")]
    assert results[1].state.psi.open == ("all", "a=x")
    evidence = results[1].alerts[0].evidence
    assert evidence["open_groups"] == 2
    assert list(evidence["groups"]) == ["all"]
    json.dumps(evidence, allow_nan=False)


def test_a_psi_alarm_asks_when_the_panes_it_saw_are_mature() -> None:
    asked = [r.request for r in play([SAME] * 6 + [MOVED] * 6)]
    # Alarm with pane 7 about closed pane 10; cooldown (6 panes after pane 0) and labels are long satisfied.
    assert [(pane, a) for pane, a in enumerate(asked, 1) if a] == [(10, Asked("structure", "psi"))]


WATCHED = WatchedCells(["all"], np.array([0]), np.array([0.01]), np.ones(1), 50.0)


def outcomes(positives: int) -> PaneOutcomes:
    """Of 40 labelled rows that were served .2."""
    sums = ResidualSums(np.array([0]), np.array([0.2]), np.array([40]), np.array([positives]))
    return PaneOutcomes("v1", WATCHED, sums)


def watched(looks: list[Any], positives: int, *, horizon_panes: int = 3) -> list[StepResult]:
    """The steps of panes 1, 2, ...; outcomes are watched."""
    config = replace(CONFIG, horizon_panes=horizon_panes)
    state = step(DetectorState(), facts(0, reference=None), config).state
    state = replace(state, trigger=replace(state.trigger, last_structure_pane=0))
    results = []
    for pane, psi_counts in enumerate(looks, 1):
        made = facts(pane, psi_counts)
        assert made.psi is not None
        made = replace(made, psi=replace(made.psi, newest=pane + horizon_panes), outcomes=outcomes(positives))
        results.append(step(state, made, config))
        state = results[-1].state
    return results


def test_a_psi_alert_says_whether_outcomes_moved_too_once_its_pane_is_mature() -> None:
    # Opened with pane 2 about closed pane 5.
    results = watched([SAME, *[MOVED] * 6], positives=8)
    assert changes(results) == [(2, "psi", "open"), (5, "psi", "update")]
    update = results[4].alerts[0]
    assert update.evidence == {"open_groups": 1, "diagnosis": "covariate_shift"}
    assert update.diagnosis == "the scores of all moved, and outcomes are still what is served"
    moved = before_the_first_serves(update.diagnosis)
    assert moved == "the scores of all moved, and outcomes are still what a calibrator not yet in use says"
    assert update.since_pane == 5
    off = watched([SAME, *[MOVED] * 6], positives=30)
    said = [a for r in off for a in r.alerts if a.kind == "psi"]
    assert [a.state for a in said] == ["open", "update"]
    assert said[1].evidence["diagnosis"] == "concept_drift"
    assert said[1].diagnosis == "the scores of all moved, and outcomes are off what is served too"
    moved = before_the_first_serves(said[1].diagnosis)
    assert moved == "the scores of all moved, and outcomes are off what a calibrator not yet in use says too"


def test_a_psi_alert_that_closes_before_or_of_which_nobody_watches_outcomes_says_nothing_of_them() -> None:
    assert changes(watched([MOVED, MOVED, SAME, SAME, SAME], positives=8)) == [(1, "psi", "open"), (3, "psi", "close")]
    assert changes(play([MOVED] * 6)) == [(1, "psi", "open")]


def test_two_news_of_one_pane_are_one_event() -> None:
    results = watched([MOVED, MOVED, MOVED, BOTH_MOVED], positives=8)
    assert changes(results) == [(1, "psi", "open"), (4, "psi", "update")]
    update = results[3].alerts[0]
    assert set(update.evidence["groups"]) == {"all", "a=x"}
    assert update.evidence["diagnosis"] == "covariate_shift"
    assert update.diagnosis.endswith("; the scores of all, a=x moved, and outcomes are still what is served")


def test_without_a_horizon_it_is_said_at_once() -> None:
    assert changes(watched([MOVED, MOVED], positives=8, horizon_panes=0)) == [(1, "psi", "open")]
    results = watched([MOVED], positives=8, horizon_panes=0)
    assert results[0].alerts[0].evidence["diagnosis"] == "covariate_shift"


def test_outcomes_and_coverage_of_a_pane_without_its_labels_are_not_judged() -> None:
    state = step(DetectorState(), replace(facts(0), outcomes=outcomes(9), scores=outcomes(9)), CONFIG).state
    missing = replace(facts(1, labelled=0), outcomes=outcomes(39), scores=outcomes(39))
    after = step(state, missing, CONFIG).state
    assert (after.outcomes, after.selection) == (state.outcomes, state.selection)
    there = step(state, replace(missing, counts=facts(1).counts), CONFIG).state
    assert there.outcomes != state.outcomes
    assert there.selection != state.selection


def test_an_alarm_of_outcomes_asks_when_cooldown_and_labels_allow_it() -> None:
    results = watched([SAME] * 10, positives=30)
    assert [
        pane for pane, r in enumerate(results, 1) for a in r.alerts if a.kind == "residual" and a.state == "open"
    ] == [1]
    # 45 labelled rows a pane, 100 are needed; the cooldown of 6 panes is from pane 0 on.
    asked = [pane for pane, r in enumerate(results, 1) if r.request == Asked("structure", "residual")]
    assert asked[0] == 6


def test_what_came_later_leaves_no_trace_where_it_is_not_used() -> None:
    document = step(DetectorState(), facts(0), CONFIG).state.to_json()
    assert set(document) == {"coverage", "trigger", "psi_open", "psi_since", "outage_open"}
    assert "residual_pane" not in document["trigger"]
    used = step(DetectorState(), replace(facts(0), outcomes=outcomes(9), scores=outcomes(9)), CONFIG).state
    assert set(used.to_json()) == set(document) | {"outcomes", "selection"}
    assert DetectorState.from_json(json.loads(json.dumps(used.to_json()))) == used


def test_label_outage_opens_once_closes_once_and_gives_no_refit_rows() -> None:
    state = step(DetectorState(), facts(0), CONFIG).state
    rows, seen = [], []
    for pane in range(1, 12):
        result = step(state, facts(pane, labelled=0 if 3 <= pane <= 7 else 45), CONFIG)
        state = result.state
        rows.append(state.trigger.fit_rows)
        seen += [(pane, a.kind, a.state, a.since_pane) for a in result.alerts]
    assert seen == [(4, "label_outage", "open", 3), (8, "label_outage", "close", 3)]
    assert rows[2:7] == [rows[1]] * 5
    assert rows[7] > rows[6]


def test_without_a_snapshot_there_is_no_psi() -> None:
    result = step(DetectorState(), facts(0, reference=None), CONFIG)
    assert result.alerts == ()
    assert result.state.psi.open == ()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.integers(0, 50)), min_size=1, max_size=25))
def test_state_survives_json_exactly_and_the_step_goes_on_the_same(looks: list[tuple[int, int]]) -> None:
    kept, stored = DetectorState(), DetectorState()
    for pane, (which, labelled) in enumerate(looks):
        given_facts = facts(pane, [SAME, NEAR, MOVED, BOTH_MOVED][which], labelled)
        one, other = step(kept, given_facts, CONFIG), step(stored, given_facts, CONFIG)
        assert one == other
        kept = one.state
        stored = DetectorState.from_json(json.loads(json.dumps(other.state.to_json())))
        assert stored == kept


def test_psi_counts_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        step(DetectorState(), facts(0, np.zeros((3, 2), dtype=np.int64)), CONFIG)


def capped(pane: int, **winners: int) -> PaneFacts:
    return replace(facts(pane), capped=winners)


def vocabulary_alerts(history: list[PaneFacts]) -> list[tuple[int, str, int]]:
    """Pane, state, first pane of each event; the state goes through its stored form after each pane."""
    state = DetectorState()
    found: list[tuple[int, str, int]] = []
    for each in history:
        result = step(state, each, CONFIG)
        state = DetectorState.from_json(json.loads(json.dumps(result.state.to_json())))
        assert state == result.state
        found += [(each.pane, a.state, a.since_pane) for a in result.alerts if a.kind == "vocabulary"]
    return found


def test_an_alert_of_values_that_are_not_counted_apart_opens_once_and_closes_after_a_day_of_calm_panes() -> None:
    calm = VOCABULARY_CALM_PANES
    history = [facts(0), capped(1, region=3), facts(2), capped(3, region=1), *(facts(p) for p in range(4, 3 + calm))]
    assert vocabulary_alerts(history) == [(1, "open", 1)]
    assert vocabulary_alerts([*history, facts(3 + calm)]) == [(1, "open", 1), (3 + calm, "close", 1)]
    empty = replace(facts(3 + calm), counts=PaneCounts(0, 0, 0, 0))
    assert vocabulary_alerts([*history, empty]) == [(1, "open", 1)]
    again = [*history, facts(3 + calm), capped(4 + calm, region=1)]
    assert vocabulary_alerts(again)[-1] == (4 + calm, "open", 4 + calm)


def test_it_says_of_what_and_of_how_many_and_leaves_no_trace_where_it_never_opened() -> None:
    (alert,) = step(DetectorState(), capped(7, customer=30, keep_rate=2), CONFIG).alerts
    assert alert.evidence == {"winners": 50, "capped": {"customer": 30, "keep_rate": 2}}
    assert alert.diagnosis.startswith("pane 7 has more values of customer, keep_rate than are counted apart")
    assert not any("vocabulary" in name for name in step(DetectorState(), facts(7), CONFIG).state.to_json())
