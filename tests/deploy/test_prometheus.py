"""Prometheus's own words on its configuration and its rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from stream_calib.alerts.model import SEVERITY
from tests.deploy.tools import promtool

pytestmark = pytest.mark.deploy

DEPLOY = Path(__file__).parents[2] / "deploy/prometheus"
EXPECTATIONS = Path(__file__).with_name("alerts_test.yml")


def _promtool(*arguments: str) -> str:
    done = subprocess.run([str(promtool()), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_and_its_rules_are_valid() -> None:
    assert "SUCCESS" in _promtool("check", "config", str(DEPLOY / "prometheus.yml"))


def test_alerts_fire_where_they_should() -> None:
    _promtool("test", "rules", str(EXPECTATIONS))


def test_every_alert_is_expected_somewhere() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    expected = set(re.findall(r"labels: '{alertname=\"(\w+)\"", EXPECTATIONS.read_text(encoding="utf-8")))
    assert alerts == expected


def test_alerts_of_our_own_fire_with_their_severity() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for rule in (rule for group in rules["groups"] for rule in group["rules"] if "alerts_open{" in rule["expr"]):
        ((operator, kinds),) = re.findall(r'alerts_open\{kind(=|=~|!~)"([^"]+)"\}', rule["expr"])
        matched = {kind for kind in SEVERITY if (re.fullmatch(kinds, kind) is None) == (operator == "!~")}
        assert not matched & found.keys()
        found |= dict.fromkeys(matched, rule["labels"]["severity"])
    assert found == {kind: severity for kind, severity in SEVERITY.items() if severity != "info"}
