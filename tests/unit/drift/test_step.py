from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.drift.policy import Asked, TriggerConfig
from stream_calib.drift.psi import PsiReference, ReferenceGroup
from stream_calib.drift.psi_alert import PsiFacts
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
