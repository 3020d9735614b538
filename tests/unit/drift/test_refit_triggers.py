"""Triggers that may not ask: they arm nothing, and all else is as it was."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.config_refits import REFIT_TRIGGERS
from stream_calib.drift.policy import TriggerConfig, TriggerFacts, TriggerState, phase, trigger
from stream_calib.refit.settings import config_hash, step_config

CONFIG = TriggerConfig(
    max_age_panes=20, level_cadence_panes=7, cooldown_panes=5, min_new_labels=60, min_rows=50, min_positives=5
)
QUIET = TriggerFacts(0, 30, 20, 4, has_snapshot=True, manual=False, psi_alarm_pane=None)


def configured(**refit: Any) -> Config:
    return Config.model_validate({"model": {"name": "m"}, "windows": {"horizon": "2h"}, "refit": refit})


def reasons(triggers: frozenset[str], panes: int = 45) -> set[str]:
    """Of all requests in panes with a residual alarm in one, and a psi alarm in another."""
    config, state, found = replace(CONFIG, triggers=triggers), TriggerState(last_structure_pane=-1), set[str]()
    for pane in range(panes):
        facts = replace(
            QUIET, pane=pane, residual_alarm=pane == 6, psi_alarm_pane=14 if pane == 13 else None, manual=pane == 40
        )
        state, asked = trigger(state, facts, config)
        found |= {asked.reason} if asked else set()
        waits = state.residual_pane is not None or state.armed_pane is not None
        assert (phase(state, pane, config) != "settled") == waits
        assert state.residual_pane is None or "residual" in triggers
        assert state.armed_pane is None or "psi" in triggers
    return found


@pytest.mark.parametrize("count", range(4))
def test_only_those_that_may_ask_do(count: int) -> None:
    for chosen in itertools.combinations(REFIT_TRIGGERS, count):
        assert reasons(frozenset(chosen)) == {*chosen, "level", "manual"}


def test_the_first_snapshot_comes_without_any() -> None:
    config = replace(CONFIG, triggers=frozenset())
    _, asked = trigger(TriggerState(), replace(QUIET, has_snapshot=False, fit_labelled=100, fit_positives=50), config)
    assert asked is not None
    assert asked.reason == "bootstrap"


def test_an_alarm_that_waited_is_dropped_when_its_trigger_is_switched_off() -> None:
    state = TriggerState(armed_pane=3, residual_pane=2, new_labels=99)
    after, asked = trigger(state, replace(QUIET, pane=3), replace(CONFIG, triggers=frozenset({"age"})))
    assert (after.armed_pane, after.residual_pane) == (None, None)
    assert asked is not None
    assert asked.reason == "age"  # there was no request yet, so it is old


def test_the_step_is_told_and_requests_name_it() -> None:
    plain, same = configured(), configured(triggers=["age", "residual", "psi"])
    assert step_config(plain).trigger.triggers == frozenset(REFIT_TRIGGERS)
    assert same == plain
    other = configured(triggers=["age"])
    assert step_config(other).trigger.triggers == {"age"}
    assert len({config_hash(made) for made in (plain, same, other, configured(triggers=[]))}) == 3


def test_a_trigger_is_given_once_and_known() -> None:
    with pytest.raises(ValueError, match="'age' is there twice; give each once"):
        configured(triggers=["age", "psi", "age"])
    with pytest.raises(ValueError, match="'residual', 'psi' or 'age'"):
        configured(triggers=["level"])
