from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from stream_calib.drift.alert_changes import AlertChange
from stream_calib.drift.label_selection import SelectionState, selection_step, tolerated
from stream_calib.drift.outcome_step import OutcomeState, PaneOutcomes, outcome_step
from stream_calib.drift.residual import ResidualState, ResidualSums, WatchedCells, advance
from stream_calib.drift.residual_evidence import pane_evidence
from stream_calib.drift.served_words import before_the_first_serves

REFIT_PANES, PAGE_PANES = 720.0, 8_760.0
P = np.array([0.1, 0.3, 0.5, 0.2, 0.4, 0.7])
"""Served, in two groups of three levels."""
WATCHED = WatchedCells(["all", "g=0", "g=1"], np.array([0, 1, 1]), np.full(3, 0.005), np.ones(2), 600.0)
GROUP = np.array([0, 0, 0, 1, 1, 1])


def outcomes(
    rng: np.random.Generator, shift: tuple[float, float] = (0.0, 0.0), n: int = 100, version: str = "v1"
) -> PaneOutcomes:
    """Of a pane with n events a level, whose log-odds are off by the shift of their group."""
    truth = expit(np.log(P / (1 - P)) + np.array(shift)[GROUP])
    positives = rng.binomial(n, truth)
    cell = np.concatenate([np.zeros(6, np.intp), GROUP + 1])
    sums = ResidualSums(cell, np.tile(P, 2), np.full(12, n), np.tile(positives, 2))
    return PaneOutcomes(version, WATCHED, sums)


def play(
    panes: list[PaneOutcomes | None], page_panes: float = PAGE_PANES
) -> tuple[OutcomeState, list[tuple[int, AlertChange]], list[int]]:
    """The state at the end, the alerts and the panes that ask; the state goes through its stored form each time."""
    state = OutcomeState()
    alerts, asks = [], []
    for pane, each in enumerate(panes):
        result = outcome_step(state, pane, each, REFIT_PANES, page_panes)
        state = OutcomeState.from_json(json.loads(json.dumps(result.state.to_json())))
        assert state == result.state
        alerts += [(pane, change) for change in result.alerts]
        asks += [pane] if result.asks else []
    return state, alerts, asks


def test_a_shift_of_one_group_opens_both_alerts_and_a_mended_snapshot_closes_them() -> None:
    rng = np.random.default_rng(1)
    calm = [outcomes(rng) for _ in range(20)]
    off = [outcomes(rng, (0.0, 0.7)) for _ in range(8)]
    mended = [outcomes(rng, version="v2") for _ in range(25)]
    state, alerts, asks = play([*calm, *off, *mended])
    told = [(change.kind, change.state) for _, change in alerts]
    assert told.count(("residual", "open")) == told.count(("residual_page", "open")) == 1
    assert told.count(("residual", "close")) == told.count(("residual_page", "close")) == 1
    assert not state.is_open
    pane, opened = alerts[0]
    assert (opened.kind, opened.since_pane) == ("residual", 20)
    assert asks[0] == pane <= 23
    assert next(iter(opened.evidence["cells"])) == "g=1"
    figures = opened.evidence["cells"]["g=1"]
    assert f" where {figures['served']:.3f} was served, in " in opened.diagnosis
    not_yet = f" where {figures['served']:.3f} was said by a calibrator not yet in use, in "
    assert not_yet in before_the_first_serves(opened.diagnosis)
    assert figures["events"] == (pane - 19) * 300
    assert figures["events_off"] == pytest.approx(
        figures["events"] * (figures["outcome"] - figures["served"]), abs=0.01
    )
    assert figures["outcome"] - figures["served"] > 0.1
    assert (opened.evidence["diagnosis"], opened.diagnosis[:17]) == ("concept_drift", "outcomes of g=1: ")
    # The page needs more evidence, and tells of the same change.
    paged = next((p, c) for p, c in alerts if c.kind == "residual_page")
    assert paged[0] >= pane
    assert paged[1].since_pane == 20
    closed = [p for p, change in alerts if change.state == "close"]
    assert min(closed) > 28
    closing = {change.diagnosis for _, change in alerts if change.state == "close"}
    assert closing == {"outcomes are again what is served, in every cell that was in alarm"}


def test_each_budget_has_detectors_of_its_own_that_only_its_own_alarms_start_again() -> None:
    rng = np.random.default_rng(8)
    panes = [outcomes(rng, (0.0, 0.35)) for _ in range(30)]
    state, alerts, asks = play([*panes])
    refit, page, asked, paged = ResidualState(), ResidualState(), [], []
    for pane, each in enumerate(panes):
        evidence = pane_evidence(WATCHED, each.sums)
        refit, alarms = advance(refit, WATCHED, evidence, REFIT_PANES)
        page, pages = advance(page, WATCHED, evidence, PAGE_PANES)
        asked += [pane] if alarms else []
        paged += [pane] if pages else []
    assert (state.refit, state.page, asks) == (refit, page, asked)
    assert paged[0] == next(p for p, change in alerts if change.kind == "residual_page") > asked[0]


