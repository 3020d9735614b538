"""Loading, checking and showing the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.config import Config
from stream_calib.config_file import load_config, redacted, tomllib
from stream_calib.config_fusion import Fusion
from stream_calib.config_models import ScoreModel
from stream_calib.config_values import duration_text, mask_url
from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey

SMALLEST = """
[model]
name = "churn"
[windows]
horizon = "7d"
"""
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stream-calib.toml"
    path.write_text(SMALLEST)
    return path


def with_lines(section: str, *lines: str) -> str:
    """The smallest file with lines added to a section."""
    tables = {"model": ['name = "churn"'], "windows": ['horizon = "7d"']}
    tables.setdefault(section, []).extend(lines)
    return "\n".join(line for name, rows in tables.items() for line in (f"[{name}]", *rows))


def refusal(file: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    """The lines of the error, without the file's name, which each of them must begin with."""
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_config(file, environ or {})
    lines = str(caught.value).splitlines()
    assert all(line.startswith(str(file)) for line in lines)
    return [line.removeprefix(str(file)).lstrip(": ") for line in lines]


def test_the_smallest_file_has_the_defaults_of_the_design(file: Path) -> None:
    config = load_config(file, {})

    hour, day = 3_600_000, 86_400_000
    windows, refit = config.windows, config.refit
    assert windows.horizon_ms == 7 * day
    assert windows.pane_ms == hour
    assert (windows.score_lateness_ms, windows.label_lateness_ms) == (300_000, hour)
    assert (windows.max_clock_skew_ms, windows.max_input_skew_ms, windows.idle_timeout_ms) == (
        300_000,
        6 * hour,
        60_000,
    )
    assert (windows.settle_panes, windows.keep_panes, windows.shards) == (6, 2, 16)
    assert (refit.max_age_ms, refit.level_cadence_ms, refit.cooldown_ms) == (day, None, 6 * hour)
    assert (refit.min_new_labels, refit.min_rows, refit.min_positives, refit.max_auc_drop) == (1_000, 2_000, 50, 0.002)
    assert (config.calibration.offset_ridge, config.calibration.level_prior) == (20, 300)
    assert config.calibration.structure_half_life_ms == 20 * day
    assert config.calibration.level_half_life_ms == 3 * day
    assert (config.serving.p_min, config.serving.snapshot_poll_ms) == (1e-6, 1_000)
    assert config.serving.max_snapshot_staleness_ms == 7 * day
    assert config.drift.min_mass == 0.01


