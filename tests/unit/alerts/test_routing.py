"""Which hook is told of what, and settings that lead nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from stream_calib.alerts.model import Alert
from stream_calib.alerts.routing import Routing
from stream_calib.alerts.silence import Silence, silence_of
from stream_calib.config_alerts import AlertsSection
from tests.unit.alerts.receivers import OTHER, event

HOOKS: list[dict[str, Any]] = [{"name": name, "kind": "command", "command": ["x"]} for name in ("a", "b")]


def told(alert: Alert, *routes: dict[str, Any]) -> list[str]:
    routing = Routing(AlertsSection.model_validate({"hooks": HOOKS, "routes": list(routes)}))
    return [name for name in ("a", "b") if routing.tells(name, alert)]


def test_without_routes_everybody_is_told_of_warnings() -> None:
    assert told(event("open")) == ["a", "b"]
    assert told(event("open", "label_outage")) == ["a", "b"]
    assert told(event("open", "refit_refused")) == []


def test_any_route_that_names_the_hook_counts() -> None:
    routes: list[dict[str, Any]] = [
        {"hooks": ["a"], "severity": "critical"},
        {"hooks": ["a", "b"], "kinds": ["psi"], "models": ["n"]},
    ]
    assert told(event("open"), *routes) == []
    assert told(event("open", "label_outage"), *routes) == ["a"]
    assert told(event("open", key=OTHER), *routes) == ["a", "b"]


@pytest.mark.parametrize(
    ("models", "expected"), [(["m"], ["a"]), (["m/1"], ["a"]), (["m/2"], []), (["n", "m/1"], ["a"])]
)
def test_models_are_named_with_or_without_their_version(models: list[str], expected: list[str]) -> None:
    assert told(event("open"), {"hooks": ["a"], "models": models}) == expected


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"routes": [{"hooks": ["x"]}]}, "a route leads to 'x'; the hooks are a, b"),
        ({"routes": [{"hooks": ["a"], "kinds": ["psy"]}]}, "a route is of the kind 'psy'; the kinds are psi,"),
        ({"routes": [{"hooks": []}]}, "routes.0.hooks"),
        (
            {"routes": [{"hooks": ["a"], "kinds": ["psi", "refit_refused"]}]},
            "'refit_refused', whose alerts are info, and asks for warning or worse: none of them would be told",
        ),
        (
            {"hooks": [{**HOOKS[0], "quiet_hours": [{"start": "9", "end": "10:00"}]}]},
            "quiet_hours.start: '9' is no time",
        ),
        ({"hooks": [{**HOOKS[0], "max_messages": 0}]}, "max_messages"),
        ({"give_up_after": "0s"}, "give_up_after"),
    ],
)
def test_settings_that_lead_nowhere_are_refused(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as error:
        AlertsSection.model_validate({"hooks": HOOKS, **section})
    assert said in str(error.value)


def test_of_several_silences_the_one_that_ends_last_counts() -> None:
    short, long_, other = (
        Silence(1, 10, 0, "ann", "x", "m", None),
        Silence(2, 20, 0, "bo", "y", "m/1", "psi"),
        Silence(3, 90, 0, "cy", "z", "m", "late_labels"),
    )
    assert silence_of(event("open"), [short, long_, other]) == long_
    assert silence_of(event("open"), [other]) is None
    assert silence_of(event("open", "late_labels"), [short, long_, other]) == other
    assert silence_of(event("open"), []) is None
