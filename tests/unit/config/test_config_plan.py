"""What a change of the configuration needs: every setting is classified, and as the state itself judges it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_calib.config import Config
from stream_calib.config_identity import semantic_content, semantic_hash
from stream_calib.config_plan import RULES, Change, Kind, needed, plan, plan_of_content, rule_of, settings
from workers.cli import app

BASE: dict[str, Any] = {
    "model": {"name": "m"},
    "scores": {"attributes": {"a": "a", "b": "b"}, "time": {"path": "ts"}},
    "labels": {"time": {"path": "ts"}},
    "windows": {"horizon": "24h"},
}


def config(**sections: dict[str, Any]) -> Config:
    return Config.model_validate({name: BASE.get(name, {}) | sections.get(name, {}) for name in {*BASE, *sections}})


def only(**sections: dict[str, Any]) -> Change:
    """The one change."""
    (change,) = plan(config(), config(**sections))
    return change


@pytest.mark.parametrize("setting", settings())
def test_every_setting_is_classified(setting: str) -> None:
    rule = rule_of(setting)
    assert rule.kind in Kind
    assert rule.meaning


def test_no_rule_is_of_a_setting_that_is_gone() -> None:
    known = settings()
    assert [name for name in RULES if not any(f"{s}.".startswith(f"{name}.") for s in known)] == []


def test_a_setting_without_a_rule_is_an_error() -> None:
    with pytest.raises(KeyError, match="windows\\.new"):
        rule_of("windows.new")


CHANGES: list[dict[str, dict[str, Any]]] = [
    {"windows": {"horizon": "25h"}},
    {"windows": {"pane": "30m"}},
    {"windows": {"shards": 17}},
    {"windows": {"score_lateness": "6m"}},
    {"windows": {"label_lateness": "6m"}},
    {"windows": {"missing_label": "negative_at_horizon"}},
    {"windows": {"keep_panes": 3}},
    {"windows": {"max_clock_skew": "off"}},
    {"scores": {"attributes": {"a": "a"}}},
    {"scores": {"attributes": {"b": "b", "a": "a"}}},
    {"scores": {"attributes": {"a": "moved.a", "b": "b"}}},
    {"scores": {"unit": "customer"}},
    {"scores": {"sample_rate": 0.5}},
    {"scores": {"keep_rate": "kept"}},
    {"scores": {"intersections": [["a", "b"]]}},
    {"scores": {"max_values": 7}},
    {"labels": {"time_granularity": "1d"}},
    {"labels": {"model": "model"}},
    {"labels": {"clock": "broker"}},
    {"labels": {"keep_rate_negatives": 0.5}},
    {"refit": {"max_age": "2d"}},
    {"calibration": {"gamma": 0.02}},
    {"serving": {"p_min": 1e-5}},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_state_is_to_be_made_anew_exactly_where_it_would_be_refused(change: dict[str, dict[str, Any]]) -> None:
    refused = semantic_hash(config(**change)) != semantic_hash(config())
    assert (only(**change).kind in (Kind.REBUILD, Kind.FRESH)) == refused
    by_state = plan_of_content(semantic_content(config()), config(**change))
    assert [c.kind for c in by_state] == ([only(**change).kind] if refused else [])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"windows": {"horizon": "25h"}}, Kind.REBUILD),
        ({"topics": {"labels": "other"}}, Kind.REBUILD),
        ({"topics": {"live_blocks": "other"}}, Kind.HOT),
        ({"log": {"kind": "kafka"}}, Kind.REBUILD),
        ({"scores": {"unit": "customer"}}, Kind.FRESH),
        ({"scores": {"attributes": {"a": "a", "b": "b", "c": "c"}}}, Kind.FRESH),
        ({"scores": {"attributes": {"a": "x.a", "b": "b"}}}, Kind.FORWARD),
        ({"serving": {"snapshot_poll": "2s"}}, Kind.HOT),
        ({"calibration": {"min_coverage": 0.2}}, Kind.FORWARD),
    ],
)
def test_what_it_needs(change: dict[str, dict[str, Any]], kind: Kind) -> None:
    assert only(**change).kind is kind


def test_between_the_clients_of_kafka_nothing_is_rebuilt() -> None:
    (change,) = plan(config(log={"kind": "kafka"}), config(log={"kind": "librdkafka"}))
    assert change.kind is Kind.HOT


def test_where_a_field_stands_in_the_records_may_move() -> None:
    (change,) = plan(config(labels={"model": "m"}), config(labels={"model": "by.m"}))
    assert change.kind is Kind.FORWARD


def test_the_most_that_is_needed_counts() -> None:
    changes = plan(config(), config(windows={"horizon": "25h", "keep_panes": 3}, refit={"max_age": "2d"}))
    assert {change.kind for change in changes} == {Kind.HOT, Kind.FORWARD, Kind.REBUILD}
    assert needed(changes) is Kind.REBUILD
    assert needed([]) is Kind.HOT


def test_settings_are_named_and_shown_as_in_the_file_and_without_passwords() -> None:
    change = only(windows={"horizon": "25h"})
    assert (change.setting, change.before, change.after) == ("windows.horizon", "1d", "25h")
    assert "secret" not in str(only(redis={"url": "redis://u:secret@elsewhere:1/0"}))


FILE = '[model]\nname = "m"\n[windows]\nhorizon = "{}"\n'


def test_the_command_says_by_its_exit_code_whether_state_must_be_made_anew(tmp_path: Path) -> None:
    old, new, same = tmp_path / "old.toml", tmp_path / "new.toml", tmp_path / "same.toml"
    old.write_text(FILE.format("1d"))
    same.write_text(FILE.format("1d") + "[refit]\nmin_rows = 7\n")
    new.write_text(FILE.format("2d"))
    done = CliRunner().invoke(app, ["config", "plan", str(new), "--against", str(old), "--json"])
    assert done.exit_code == 3
    found = json.loads(done.stdout)
    assert found["needs"] == "rebuild"
    assert [c["setting"] for c in found["changes"]] == ["windows.horizon"]
    done = CliRunner().invoke(app, ["config", "plan", str(same), "--against", str(old)])
    assert done.exit_code == 0
    assert "forward-only" in done.stdout
    done = CliRunner().invoke(app, ["config", "plan", str(same), "--against", str(tmp_path / "none.toml")])
    assert done.exit_code == 1
