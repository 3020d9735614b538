"""The trigger machine over a decision log: walked at random, and through a year in which nothing happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.drift.label_selection import tolerated
from stream_calib.drift.outcome_step import PaneOutcomes
from stream_calib.drift.policy import Asked, TriggerConfig, TriggerFacts, TriggerState, phase, trigger
from stream_calib.drift.psi import PsiReference, ReferenceGroup
from stream_calib.drift.psi_alert import PsiFacts
from stream_calib.drift.residual import ResidualSums, WatchedCells
from stream_calib.drift.step import DetectorState, PaneCounts, PaneFacts, StepConfig, step
from stream_calib.refit.roles import ROLES
from stream_calib.snapshot.decision_log import DecisionLog, Expired, Outcome, Request, Settled

CONFIG = TriggerConfig(
    max_age_panes=20, level_cadence_panes=3, cooldown_panes=5, min_new_labels=60, min_rows=50, min_positives=5
)
QUIET = TriggerFacts(0, 30, 20, 4, has_snapshot=True, manual=False, psi_alarm_pane=None)


def request(pane: int, asked: Asked, parent: str | None) -> Request:
    return Request(
        pane=pane,
        id=f"r{pane}",
        kind=asked.kind,
        reason=asked.reason,
        first_pane=0,
        last_pane=pane,
        cells_sha256="",
        parent=parent,
        roles=ROLES,
        config_hash="c",
    )


def answer(pane: int, request_id: str, outcome: str) -> Settled | Expired:
    if outcome == "expired":
        return Expired(pane=pane, request_id=request_id)
    settled: Outcome = "published" if outcome == "published" else "refused"
    version = f"v{pane}" if settled == "published" else None
    return Settled(pane=pane, request_id=request_id, outcome=settled, version=version, report_sha256="")


pane_events = st.tuples(
    st.sampled_from([False] * 8 + [True]),  # somebody asks for a refit
    st.sampled_from([False] * 4 + [True]),  # a residual alarm
    st.sampled_from([None] * 6 + [0, 3, 7]),  # a psi alarm about the pane so much later
    st.sampled_from([0, 10, 30, 30]),  # labels
    st.integers(0, 3),  # panes that mature before a request is answered
    st.sampled_from(["published", "refused", "expired"]),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(pane_events, min_size=30, max_size=120))
def test_at_most_one_request_no_alarm_is_lost_and_none_asks_twice(
    walk: list[tuple[bool, bool, int | None, int, int, str]],
) -> None:
    log, state = DecisionLog(), TriggerState()
    waiting = 0
    answered_by = "published"
    structure: list[int] = []
    due: list[tuple[int, str]] = []
    """Panes that alarms are of, and of what; those that no structure request has been made for since."""
    lost: list[tuple[int, str]] = []
    pane = 0
    for manual, residual, psi, labelled, delay, outcome in walk:
        if log.open_request is not None:  # nothing is decided
            if waiting == 0:
                log.extend([answer(pane, log.open_request.id, answered_by).encode()])
            waiting -= 1
            continue
        before = phase(state, pane - 1, CONFIG)
        facts = TriggerFacts(
            pane,
            labelled,
            labelled // 2,
            labelled // 8,
            has_snapshot=log.current_at(pane) is not None,
            manual=manual,
            psi_alarm_pane=None if psi is None else pane + psi,
            residual_alarm=residual,
        )
        due += [(pane, "residual")] if residual else []
        due += [(pane + psi, "psi")] if psi is not None else []
        after, asked = trigger(state, facts, CONFIG)
        by_alarm = asked is not None and asked.reason in ("residual", "psi")
        ready = [d for d in due if d[0] <= pane]
        if by_alarm and asked is not None:
            assert any(what == asked.reason for _, what in ready), "asked for by an alarm of which nothing is left"
            assert before != "cooling_down"
            assert before != "settled" or residual or psi is not None
            assert state.new_labels + labelled >= CONFIG.min_new_labels
        if facts.has_snapshot and before == "armed" and not manual:
            assert by_alarm, "an armed machine asks with the next pane"
        if asked is not None:
            log.extend([request(pane, asked, log.current_at(pane)).encode()])  # raises where one is open
            waiting, answered_by = delay, outcome
            if asked.kind == "structure":
                if structure and asked.reason not in ("manual", "bootstrap"):
                    assert pane - structure[-1] >= min(CONFIG.cooldown_panes, CONFIG.max_age_panes)
                # The one that was in the way while there was no snapshot does not count.
                if facts.has_snapshot or after.last_structure_pane == pane:
                    structure.append(pane)
                    due = [d for d in due if d[0] > pane]
        if facts.has_snapshot:
            lost += [d for d in due if d[0] + CONFIG.max_age_panes < pane and structure and structure[-1] < d[0]]
        state, pane = after, pane + 1
    assert lost == []


def test_residual_goes_before_psi_waits_for_cooldown_and_labels_and_asks_once() -> None:
    state = TriggerState(last_structure_pane=-1)
    asked = []
    for pane in range(30):
        facts = replace(
            QUIET, pane=pane, labelled=11, residual_alarm=pane in (1, 2, 6), psi_alarm_pane=1 if pane == 1 else None
        )
        state, request_made = trigger(state, facts, CONFIG)
        asked += [(pane, request_made.reason)] if request_made and request_made.kind == "structure" else []
    # 5 panes of cooldown, then the sixth pane of 11 labels; the alarm of pane 6 is of a later change.
    assert asked == [(5, "residual"), (11, "residual")]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (TriggerState(), "settled"),
        (TriggerState(armed_pane=12, new_labels=99), "maturing"),
        (TriggerState(armed_pane=11, new_labels=99), "armed"),
        (TriggerState(armed_pane=12, residual_pane=9, new_labels=99), "armed"),
        (TriggerState(residual_pane=9, last_structure_pane=7, new_labels=99), "cooling_down"),
        (TriggerState(residual_pane=9, last_structure_pane=6, new_labels=99), "armed"),
        (TriggerState(residual_pane=9, new_labels=59), "waiting_for_labels"),
    ],
)
def test_phases(state: TriggerState, expected: str) -> None:
    assert phase(state, 10, CONFIG) == expected


def test_a_state_without_residual_alarms_has_the_bytes_of_before_there_were_any() -> None:
    names = {"fit_rows", "fit_positives", "new_labels", "last_structure_pane", "last_level_pane", "armed_pane"}
    assert set(TriggerState().to_json()) == names
    assert set(TriggerState(residual_pane=3).to_json()) == names | {"residual_pane"}


P = np.array([0.02, 0.1, 0.3, 0.6])
SHARE = np.array([0.9])


def test_a_year_of_steady_traffic_is_refitted_by_age_alone() -> None:
    """Panes of twelve hours, 365 days; every detector is on."""
    rng = np.random.default_rng(11)
    watched = WatchedCells(["all", "g=0", "g=1"], np.array([0, 1, 1]), np.full(3, 0.004), np.ones(2), 360.0)
    coverage = WatchedCells(["all"], np.array([0]), tolerated(SHARE), np.ones(1), 400.0)
    reference = PsiReference([ReferenceGroup(None, None, (100, 200, 300, 401), (4e3, 4e3, 4e3, 4e3), 1.0)], 400.0)
    config = StepConfig(TriggerConfig(2, None, 1, 300, 1_000, 50), 2, 0.1, 60.0, 730.0)
    state, snapshot, reasons = DetectorState(), False, Counter[str]()
    for pane in range(365 * 2):
        labelled = rng.binomial(50, 0.9, 8)
        positives = rng.binomial(labelled, np.tile(P, 2))
        cell = np.concatenate([np.zeros(8, np.intp), np.repeat([1, 2], 4)])
        sums = ResidualSums(cell, np.tile(P, 4), np.tile(labelled, 2), np.tile(positives, 2))
        scores = ResidualSums(np.zeros(1, np.intp), SHARE, np.array([400]), labelled.sum(keepdims=True))
        window = rng.multinomial(1_600, [0.25] * 4)[None, :]
        facts = PaneFacts(
            pane,
            PaneCounts(
                int(labelled.sum()), 400 - int(labelled.sum()), int(labelled.sum() * 0.6), int(positives.sum() * 0.6)
            ),
            snapshot,
            manual=False,
            psi=PsiFacts(pane + 2, reference, window, 400) if snapshot else None,
            outcomes=PaneOutcomes("v", watched, sums) if snapshot else None,
            scores=PaneOutcomes("v", coverage, scores) if snapshot else None,
        )
        result = step(state, facts, config)
        state = result.state
        assert result.alerts == ()
        if result.request is not None:
            reasons[result.request.reason] += 1
            snapshot = True
    # 216 labelled rows of the fit buckets a pane: 1,000 with the fifth; then every second pane.
    assert reasons == {"bootstrap": 1, "age": (365 * 2 - 5) // 2}