def test_the_flights_example_loads_as_it_is_meant() -> None:
    config = load_config(REPOSITORY / "examples/flights/stream-calib.toml", {})

    assert config.model.name == "flights"
    assert list(config.scores.attributes) == ["carrier", "origin", "dest"]
    assert config.scores.intersections == [["carrier", "origin"]]
    assert config.windows.horizon_ms == 86_400_000
    assert config.windows.shards == 1
    assert config.windows.max_clock_skew_ms is None
    assert config.windows.idle_timeout_ms is None
    assert config.serving.clock_records == "off"


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("windows", 'horizn = "1d"', "windows.horizn: unknown key; did you mean horizon?"),
        ("windows", 'cooldown = "1h"', "windows.cooldown: unknown key; did you mean refit.cooldown?"),
        ("window", 'pane = "1h"', "window: unknown key; did you mean windows?"),
        ("scores.time", 'units = "s"', "scores.time.units: unknown key; did you mean unit?"),
        ("redis", 'password = "hunter2"', "redis.password: unknown key; known here: client"),
        ("windows", "pane = 60", 'windows.pane = 60: a duration needs a unit; write it as text, as "5m" or "24h"'),
        ("windows", 'pane = "0s"', 'windows.pane = "0s": must be at least 1s'),
        ("labels", 'time_granularity = "0s"', 'labels.time_granularity = "0s": must be at least 1ms'),
        ("windows", 'score_lateness = "40000d"', 'windows.score_lateness = "40000d": must be at most 45d'),
        ("windows", "shards = 0", "windows.shards = 0: must be at least 1"),
        ("windows", 'shards = "4"', 'windows.shards = "4": must be a whole number, without quotes'),
        ("windows", "shards = true", "windows.shards = true: must be a whole number, without quotes"),
        ("windows", "shards = 1.5", "windows.shards = 1.5: must be a whole number, without quotes"),
        ("model", "version = 2", 'model.version = 2: must be text in quotes ("...")'),
        ("drift", "min_mass = 1", "drift.min_mass = 1: must be less than 1"),
        ("serving", 'output = "full"', "serving.output = \"full\": allowed are 'compact' or 'enrich'"),
        ("scores.time", 'unit = "min"', "scores.time.unit = \"min\": allowed are 'ms', 's', 'us' or 'iso8601'"),
        ("scores.attributes", "a = 1", 'scores.attributes.a = 1: must be text in quotes ("...")'),
        ("refit", 'max_age = "off"', 'refit.max_age = "off": not a duration; write a number and a unit'),
        ("scores", 'score = "a..b"', 'scores.score = "a..b": not a path'),
        ("topics", 'scores = "a b"', 'topics.scores = "a b": not a topic name'),
        ("redis", 'url = "localhost"', 'redis.url = "localhost": not the address of a server'),
        ("redis", 'url = "redis://h:99999"', 'redis.url = "redis://h:99999": not the address of a server'),
        ("alerts.conditions", 'no_scores = "0s"', 'alerts.conditions.no_scores = "0s": must be more than 0ms'),
        ("alerts.conditions", 'lag = "never"', 'alerts.conditions.lag = "never": not a duration'),
        ("alerts.conditions", "rejected_share = 1.5", "alerts.conditions.rejected_share = 1.5: must be at most 1"),
        ("calibration", "offset_ridge = inf", "calibration.offset_ridge = Infinity: Input should be a finite number"),
    ],
)
def test_a_bad_line_is_named_with_what_is_allowed(file: Path, section: str, line: str, expected: str) -> None:
    (fault,) = refusal(file, with_lines(section, line))

    assert fault.startswith(expected)


@pytest.mark.parametrize(
    ("section", "lines", "expected"),
    [
        ("scores", ['attributes = {a = "a"}', 'intersections = [["a", "b"]]'], "'b' is not a configured attribute"),
        (
            "scores",
            ['attributes = {a = "a"}', 'derived = ["hour_of_day"]', 'intersections = [["a", "hour_of_day"]]'],
            "'hour_of_day' is derived; this takes configured attributes; there are: a",
        ),
        ("scores", ['attributes = {a = "a"}', 'intersections = [["a"]]'], "at least two attributes"),
        ("scores", ['attributes = {a = "a", b = "b"}', 'intersections = [["a", "b", "a"]]'], "each once"),
        ("scores", ['attributes = {a = "a", b = "b"}', 'intersections = [["a", "b"], ["b", "a"]]'], "there twice"),
        ("scores", ['attributes = {"a=b" = "a"}'], "'a=b' is no attribute name"),
        (
            "scores",
            ['attributes = {a = "a"}', 'predicates = {x = {b = ["1"]}}'],
            "x: 'b' is not a configured attribute",
        ),
        ("scores", ['attributes = {a = "a"}', "predicates = {x = {a = []}}"], "x: needs an attribute, and a value of"),
        ("scores", ['attributes = {a = "a"}', "predicates = {x = {}}"], "x: needs an attribute, and a value of each"),
        (
            "scores",
            ['attributes = {a = "a"}', 'predicates = {a = {a = ["1"]}}'],
            "'a' is no name, or that of an attrib",
        ),
        ("scores", ['attributes = {a = "a"}', 'predicates = {x = {a = ["__other__"]}}'], "x: __other__ stands for"),
        ("scores", ['derived = ["day_of_week", "day_of_week"]'], "'day_of_week' is there twice"),
        ("scores", ['derived = ["hour_of_day"]', 'attributes = {hour_of_day = "h"}'], "or the name of an attribute"),
        ("scores", ['derived = ["month"]'], "allowed are 'hour_of_day' or 'day_of_week'"),
        (
            "scores",
            ['derived = ["hour_of_day"]', 'zone = "Asia/Kolkata"'],
            "Asia/Kolkata the clocks are +5.5 h from UTC",
        ),
        ("scores", ['derived = ["hour_of_day"]', 'zone = "Mars"'], "'Mars' is not in the time-zone database"),
        ("labels", ['time_granularity = "1d"'], "set labels.time.path too"),
        ("topics", ['scores = "x"', 'labels = "x"'], "scores and labels are both 'x'"),
        ("refit", ['gate_window = "90m"'], "refit.gate_window = 90m is not a whole number of panes"),
        ("drift", ['psi_window = "1h"', "psi_bins = 1"], "drift.psi_bins = 1: must be at least 2"),
        ("windows", ['pane = "7h"'], "is not a whole number of panes"),
        ("model", ['version = "a b"'], "'a b'"),
        ("model", ['name_path = "m"'], "name and name_path exclude each other"),
        ("model", ['version = "2"', 'version_path = "v"'], "version and version_path exclude each other"),
    ],
)
def test_values_that_contradict_each_other(file: Path, section: str, lines: list[str], expected: str) -> None:
    assert any(expected in fault for fault in refusal(file, with_lines(section, *lines)))


