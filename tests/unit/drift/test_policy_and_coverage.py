from __future__ import annotations

from dataclasses import replace

import pytest

from stream_calib.drift.coverage import OUTAGE_WINNERS, CoverageState, judge
from stream_calib.drift.policy import Asked, TriggerConfig, TriggerFacts, TriggerState, trigger

CONFIG = TriggerConfig(
    max_age_panes=24, level_cadence_panes=None, cooldown_panes=6, min_new_labels=100, min_rows=50, min_positives=5
)
QUIET = TriggerFacts(0, 30, 20, 4, has_snapshot=True, manual=False, psi_alarm_pane=None)


def play(
    facts: list[TriggerFacts], config: TriggerConfig = CONFIG, state: TriggerState | None = None
) -> list[Asked | None]:
    state = TriggerState() if state is None else state
    asked: list[Asked | None] = []
    for fact in facts:
        state, request = trigger(state, fact, config)
        asked.append(request)
    return asked


def panes(n: int, **change: object) -> list[TriggerFacts]:
    return [replace(QUIET, pane=p, **change) for p in range(n)]  # type: ignore[arg-type]  # fields by name


FRESH = TriggerState(last_structure_pane=-1)
"""A structure refit was asked for just before pane 0."""


def test_bootstrap_is_asked_for_with_enough_rows_of_both_classes() -> None:
    asked = play(panes(6, has_snapshot=False))
    assert asked[:2] == [None, None]
    assert asked[2] == Asked("structure", "bootstrap")  # 60 rows, 12 positives
    assert play(panes(40, has_snapshot=False, fit_positives=20)) == [None] * 40  # no negatives


def test_a_bootstrap_without_success_is_tried_again_after_max_age() -> None:
    asked = play(panes(60, has_snapshot=False))
    assert [p for p, a in enumerate(asked) if a] == [2, 26, 50]


def test_a_manual_request_before_there_are_enough_rows_does_not_put_the_bootstrap_off() -> None:
    facts = panes(6, has_snapshot=False)
    facts[0] = replace(facts[0], manual=True)
    assert play(facts)[:3] == [Asked("structure", "manual"), None, Asked("structure", "bootstrap")]


def test_a_manual_request_with_enough_rows_takes_the_place_of_the_bootstrap() -> None:
    facts = panes(6, has_snapshot=False)
    facts[2] = replace(facts[2], manual=True)
    assert play(facts) == [None, None, Asked("structure", "manual"), None, None, None]


def test_age_counts_from_the_last_structure_request() -> None:
    asked = play(panes(60), state=FRESH)
    assert [p for p, a in enumerate(asked) if a] == [23, 47]
    assert {a.reason for a in asked if a} == {"age"}


def test_manual_goes_before_everything_and_ignores_cooldown() -> None:
    facts = panes(4)
    facts[1] = replace(facts[1], manual=True)
    facts[2] = replace(facts[2], manual=True, has_snapshot=False)
    assert play(facts, state=FRESH)[1:3] == [Asked("structure", "manual")] * 2


def test_a_psi_alarm_waits_until_what_it_saw_is_mature() -> None:
    facts = panes(20)
    facts[8] = replace(facts[8], psi_alarm_pane=12)
    asked = play(facts, state=FRESH)
    assert [p for p, a in enumerate(asked) if a] == [12]
    assert asked[12] == Asked("structure", "psi")


def test_cooldown_and_new_labels_hold_back_psi_only() -> None:
    facts = panes(20)
    facts[0] = replace(facts[0], psi_alarm_pane=1)
    assert play(facts, state=FRESH).index(Asked("structure", "psi")) == 5  # 6 panes after the request before pane 0
    few = [replace(f, labelled=10) for f in facts]
    assert play(few, state=FRESH).index(Asked("structure", "psi")) == 9  # 100 labels


def test_one_alarm_asks_once_and_an_earlier_refit_without_the_change_does_not_disarm() -> None:
    facts = panes(30)
    facts[5] = replace(facts[5], psi_alarm_pane=15)
    facts[10] = replace(facts[10], manual=True)
    asked = play(facts, state=FRESH)
    assert [(p, a.reason) for p, a in enumerate(asked) if a] == [(10, "manual"), (16, "psi")]
    facts[20] = replace(facts[20], manual=True)
    facts[18] = replace(facts[18], psi_alarm_pane=20)
    assert [(p, a.reason) for p, a in enumerate(play(facts, state=FRESH)) if a][2:] == [(20, "manual")]


def test_further_alarms_do_not_put_the_refit_off() -> None:
    facts = panes(30)
    for pane in (8, 9, 10, 11):
        facts[pane] = replace(facts[pane], psi_alarm_pane=pane + 4)
    assert [(p, a.reason) for p, a in enumerate(play(facts[:20], state=FRESH)) if a] == [(12, "psi")]


def test_level_has_its_own_cadence_and_comes_last() -> None:
    asked = play(panes(50), replace(CONFIG, level_cadence_panes=5), FRESH)
    reasons = [(p, a.reason) for p, a in enumerate(asked) if a]
    assert reasons == [
        *[(p, "level") for p in (4, 9, 14, 19)],
        (23, "age"),
        *[(p, "level") for p in (28, 33, 38, 43)],
        (47, "age"),
    ]


# --- coverage


def test_full_panes_are_complete_and_small_or_empty_ones_say_nothing() -> None:
    state = CoverageState()
    for labelled, unlabelled in ((0, 0), (0, 19), (500, 20)):
        verdict = judge(state, 0, labelled, unlabelled)
        assert verdict.complete
        state = verdict.state
    assert state.winners == 539


def test_panes_without_labels_are_incomplete_and_open_an_outage_until_labels_return() -> None:
    state = judge(CoverageState(), 0, 2_000, 100).state
    pane = 1
    while not state.outage:
        verdict = judge(state, pane, 0, 40)
        assert not verdict.complete
        state, pane = verdict.state, pane + 1
    assert state.missing_winners == pytest.approx(OUTAGE_WINNERS, abs=40)
    assert state.missing_since == 1
    assert judge(state, pane, 3, 2).state.outage  # five winners do not end it
    recovered = judge(state, pane, 39, 1)
    assert recovered.complete
    assert not recovered.state.outage


def test_a_low_usual_coverage_is_not_taken_for_missing_labels() -> None:
    state = judge(CoverageState(), 0, 100, 1_900).state  # 5 % labelled
    assert judge(state, 1, 0, 40).complete
    assert not judge(state, 1, 0, 2_000).complete
    assert judge(state, 1, 60, 1_940).complete


def test_unlabelled_from_the_beginning_is_incomplete() -> None:
    assert not judge(CoverageState(), 0, 0, 20).complete
