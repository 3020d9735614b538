"""Policies out of settings, files and grids: what may be set, what is refused and why."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from stream_calib.backtest.policies.grid import MOST_POLICIES, grid_of_settings, grid_of_texts, policies_of_grid
from stream_calib.backtest.policies.policy import Policy, current_policy, known_settings, make_policy, policy_settings
from stream_calib.backtest.policies.policy_file import policies_of, read_policies
from stream_calib.config import Config
from stream_calib.config_identity import semantic_content
from stream_calib.config_plan import settings, written_key
from stream_calib.errors import PolicyError

BASE = Config.model_validate(
    {
        "model": {"name": "m"},
        "scores": {
            "attributes": {"region": "r", "device": "d"},
            "intersections": [["region", "device"]],
            "time": {"path": "ts"},
        },
        "labels": {"time": {"path": "ts"}},
        "windows": {"horizon": "24h"},
        "refit": {"level_cadence": "2h", "max_decision_shift": 0.2},
        "decisions": {"decline": 0.8, "review": 0.5},
        "redis": {"url": "redis://user:secret@host:6379/0"},
    }
)


def made(given: dict[str, Any]) -> Policy:
    return make_policy("tried", given, BASE, "here")


def written(folder: Path, text: str, name: str = "weekly.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_only_what_is_set_differs() -> None:
    policy = made({"refit.max_age": "12h", "drift.psi_threshold": 0.2, "scores.derived": ["hour_of_day"]})
    assert policy.overrides == {
        "refit.max_age": '"12h"',
        "drift.psi_threshold": "0.2",
        "scores.derived": '["hour_of_day"]',
    }
    expected = BASE.model_copy(
        update={
            "refit": BASE.refit.model_copy(update={"max_age_ms": 12 * 3_600_000}),
            "drift": BASE.drift.model_copy(update={"psi_threshold": 0.2}),
            "scores": BASE.scores.model_copy(update={"derived": ["hour_of_day"]}),
        }
    )
    assert policy.config == expected
    assert policy.config.redis.url == BASE.redis.url


def test_a_table_of_names_takes_the_place_of_the_whole() -> None:
    assert made({"decisions": {"decline": 0.7}}).config.decisions == {"decline": 0.7}


def test_what_was_off_can_be_set_and_what_was_set_be_off() -> None:
    assert made({"refit.level_cadence": "off"}).config.refit.level_cadence_ms is None
    assert made({"refit.triggers": []}).config.refit.triggers == []
    assert made({"calibration.rungs": ["girb", "platt"]}).config.calibration.rungs == ["platt", "girb"]


def test_the_policy_is_checked_as_a_whole() -> None:
    with pytest.raises(PolicyError, match=r"^here: .*refit\.gate_window = 90m is not a whole number of panes"):
        made({"refit.gate_window": "90m"})
    with pytest.raises(PolicyError, match=r"refit\.max_decision_shift = 0\.2 limits nothing"):
        made({"decisions": {}})


def test_every_fault_is_named() -> None:
    with pytest.raises(PolicyError) as raised:
        made({"refit.max_age": "soon", "drift.psi_bins": 1, "refit.triggers": ["age", "mood"]})
    assert str(raised.value).splitlines() == [
        'here: refit.max_age = "soon": not a duration; write a number and a unit, as "500ms", "30s", "5m", "1h", "7d"',
        "here: refit.triggers[1] = \"mood\": allowed are 'residual', 'psi' or 'age'",
        "here: drift.psi_bins = 1: must be at least 2",
    ]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("refit.max_agee", r"unknown key; did you mean refit\.max_age\?"),
        ("refitt.max_age", r"unknown key; did you mean refit\.max_age\?"),
        ("label_dely", r"unknown key; did you mean label_delay\?"),
        ("weather", r"unknown key; a policy may set \[calibration\], \[refit\], \[drift\], decisions, scores\."),
        ("windows.horizon", "replay the history from events with that setting"),
        ("scores.max_values", "replay the history from events with that setting"),
        ("labels.label", "replay the history from events with that setting"),
        ("windows.settle_panes", "changes nothing in a backtest"),
        ("redis.url", r"is no part of a policy; a policy may set \[calibration\]"),
        ("topics.scores", "is no part of a policy"),
        ("alerts.hooks", "is no part of a policy"),
        ("retention.archive", "is no part of a policy"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_reason(key: str, said: str) -> None:
    with pytest.raises(PolicyError, match=rf"^here: {key}.*{said}"):
        made({key: "1h"})


def test_nothing_that_changes_the_cells_may_be_set() -> None:
    content = semantic_content(BASE)
    for key in policy_settings():
        if key not in ("label_delay", "decisions"):
            section, _, name = key.partition(".")
            assert name.split("_ms")[0] not in content, (section, name)
    assert {"scores.attributes", "scores.unit", "windows.pane"} <= known_settings() - set(policy_settings())


def test_every_setting_of_fits_and_triggers_may_be_set() -> None:
    of_policies = {key for key in map(written_key, settings()) if key.startswith(("calibration.", "refit.", "drift."))}
    assert of_policies <= set(policy_settings())


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "x" * 201])
def test_a_name_is_one_line(name: str) -> None:
    with pytest.raises(PolicyError, match="is no name of a policy"):
        make_policy(name, {}, BASE, "here")


def test_a_label_delay_is_of_whole_panes() -> None:
    policy = made({"label_delay": "2d"})
    assert (policy.label_delay_panes, policy.config) == (48, BASE)
    assert policy.overrides == {"label_delay": '"2d"'}
    with pytest.raises(PolicyError, match=r"label_delay = 90m is not a whole number of panes \(windows\.pane = 1h\)"):
        made({"label_delay": "90m"})
    with pytest.raises(PolicyError, match="label_delay = 3: a duration needs a unit"):
        made({"label_delay": 3})


# --- files


def test_a_file_says_what_differs(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'name = "slow and sure"\nlabel_delay = "1d"\n[refit]\nmax_age = "7d"\n[scores.predicates]\n'
        'north = { region = ["n"] }\n[decisions]\ndecline = 0.9\n',
    )
    (policy,) = read_policies(path, BASE)
    assert policy.name == "slow and sure"
    assert dict(policy.overrides) == {
        "label_delay": '"1d"',
        "refit.max_age": '"7d"',
        "scores.predicates": '{ "north" = { "region" = ["n"] } }',
        "decisions": '{ "decline" = 0.9 }',
    }
    assert policy.config.scores.predicates == {"north": {"region": ["n"]}}


def test_a_file_without_a_name_is_called_as_it_is(tmp_path: Path) -> None:
    (policy,) = read_policies(written(tmp_path, "[drift]\npsi_bins = 20\n"), BASE)
    assert policy.name == "weekly"


def test_a_file_may_have_a_grid(tmp_path: Path) -> None:
    text = (
        'name = "w"\n[refit]\ncooldown = "1h"\n[grid]\n"refit.max_age" = ["12h", "1d"]\n'
        "drift.psi_threshold = [0.1, 0.2]\ndecisions = [{ a = 0.5 }]\n"
    )
    policies = read_policies(written(tmp_path, text), BASE)
    assert [policy.name for policy in policies][:2] == [
        'w max_age=12h psi_threshold=0.1 decisions={ "a" = 0.5 }',
        'w max_age=12h psi_threshold=0.2 decisions={ "a" = 0.5 }',
    ]
    assert [(p.config.refit.max_age_ms, p.config.drift.psi_threshold) for p in policies] == [
        (43_200_000, 0.1),
        (43_200_000, 0.2),
        (86_400_000, 0.1),
        (86_400_000, 0.2),
    ]
    assert {p.config.refit.cooldown_ms for p in policies} == {3_600_000}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = 3\n", "name = 3: must be text in quotes"),
        ("grid = 3\n", r"grid must be a table: \[grid\]"),
        ("[grid]\nrefit.max_age = 3\n", r"grid: refit\.max_age needs a list of values"),
        ("[grid]\nrefit.max_age = []\n", r"grid: refit\.max_age needs a list of values"),
        ('[grid]\nrefit.max_age = ["1d", "1d"]\n', "the value 1d is there twice"),
        ("[refit]\nmax_age = 1979-05-27\n", 'refit.max_age = "1979-05-27": a duration needs a unit'),
        ('[refit]\nmax_age = "1d"\n[grid]\nrefit.max_age = ["2d"]\n', r"refit\.max_age has a value and is in the grid"),
        ("[refit\n", "not TOML"),
        ("[refit]\nmax_age.of = 3\n", r"refit\.max_age.*a duration needs a unit"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(PolicyError, match=rf"^{path}: .*{said}"):
        read_policies(path, BASE)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read: No such file"):
        read_policies(tmp_path / "none.toml", BASE)


def test_the_example_of_the_page_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/backtest.md").read_text(encoding="utf-8")
    (example,) = (block for block in re.findall(r"```\w*\n(.*?)```", page, re.DOTALL) if "[grid]" in block)
    policies = read_policies(written(tmp_path, example), BASE)
    assert len(policies) == 6
    assert len({policy.content() for policy in policies}) == 6


# --- grids


def test_values_are_toml_or_bare() -> None:
    grid = grid_of_texts(
        ["refit.max_age=12h, 1d", "drift.psi_threshold=.1,0.2,3", 'refit.triggers=["age"],["psi","age"],[]', "a='x,y'"]
    )
    assert {key: [one.value for one in values] for key, values in grid.items()} == {
        "refit.max_age": ["12h", "1d"],
        "drift.psi_threshold": [0.1, 0.2, 3],
        "refit.triggers": [["age"], ["psi", "age"], []],
        "a": ["x,y"],
    }


def test_every_combination_with_a_name_of_what_was_written() -> None:
    grid = grid_of_texts(["refit.max_age=12h,2d", "drift.psi_threshold=.2,.3", 'refit.triggers=["psi"]'])
    policies = policies_of_grid(grid, BASE, "--grid")
    assert [policy.name for policy in policies] == [
        'max_age=12h psi_threshold=.2 triggers=["psi"]',
        'max_age=12h psi_threshold=.3 triggers=["psi"]',
        'max_age=2d psi_threshold=.2 triggers=["psi"]',
        'max_age=2d psi_threshold=.3 triggers=["psi"]',
    ]
    assert [policy.config.drift.psi_threshold for policy in policies] == [0.2, 0.3, 0.2, 0.3]
    assert policies[0].overrides == {
        "refit.max_age": '"12h"',
        "drift.psi_threshold": "0.2",
        "refit.triggers": '["psi"]',
    }


def test_the_last_part_of_a_key_says_which_it_is() -> None:
    last = [key.rpartition(".")[2] for key in policy_settings()]
    assert len(set(last)) == len(last)
    grid = grid_of_settings({"refit.gate_margin": [0.1]}, "here")
    assert policies_of_grid(grid, BASE, "here", name="p")[0].name == "p gate_margin=0.1"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["refit.max_age"], "write a key and its values"),
        (["=1d"], "write a key and its values"),
        (["refit.max_age=1d,"], "a value is empty"),
        (["refit.max_age="], "a value is empty"),
        (["refit.max_age=1d", "refit.max_age=2d"], r"refit\.max_age is there twice"),
        (["refit.max_age=1d,1d"], "the value 1d is there twice"),
    ],
)
def test_a_grid_that_cannot_be_read(texts: list[str], said: str) -> None:
    with pytest.raises(PolicyError, match=rf"^--grid '.*{said}"):
        grid_of_texts(texts)


def test_a_grid_is_bounded() -> None:
    texts = [f"{key}={','.join(str(i) for i in range(1, 51))}" for key in ("drift.page_days", "drift.false_alarm_days")]
    with pytest.raises(
        PolicyError,
        match=r"the grid has 2,500 policies \(50 of drift\.page_days x 50 of drift\.false_alarm_days\); at most 2,000",
    ):
        policies_of_grid(grid_of_texts(texts), BASE, "--grid")
    assert MOST_POLICIES == 2_000


# --- together


def test_the_current_one_comes_first_and_what_is_the_same_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, '[refit]\nmax_age = "12h"\n')
    found = policies_of(BASE, [path], ["refit.max_age=12h,1d,2d"])
    assert [policy.name for policy in found.tried] == ["current", "weekly", "max_age=2d"]
    assert found.same == ["max_age=12h is the same as weekly", "max_age=1d is the same as current"]
    assert found.tried[0] == current_policy(BASE)


def test_a_label_delay_makes_another_policy() -> None:
    found = policies_of(BASE, grid=["label_delay=0d,1d"])
    assert [(policy.name, policy.label_delay_panes) for policy in found.tried] == [
        ("current", 0),
        ("label_delay=1d", 24),
    ]


def test_names_are_unique(tmp_path: Path) -> None:
    one, other = (
        written(tmp_path, f'name = "a"\n[refit]\nmax_age = "{age}"\n', f"{age}.toml") for age in ("12h", "2d")
    )
    with pytest.raises(PolicyError, match="two policies that differ are called 'a'"):
        policies_of(BASE, [one, other])


def test_commas_within_brackets_and_quotes_part_nothing() -> None:
    grid = grid_of_texts(['scores.intersections=[["region","device"]],[]', "x='a,b',\"c,d\",{ k = [1, 2] }"])
    assert [one.value for one in grid["scores.intersections"]] == [[["region", "device"]], []]
    assert [one.value for one in grid["x"]] == ["a,b", "c,d", {"k": [1, 2]}]


durations = st.integers(1, 400).map(lambda hours: f"{hours}h")
some_settings = st.fixed_dictionaries(
    {},
    optional={
        "label_delay": durations,
        "refit.max_age": durations,
        "refit.gate_window": durations,
        "refit.level_cadence": st.one_of(durations, st.just("off")),
        "refit.gate_margin": st.floats(0, 10),
        "refit.triggers": st.lists(st.sampled_from(["residual", "psi", "age"]), unique=True),
        "calibration.rungs": st.lists(st.sampled_from(["platt", "isotonic", "girb"]), unique=True, min_size=1),
        "calibration.alpha_abs": st.floats(1e-12, 1),
        "drift.psi_bins": st.integers(2, 100),
        "decisions": st.dictionaries(st.text(), st.floats(0.01, 0.99), min_size=1, max_size=3),
        "scores.derived": st.just(["day_of_week"]),
        "scores.predicates": st.just({'a "name"': {"region": ["é\\", "n\n"]}}),
        "serving.p_min": st.floats(1e-9, 0.09),
    },
)


@settings_of_hypothesis(max_examples=60, deadline=None)
@given(some_settings)
def test_overrides_are_toml_that_gives_the_same_policy(given_settings: dict[str, Any]) -> None:
    policy = made(given_settings)
    text = "\n".join(f"{key} = {value}" for key, value in policy.overrides.items())
    with tempfile.TemporaryDirectory() as folder:
        (again,) = read_policies(written(Path(folder), f'name = "tried"\n{text}\n'), BASE)
    assert again == policy
    for key in set(policy_settings()) - given_settings.keys() - {"label_delay"}:
        assert setting(policy.config, key) == setting(BASE, key)


def setting(config: Config, key: str) -> Any:
    """By its dotted key in the file."""
    section, _, name = key.partition(".")
    held = getattr(config, section)
    return held if not name else getattr(held, f"{name}_ms", None) or getattr(held, name, None)