TWO_MODELS = """
[[models]]
name = "fraud"
score = "s.fraud"
version_path = "v.fraud"
[[models]]
name = "abuse"
score = "s.abuse"
scale = "logit"
[scores]
scale = "percent"
[windows]
horizon = "7d"
"""


def test_a_record_has_one_score_of_a_constant_model_where_nothing_else_is_said(file: Path) -> None:
    (model,) = load_config(file, {}).score_models()

    assert model == ScoreModel("churn", None, "1", None, "score", "probability")
    assert model.key == ModelKey("churn", "1")


def test_name_and_version_may_be_in_the_record(file: Path) -> None:
    file.write_text('[model]\nname_path = "m.n"\nversion_path = "m.v"\n[windows]\nhorizon = "7d"')
    (model,) = load_config(file, {}).score_models()

    assert model == ScoreModel(None, "m.n", None, "m.v", "score", "probability")
    assert model.key is None


def test_several_models_in_one_record_have_a_score_path_and_a_scale_each(file: Path) -> None:
    file.write_text(TWO_MODELS)

    assert load_config(file, {}).score_models() == (
        ScoreModel("fraud", None, None, "v.fraud", "s.fraud", "percent"),
        ScoreModel("abuse", None, "1", None, "s.abuse", "logit"),
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('[model]\nname = "m"', "model.name and [[models]] exclude each other"),
        ('[model]\nname_path = "m"', "model.name_path and [[models]] exclude each other"),
        ('[model]\nversion = "2"', "model.version and [[models]] exclude each other"),
        ("[model]\nmax_keys = 1", "there are 2 [[models]], and model.max_keys = 1"),
        ('[[models]]\nname = "fraud"\nscore = "x"', "models: 'fraud' is there 2 times"),
        ('[[models]]\nname = "a b"\nscore = "x"', "models[2]: model name or version 'a b'"),
        ('[[models]]\nname = "c"', "models[2].score: must be given"),
        ('[[models]]\nname = "c"\nscore = "x"\nscle = "logit"', "models[2].scle: unknown key; did you mean scale?"),
        ('[[models]]\nname = "c"\nscore = "x"\nscale = "odds"', 'models[2].scale = "odds": allowed are'),
        ('[[models]]\nname = "c"\nscore = "x"\nname_path = "n"', "models[2].name_path: unknown key"),
        (
            '[[models]]\nname = "c"\nscore = "x"\nversion = "1"\nversion_path = "v"',
            "models[2]: version and version_path",
        ),
    ],
)
def test_models_that_contradict_each_other_or_the_rest(file: Path, lines: str, expected: str) -> None:
    (fault,) = refusal(file, TWO_MODELS + lines)

    assert expected in fault


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('version = "2"', "fusion.name must be given"),
        ("members = {fraud = 1}", "fusion.name must be given"),
        ('name = "a b"', "'a b'"),
        ('name = "fraud"', "fusion.name = 'fraud' is one of [[models]]"),
        ('name = "f"\nmembers = {spam = 1}', "fusion.members: 'spam' is none of [[models]]; there are: fraud, abuse"),
        ('name = "f"\nmembers = {fraud = -1, abuse = 2}', "members.fraud = -1.0; a weight is a finite number"),
        ('name = "f"\nmembers = {fraud = inf}', "fusion.members.fraud = Infinity: Input should be a finite number"),
        ('name = "f"\nmembers = {fraud = "1"}', 'fusion.members.fraud = "1": must be a number, without quotes'),
        ('name = "f"\nmembers = {fraud = 0, abuse = 0.0}', "at least one model needs a weight above 0"),
        ('name = "f"\nweights = [1]', "fusion.weights: unknown key"),
        ('name = "f"\n[model]\nmax_keys = 2', "2 [[models]] and the fused one, and model.max_keys = 2"),
    ],
)
def test_a_fusion_that_contradicts_itself_or_the_models(file: Path, lines: str, expected: str) -> None:
    (fault,) = refusal(file, f"{TWO_MODELS}[fusion]\n{lines}")

    assert expected in fault


