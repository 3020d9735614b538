from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.policies import label_paths, run_served
from stream_calib.backtest.policies.policy import Policy, make_policy
from stream_calib.backtest.policies.run import run_policy
from stream_calib.backtest.policies.run_figures import day_figures
from stream_calib.backtest.policies.shared_fits import SharedFits, fit_key
from stream_calib.backtest.policies.stepping import Stepper
from stream_calib.config import Config
from stream_calib.drift.step import judge_labels
from stream_calib.refit.candidate import make_candidate
from tests.unit.backtest.made_up import history
from tests.unit.refit.world import config

CELLS = history(6 * 24, rows_a_pane=60, changed_from=4 * 24)
SAME_FITS: list[dict[str, Any]] = [
    {},
    {"refit.gate_margin": 0.0},
    {"refit.gate_margin": 5.0, "refit.max_age": "18h"},
    {"refit.gate_window": "1d"},
    {"refit.level_cadence": "7h", "refit.max_age": "3d"},
    {"drift.psi_threshold": 0.01, "drift.false_alarm_days": 2.0, "refit.cooldown": "1h"},
    {"refit.min_new_labels": 10, "refit.max_auc_drop": 0.5, "refit.gate_min_rows": 600},
    {"refit.triggers": ["age"]},
    {"decisions": {"loan": 0.5}},
]
OTHER_FITS: list[dict[str, Any]] = [
    {"calibration.offset_ridge": 100.0},
    {"drift.min_mass": 0.1},
    {"refit.min_rows": 900},
    {"scores.audit_only": ["region"]},
]


def policies(chosen: list[dict[str, Any]]) -> list[Policy]:
    return [make_policy(f"policy {i}", one, config(), "test") for i, one in enumerate(chosen)]


def stepped(configuration: Config, shared: SharedFits | None, cells: CellHistory = CELLS) -> tuple[Any, ...]:
    """All that a run leaves behind."""
    made = Stepper(cells, configuration, shared=shared)
    for pane in range(cells.first_pane, made.last_pane + 1):
        made.step(pane)
    versions = [publication.version for publication in made.publications()]
    names = [f"snapshot:{version}" for version in versions]
    lists = [made.state.entries(name, 0) for name in ("decisions", "outbox", "reports")]
    return made.state.read(["tip", "decided", "current", "detector"]), lists, made.state.blobs(names)


def test_what_is_shared_changes_no_byte() -> None:
    """Decisions, alerts, reports, snapshots and the detectors' state, of policies that come in this order and in the
    other one: what is there already differs."""
    alone = [stepped(policy.config, None) for policy in policies(SAME_FITS)]
    assert len({state["tip"] for state, _, _ in alone}) == len(SAME_FITS)
    assert all(blobs for _, _, blobs in alone)
    for order in (range(len(alone)), reversed(range(len(alone)))):
        shared = SharedFits(CELLS)
        for i in order:
            assert stepped(policies(SAME_FITS)[i].config, shared) == alone[i], SAME_FITS[i]


def test_other_fits_are_made_for_themselves() -> None:
    shared = SharedFits(CELLS)
    for policy in policies([{}, *OTHER_FITS[:2], {}]):
        assert stepped(policy.config, shared) == stepped(policy.config, None), policy.overrides


def test_keys_tell_fits_apart_and_nothing_else() -> None:
    assert len({fit_key(policy.config) for policy in policies(SAME_FITS)}) == 1
    assert len({fit_key(policy.config) for policy in policies([{}, *OTHER_FITS])}) == 1 + len(OTHER_FITS)


@pytest.mark.parametrize("other", [{"refit.max_age": "12h"}, {"refit.gate_margin": 0.0}])
def test_candidates_of_a_pane_are_fitted_once(other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    def counted(evidence: Any, *rest: Any) -> Any:
        fitted.append(evidence.last_pane)
        return make_candidate(evidence, *rest)

    monkeypatch.setattr("stream_calib.backtest.policies.shared_fits_group.make_candidate", counted)
    shared = SharedFits(CELLS)
    asked = 0
    for policy in policies([{}, other, {}]):
        _, (decisions, _, _), _ = stepped(policy.config, shared)
        asked += sum(b'"type":"request"' in entry for entry in decisions)
    assert len(fitted) == len(set(fitted)) < asked


SHORT = history(4 * 24, rows_a_pane=60, changed_from=60)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "refit.gate_margin": st.sampled_from([0.0, 0.01, 5.0]),
        "refit.max_age": st.sampled_from(["7h", "1d"]),
        "refit.level_cadence": st.sampled_from(["5h"]),
        "refit.cooldown": st.sampled_from(["1h", "12h"]),
        "drift.psi_threshold": st.sampled_from([0.01, 0.2]),
        "drift.false_alarm_days": st.sampled_from([2.0, 30.0]),
        "drift.page_days": st.sampled_from([3.0, 365.0]),
    },
)
ALONE: dict[str, tuple[Any, ...]] = {}


@settings(max_examples=6, deadline=None)
@given(st.lists(SETTINGS, min_size=2, max_size=4), st.sampled_from([(1, 2, 40), (7, 400, 300_000), (10**6, 1, 10**6)]))
def test_any_policies_come_to_the_same_bytes_with_others(chosen: list[dict[str, Any]], kept: tuple[int, ...]) -> None:
    """However few states and panes are kept of the paths that others have walked."""
    shared = SharedFits(SHORT)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("_KEPT_EVERY", "_STATES_KEPT", "_MOST_NODES"), kept, strict=True):
            patch.setattr(label_paths, name, value)
        for policy in policies(chosen):
            key = policy.config.model_dump_json()
            if key not in ALONE:
                ALONE[key] = stepped(policy.config, None, SHORT)
            assert stepped(policy.config, shared, SHORT) == ALONE[key], policy.overrides


def test_a_path_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    def counted(state: Any, pane: int, *rest: Any) -> Any:
        judged.append(pane)
        return judge_labels(state, pane, *rest)

    monkeypatch.setattr(label_paths, "judge_labels", counted)
    shared = SharedFits(SHORT)
    for policy in policies([{}, {"drift.psi_threshold": 0.3}, {"refit.min_new_labels": 100_000}]):
        stepped(policy.config, shared, SHORT)
    assert len(judged) == len(set(judged))


def test_outcomes_are_those_without_others_and_figures_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(*given: Any) -> Any:
        made.append(1)
        return day_figures(*given)

    monkeypatch.setattr(run_served, "day_figures", counted)
    shared = SharedFits(SHORT)
    chosen: list[dict[str, Any]] = [
        {},
        {"drift.psi_threshold": 0.3},
        {"refit.gate_margin": 5.0, "refit.max_age": "18h"},
    ]
    tried = [(one.config, delay) for one in policies(chosen) for delay in (0, 5)]

    def outcome(configuration: Config, delay: int, with_others: SharedFits | None) -> Any:
        found = run_policy(
            SHORT, configuration, name="tried", warm_up_days=1, label_delay_panes=delay, shared=with_others
        )
        return msgspec.structs.replace(found, cpu_seconds=0.0)

    together = [outcome(configuration, delay, shared) for configuration, delay in tried]
    assert len(made) == 4
    assert together == [outcome(configuration, delay, None) for configuration, delay in tried]