def test_one_shift_of_everything_is_a_change_of_the_base_rate() -> None:
    rng = np.random.default_rng(2)
    _, alerts, _ = play([outcomes(rng, (0.5, 0.5) if pane >= 5 else (0.0, 0.0)) for pane in range(9)])
    opened = alerts[0][1]
    assert "all" in opened.evidence["cells"]
    assert opened.evidence["diagnosis"] == "prior_shift"
    assert opened.evidence["common_shift"] == pytest.approx(0.5, abs=0.15)
    assert "the base rate changed" in opened.diagnosis


def test_a_shift_that_nothing_mends_keeps_the_alert_open_and_tells_it_once() -> None:
    rng = np.random.default_rng(3)
    state, alerts, asks = play([outcomes(rng, (0.0, 0.8)) for _ in range(40)])
    told = [(change.kind, change.state) for _, change in alerts]
    assert ("residual", "close") not in told
    assert told.count(("residual", "open")) == 1
    assert len(asks) > 5, "each alarm asks"
    assert told.count(("residual", "update")) <= 1, "`all` joins once; alarms of the same cells are no news"
    assert state.is_open


def test_a_shift_is_told_anew_under_a_snapshot_that_did_not_mend_it() -> None:
    rng = np.random.default_rng(4)
    panes = [outcomes(rng, (0.0, 0.8), version="v1" if pane < 10 else "v2") for pane in range(20)]
    _, alerts, _ = play([*panes], page_panes=1e40)  # a page would begin the evidence anew too
    update = next(c for p, c in alerts if c.kind == "residual" and p >= 10)
    assert update.state == "update"
    assert update.evidence["cells"]["g=1"]["since_pane"] == 10, "evidence is of the snapshot that did not mend it"


def test_without_outcomes_nothing_moves() -> None:
    rng = np.random.default_rng(5)
    some = [outcomes(rng, (0.0, 0.1)) for _ in range(3)]
    state, _, _ = play([*some])
    assert outcome_step(state, 9, None, REFIT_PANES, PAGE_PANES).state is state
    empty = PaneOutcomes("v1", WATCHED, ResidualSums(*(np.empty(0, t) for t in (np.intp, float, np.int64, np.int64))))
    assert outcome_step(state, 9, empty, REFIT_PANES, PAGE_PANES).state == state


@settings(max_examples=8, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
def test_the_order_of_sums_changes_no_bit(random: object, seed: int) -> None:
    rng = np.random.default_rng(seed)
    plain, mixed = OutcomeState(), OutcomeState()
    for pane in range(4):
        found = outcomes(rng, (0.6, 0.0))
        order = list(range(12))
        random.shuffle(order)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
        sums = found.sums
        other = ResidualSums(sums.cell[order], sums.served[order], sums.labelled[order], sums.positives[order])
        plain_result = outcome_step(plain, pane, found, REFIT_PANES, PAGE_PANES)
        mixed_result = outcome_step(mixed, pane, PaneOutcomes("v1", WATCHED, other), REFIT_PANES, PAGE_PANES)
        assert plain_result.alerts == mixed_result.alerts
        plain, mixed = plain_result.state, mixed_result.state
        assert json.dumps(plain.to_json()) == json.dumps(mixed.to_json())


# --- label selection

SHARES = np.array([0.8, 0.9, 0.7])


def scores(rng: np.random.Generator, share: tuple[float, float] = (0.9, 0.7), n: int = 300) -> PaneOutcomes:
    watched = WatchedCells(["all", "g=0", "g=1"], np.array([0, 1, 1]), tolerated(SHARES), np.ones(2), 600.0)
    labelled = rng.binomial(n, share)
    total = np.array([2 * n, n, n])
    found = np.array([labelled.sum(), *labelled])
    return PaneOutcomes("v1", watched, ResidualSums(np.arange(3), SHARES, total, found))


def test_labels_that_go_missing_in_one_group_are_told_and_their_return_too() -> None:
    rng = np.random.default_rng(6)
    state, told = SelectionState(), []
    for pane in range(60):
        share = (0.9, 0.3) if 10 <= pane < 20 else (0.9, 0.7)
        state, change = selection_step(state, pane, scores(rng, share), REFIT_PANES)
        stored = SelectionState.from_json(json.loads(json.dumps(state.to_json())))
        assert stored == state
        if change is not None:
            told.append((pane, change))
    (pane, opened), *updates, (closed_pane, closed) = told
    assert (opened.kind, opened.state, opened.since_pane) == ("label_selection", "open", 10)
    assert pane <= 12
    assert next(iter(opened.evidence["cells"])) == "g=1"
    assert opened.evidence["cells"]["g=1"]["usual_share"] == 0.7
    assert opened.evidence["cells"]["g=1"]["share"] == pytest.approx(0.3, abs=0.06)
    assert opened.diagnosis.endswith("70.0% is usual: the labels that there are may be no fair sample")
    assert {change.state for _, change in updates} <= {"update"}
    assert (closed.state, closed.since_pane) == ("close", 10)
    assert closed_pane >= 20


def test_a_tenth_fewer_labels_is_tolerated() -> None:
    assert tolerated(np.array([0.9, 0.05])).tolist() == pytest.approx([0.09, 0.01])
    rng = np.random.default_rng(7)
    state = SelectionState()
    for pane in range(100):
        state, change = selection_step(state, pane, scores(rng, (0.83, 0.64)), REFIT_PANES)
        assert change is None
    assert selection_step(state, 100, None, REFIT_PANES) == (state, None)