def test_one_model_cannot_be_fused(file: Path) -> None:
    (fault,) = refusal(file, with_lines("fusion", 'name = "f"'))

    assert "fusion needs two or more [[models]], there are 0" in fault


def test_all_models_are_fused_alike_where_no_members_are_given(file: Path) -> None:
    file.write_text(TWO_MODELS + '[fusion]\nname = "f"')

    assert load_config(file, {}).fused() == Fusion(
        ModelKey("f", "1"), {"fraud": 1.0, "abuse": 1.0}, "abuse/1=0.5 fraud/*=0.5"
    )


def test_members_have_the_weights_that_are_given(file: Path) -> None:
    file.write_text(TWO_MODELS + '[fusion]\nname = "f"\nversion = "2"\nmembers = {abuse = 3, fraud = 0.25}')
    config = load_config(file, {})

    fused = config.fused()
    assert fused is not None
    assert fused[:2] == (ModelKey("f", "2"), {"fraud": 0.25, "abuse": 3.0})
    assert list(fused.weights) == ["fraud", "abuse"]
    file.write_text(redacted(config), encoding="utf-8")
    assert load_config(file, {}) == config


def test_a_fusion_is_another_one_where_shares_or_versions_differ(file: Path) -> None:
    def definition(members: str, text: str = TWO_MODELS) -> str:
        file.write_text(f'{text}[fusion]\nname = "f"\nmembers = {members}')
        fused = load_config(file, {}).fused()
        assert fused is not None
        return fused.definition

    same = definition("{fraud = 1, abuse = 3}")
    assert same == definition("{abuse = 0.75, fraud = 0.25}")
    assert same != definition("{fraud = 1, abuse = 3.01}")
    assert definition("{fraud = 1}") == definition("{fraud = 2, abuse = 0}") == "fraud/*=1"
    later = TWO_MODELS.replace('score = "s.abuse"', 'score = "s.abuse"\nversion = "2"')
    assert same != definition("{fraud = 1, abuse = 3}", later)


def test_a_deployment_without_a_model_is_refused(file: Path) -> None:
    (fault,) = refusal(file, '[windows]\nhorizon = "7d"')

    assert "model.name (or model.name_path, or [[models]]) must be given" in fault


def test_several_models_exclude_the_path_of_one_score(file: Path) -> None:
    (fault,) = refusal(file, TWO_MODELS.replace("[scores]", '[scores]\nscore = "s"'))

    assert "scores.score and [[models]] exclude each other" in fault


def test_several_models_are_shown_so_that_they_load_to_the_same(file: Path) -> None:
    file.write_text(TWO_MODELS)
    config = load_config(file, {})
    file.write_text(redacted(config), encoding="utf-8")

    assert load_config(file, {}) == config


def test_at_most_sixteen_attributes(file: Path) -> None:
    def attributes(n: int) -> str:
        return with_lines("scores.attributes", *(f'a{i} = "a{i}"' for i in range(n)))

    (fault,) = refusal(file, attributes(17))
    assert "16" in fault
    file.write_text(attributes(16))
    assert len(load_config(file, {}).scores.attributes) == 16


