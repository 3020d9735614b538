"""Prometheus's own words on its configuration and its rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

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