def test_every_fault_is_told_at_once(file: Path) -> None:
    faults = refusal(file, '[model]\nnme = "x"\n[windows]\npane = "x"\n')

    assert [fault.split(":")[0].split(" ")[0] for fault in faults] == [
        "model.nme",
        "windows.horizon",
        "windows.pane",
    ]
    assert "windows.horizon: must be given; there is no default" in faults


@pytest.mark.parametrize("value", ["9" * 6_000, "[" * 9_000 + "]" * 9_000], ids=["digits", "brackets"])
def test_what_python_cannot_read_is_refused(file: Path, value: str) -> None:
    assert refusal(file, f"a = {value}")[0].startswith("not TOML that can be read")


@pytest.mark.parametrize("setting", ["scores.sample_rate", "labels.keep_rate_positives", "labels.keep_rate_negatives"])
def test_a_share_of_next_to_nothing_is_refused(file: Path, setting: str) -> None:
    """A row would stand for all others, or there would be none."""
    section, name = setting.split(".")
    text = '[model]\nname = "x"\n[windows]\nhorizon = "24h"\n'
    (fault,) = refusal(file, f"{text}[{section}]\n{name} = 1e-320\n")
    assert fault.startswith(f"{setting} = ")
    assert "at least 1e-06" in fault


def test_files_that_are_none(file: Path) -> None:
    assert refusal(file, "a = ")[0].startswith("not TOML")
    file.write_bytes(b"# \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load_config(file, {})
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_config(file.with_name("other.toml"), {})


def test_sections_of_the_wrong_shape(file: Path) -> None:
    assert refusal(file, "redis = 1\n" + SMALLEST) == ["redis = 1: must be a table"]


# --- durations ------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**12))
def test_durations_are_written_so_that_they_read_back(duration_ms: int) -> None:
    config = Config.model_validate(
        {"model": {"name": "m"}, "windows": {"horizon": "1d"}, "refit": {"cooldown": duration_text(duration_ms)}}
    )

    assert config.refit.cooldown_ms == duration_ms


@pytest.mark.parametrize(
    ("text", "expected"), [("1.5h", 5_400_000), (" 5 m ", 300_000), ("0s", 0), ("0.5s", 500), ("1d", 86_400_000)]
)
def test_durations_are_read(file: Path, text: str, expected: int) -> None:
    file.write_text(with_lines("windows", f'score_lateness = "{text}"'))

    assert load_config(file, {}).windows.score_lateness_ms == expected


@pytest.mark.parametrize(
    "text", ["", "5", "-5m", "5 min", "5M", "m", "1e3s", "1h30m", "off", "9" * 400 + "d", "\u0665m"]
)
def test_other_texts_are_no_durations(file: Path, text: str) -> None:
    (fault,) = refusal(file, with_lines("windows", f'score_lateness = "{text}"'))

    assert "not a duration" in fault


def test_off_switches_off_what_may_be_off(file: Path) -> None:
    file.write_text(with_lines("windows", 'max_clock_skew = "off"', 'idle_timeout = "off"'))
    config = load_config(file, {})

    assert (config.windows.max_clock_skew_ms, config.windows.idle_timeout_ms) == (None, None)


# --- environment and secrets ----------------------------------------------------------------------------------

SECRET = "redis://me:hunter2@db:6379/1"


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"),
        *("sasl.oauthbearer.assertion.private.key.passphrase", "sasl_plain_password", "ssl_password"),
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(file: Path, name: str) -> None:
    (said,) = refusal(file, with_lines("log.client", f'"{name}" = "{SECRET}"'))
    assert f'client_secrets = {{ "{name}" = "env:' in said
    assert SECRET not in said


@pytest.mark.parametrize("name", ["sasl.oauthbearer.token.endpoint.url", "ssl.ca.pem", "ssl.key.location"])
def test_what_is_no_secret_may_be_in_the_file(file: Path, name: str) -> None:
    file.write_text(with_lines("log.client", f'"{name}" = "value"'))
    loaded = load_config(file, {})
    assert loaded.log.client == {name: "value"}
    assert tomllib.loads(redacted(loaded))["log"]["client"] == {name: "value"}


def test_the_environment_wins_over_the_file(file: Path) -> None:
    file.write_text(with_lines("redis", 'url = "redis://file:1/0"'))

    config = load_config(file, {"STREAM_CALIB_REDIS_URL": SECRET, "STREAM_CALIB_LOG_URL": "rediss://log:2/0"})

    assert (config.redis.url, config.log.url) == (SECRET, "rediss://log:2/0")


def test_an_address_may_come_from_a_file(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")

    assert load_config(file, {"STREAM_CALIB_REDIS_URL_FILE": str(secret)}).redis.url == SECRET


def test_an_empty_variable_is_not_set(file: Path) -> None:
    environ = {"STREAM_CALIB_REDIS_URL": "", "STREAM_CALIB_REDIS_URL_FILE": "", "STREAM_CALIB_LOG_URL": ""}

    assert load_config(file, environ) == load_config(file, {})


def test_contradictions_in_the_environment_are_refused(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="both set"):
        load_config(file, {"STREAM_CALIB_LOG_URL": SECRET, "STREAM_CALIB_LOG_URL_FILE": "/x"})
    with pytest.raises(ConfigurationError, match=r"STREAM_CALIB_LOG_URL_FILE.*cannot be read"):
        load_config(file, {"STREAM_CALIB_LOG_URL_FILE": str(file.with_name("none"))})


@pytest.mark.parametrize(
    "url", ["http://me:hunter2@db", "me:hunter2@db:6379", "redis://me:hun@ter2@:6379", "redis://:hunter2@db:port"]
)
def test_no_error_shows_a_password(file: Path, url: str) -> None:
    (fault,) = refusal(file, SMALLEST, {"STREAM_CALIB_REDIS_URL": url})

    assert "environment STREAM_CALIB_REDIS_URL" in fault
    assert "ter2" not in fault
    (fault,) = refusal(file, with_lines("log", f'url = "{url}"'))
    assert "ter2" not in fault


def test_nothing_shows_a_password(file: Path) -> None:
    config = load_config(file, {"STREAM_CALIB_REDIS_URL": SECRET, "STREAM_CALIB_LOG_URL": "unix:///s?password=hunter2"})

    assert "hunter2" not in repr(config) + str(config) + redacted(config)
    assert 'url = "redis://***@db:6379/1"' in redacted(config)


@given(st.text(min_size=1), st.text(min_size=1))
def test_masked_addresses_have_no_user_and_no_password(user: str, password: str) -> None:
    masked = mask_url(f"redis://{user}:{password}@db:6379/1")

    assert masked.endswith("***@db:6379/1")
    assert masked in ("redis://***@db:6379/1", "***@db:6379/1")


# --- showing --------------------------------------------------------------------------------------------------


def test_what_is_shown_loads_to_the_same(file: Path) -> None:
    odd: dict[str, Any] = {
        "model": {"name": "m"},
        "windows": {"horizon": "90m", "pane": "1500ms", "idle_timeout": "off"},
        "scores": {
            "attributes": {"a.b": 'x "y"\\z\x7fé\U0001f600', "c": "d"},
            "intersections": [["a.b", "c"]],
            "predicates": {"far off": {"a.b": ['"', "é\x7f"], "c": ["d"]}},
            "derived": ["day_of_week"],
            "zone": "Europe/Berlin",
            "unit": "u",
        },
        "labels": {"time": {"path": "t"}, "time_granularity": "1d"},
        "refit": {"level_cadence": "1h", "gate_window": "3s"},
    }
    config = Config.model_validate(odd)
    file.write_text(redacted(config), encoding="utf-8")

    assert load_config(file, {}) == config


def test_the_example_is_shown_so_that_it_loads_to_the_same(file: Path) -> None:
    config = load_config(REPOSITORY / "examples/flights/stream-calib.toml", {})
    file.write_text(redacted(config), encoding="utf-8")

    assert load_config(file, {}) == config
