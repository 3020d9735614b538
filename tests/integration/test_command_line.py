"""The command line as people and programs use it: help, JSON, and errors of one readable line."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_calib.transport.embedded import EmbeddedLog
from stream_calib.transport.embedded_server import EmbeddedServer
from tests.command_line import command_line, command_process
from tests.integration.harness import Deployment, config_text, deployment
from tests.integration.stream import EventDay, as_written

pytestmark = pytest.mark.services

COMMANDS = (
    (),
    ("run",),
    ("config",),
    ("config", "check"),
    ("config", "show"),
    ("config", "schema"),
    ("topics",),
    ("topics", "create"),
    ("topics", "check"),
    ("snapshot",),
    ("snapshot", "list"),
    ("snapshot", "show"),
    ("snapshot", "diff"),
    ("snapshot", "refits"),
    ("snapshot", "report"),
    ("snapshot", "rollback"),
    ("snapshot", "pin"),
    ("snapshot", "unpin"),
    ("snapshot", "held"),
    ("snapshot", "approve"),
    ("snapshot", "reject"),
    ("snapshot", "shadow"),
    ("snapshot", "at"),
    ("alerts",),
    ("alerts", "list"),
    ("alerts", "ack"),
    ("alerts", "silence"),
    ("alerts", "unsilence"),
    ("alerts", "test"),
    ("models",),
    ("models", "list"),
    ("models", "retire"),
    ("doctor",),
    ("fusion",),
    ("fusion", "fit"),
    ("replay",),
    ("status",),
    ("refit",),
    ("demo",),
)
NOWHERE = {"STREAM_CALIB_LOG_URL": "redis://127.0.0.1:1/0", "STREAM_CALIB_REDIS_URL": "redis://127.0.0.1:1/0"}


@pytest.fixture(scope="module")
def served(month: list[EventDay], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment with snapshots, its processes running."""
    with deployment(tmp_path_factory.mktemp("served")) as deployed:
        for role in ("calibrate", "monitor", "refit", "alert"):
            deployed.start(role)
        for day, records in zip(month[:13], as_written(month[:13]), strict=True):
            deployed.log.produce(records + deployed.clocks(day.end_ms))
        deployed.until(
            lambda: (
                deployed.cursor("decided") == deployed.cursor("matured") >= (month[11].end_ms // 3_600_000) - 2
                and not deployed.fields()["open_request"]
            ),
            "the last pane to be decided",
        )
        yield deployed


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(command: tuple[str, ...]) -> None:
    done = command_line(*command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout
    if command not in ((), ("config",), ("topics",), ("snapshot",), ("alerts",), ("models",), ("fusion",)):
        assert "Example" in done.stdout


# --- with a deployment


def test_status(served: Deployment) -> None:
    told = json.loads(served.command("status", "--json").stdout)
    assert {(lag["role"], lag["topic"]): lag["behind"] for lag in told["lags"]} == {
        ("calibrate", "scores"): 0,
        ("monitor", "blocks"): 0,
        ("monitor", "labels"): 0,
    }
    assert told["log_error"] is None
    (facts,) = told["models"]
    assert facts["model"] == "flights/1"
    assert facts["snapshot"] == served.fields()["current"]
    assert facts["panes"]["first_pane"] < facts["panes"]["decided"] == facts["panes"]["matured"]
    assert {process["role"] for process in facts["processes"]} == {"calibrate", "monitor", "refit", "alert"}
    assert facts["outcomes"]["matched"] > 1_000
    unmatched = facts["outcomes"]["labels"] - facts["outcomes"]["matched"]  # of panes that have not matured, too
    assert set(facts["unmatched"]) == {"label_leaked", "label_beyond_horizon", "label_never_scored"}
    assert 0 < sum(facts["unmatched"].values()) <= unmatched
    assert facts["coverage"]["panes"] == 24
    assert 0.9 < facts["coverage"]["labelled"] / (facts["coverage"]["labelled"] + facts["coverage"]["unlabelled"]) <= 1
    assert facts["watermarks_ms"]["scores"] < facts["clocks_ms"]["scores"]
    assert facts["pinned"] is None
    shown = served.command("status")
    assert shown.returncode == 0
    assert facts["snapshot"] in shown.stdout
    assert "2013-03-" in shown.stdout


def test_status_without_the_log_tells_the_rest(served: Deployment) -> None:
    environ = {**served.environ, "STREAM_CALIB_LOG_URL": NOWHERE["STREAM_CALIB_LOG_URL"]}
    done = command_line("status", "--json", "--config", str(served.config_file), environ=environ)
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert "127.0.0.1:1" in told["log_error"]
    assert told["lags"] == []
    assert told["models"][0]["snapshot"] == served.fields()["current"]


def test_status_is_watched_until_ctrl_c(served: Deployment, tmp_path: Path) -> None:
    output = tmp_path / "watched.txt"
    with output.open("wb") as stream:
        command = [sys.executable, "-m", "workers.cli", "status", "--watch", "--config", str(served.config_file)]
        watching = subprocess.Popen(command, env=served.environ, stdout=stream, stderr=stream, start_new_session=True)
        try:
            served.until(lambda: b"flights/1" in output.read_bytes(), "the first look")
            assert watching.poll() is None
            watching.send_signal(signal.SIGINT)
            assert watching.wait(10) == 0
        finally:
            watching.kill()
            watching.wait(10)
    assert b"Traceback" not in output.read_bytes()


def test_snapshots(served: Deployment) -> None:
    listed = json.loads(served.command("snapshot", "list", "--json").stdout)
    assert listed["current"] == listed["history"][-1]["version"]
    assert listed["current"] in served.command("snapshot", "list").stdout
    shown = json.loads(served.command("snapshot", "show", "--json").stdout)
    assert shown["model"] == "flights"
    assert shown == json.loads(served.command("snapshot", "show", listed["current"], "--json").stdout)
    assert listed["current"] in served.command("snapshot", "show").stdout


def test_config(served: Deployment) -> None:
    shown = json.loads(served.command("config", "show", "--json").stdout)
    assert shown["windows"]["horizon"] in ("24h", "1d")
    checked = served.command("config", "check")
    assert checked.returncode == 0
    assert "good" in checked.stdout
    assert json.loads(served.command("config", "schema", config=False).stdout)["properties"]["windows"]


def test_a_version_that_is_not_there(served: Deployment) -> None:
    for arguments in (
        ("snapshot", "show", "000099-0123456789ab"),
        ("snapshot", "show", "nonsense"),
        ("snapshot", "rollback", "000099-0123456789ab", "--reason", "x"),
        ("snapshot", "rollback", str(served.fields()["current"]), "--reason", "it is current already"),
    ):
        _check_one_line(served.command(*arguments), arguments[2])


def test_snapshot_report(served: Deployment, tmp_path: Path) -> None:
    version = str(served.fields()["current"])
    assert version in served.command("snapshot", "report", version).stdout
    page, kept = tmp_path / "report.html", tmp_path / "report.json"
    served.command("snapshot", "report", version, "--html", str(page), "--json", str(kept))
    assert f"published as {version}" in page.read_text(encoding="utf-8")
    assert json.loads(kept.read_bytes())["version"] == version
    _check_one_line(served.command("snapshot", "report", "r9"), "r9 is neither a request nor a version")
    _check_one_line(
        served.command("snapshot", "report", "--html", str(tmp_path / "no" / "r.html")), "cannot be written"
    )


def test_snapshot_diff(served: Deployment) -> None:
    history = json.loads(served.command("snapshot", "list", "--json").stdout)["history"]
    first, last = history[0]["version"], history[-1]["version"]
    told = json.loads(served.command("snapshot", "diff", first, last, "--json").stdout)
    assert (told["before"]["version"], told["after"]["version"]) == (first, last)
    assert {tuple(group["attributes"]) for group in told["groups"]} >= {("carrier",), ("origin",)}
    changes = [abs(group["change"]) for group in told["groups"]]
    assert changes == sorted(changes, reverse=True)
    assert told["traffic"]["everything"]["events"] > 100
    assert told["traffic"]["mean_absolute_shift"] > 0
    assert json.loads(served.command("snapshot", "diff", first, "--json").stdout) == told
    shown = served.command("snapshot", "diff", first)
    assert shown.returncode == 0
    assert "carrier=" in shown.stdout
    assert f"{told['traffic']['mean_absolute_shift']:.4f}" in shown.stdout
    _check_one_line(served.command("snapshot", "diff", "000099-0123456789ab"), "000099-0123456789ab")


def test_pin_and_unpin_are_on_record(served: Deployment) -> None:
    current = str(served.fields()["current"])
    done = served.command("snapshot", "pin", "current", "--reason", "audit [week]", "--actor", "ann")
    assert done.returncode == 0, done
    assert current in done.stdout
    pinned = json.loads(served.command("status", "--json").stdout)["models"][0]["pinned"]
    assert (pinned["version"], pinned["actor"], pinned["reason"]) == (current, "ann", "audit [week]")
    assert "audit [week]" in served.command("status").stdout
    assert "is pinned by ann" in served.command("snapshot", "list").stdout
    first = served.state.snapshots.history()[0]["version"]
    _check_one_line(served.command("snapshot", "rollback", first, "--reason", "x"), "snapshot unpin")
    _check_one_line(served.command("snapshot", "pin", current, "--reason", "x"), "pinned already")
    assert served.command("snapshot", "unpin", "--reason", "over", "--actor", "bob").returncode == 0
    told = json.loads(served.command("snapshot", "list", "--json").stdout)
    assert told["pinned"] is None
    assert [(m["what"], m["actor"], m["reason"]) for m in told["history"][-2:]] == [
        ("pin", "ann", "audit [week]"),
        ("unpin", "bob", "over"),
    ]
    _check_one_line(served.command("snapshot", "unpin", "--reason", "x"), "is pinned")


def test_another_models_name(served: Deployment) -> None:
    for command in (
        ("refit", "--model", "fights"),
        ("status", "--model", "fights"),
        ("snapshot", "list", "--version", "2"),
        ("snapshot", "pin", "current", "--reason", "x", "--version", "2"),
    ):
        _check_one_line(served.command(*command), "flights/1")


def test_other_semantics_than_those_of_the_state(served: Deployment) -> None:
    """The role ends with the reason, and does not touch the state."""
    other = served.write_config("other.toml", {"windows": {"horizon": "48h"}})
    done = command_process("run", "--role", "monitor", "--config", str(other), environ=served.environ)
    assert done.returncode == 1
    assert "generation" in done.stderr or "semantic configuration" in done.stderr
    served.check()


def test_numbers_of_partitions_are_for_creation_only(served: Deployment) -> None:
    other = served.write_config("wider.toml", {"log": {"score_partitions": 5}})
    done = command_line("topics", "create", "--json", "--config", str(other), environ=served.environ)
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert told["findings"] == []
    assert {topic["topic"]: topic["partitions"] for topic in told["topics"] if not topic["created"]} == {
        topic: served.log.partitions(topic)
        for topic in ("scores", "labels", "blocks", "calibrated", "dead-letters", "alerts")
    }


def test_doctor_of_a_deployment_at_work(served: Deployment) -> None:
    done = served.command("doctor")
    assert done.returncode == 0, done
    assert "0 to mend" in done.stdout
    found = {f["subject"]: f for f in json.loads(served.command("doctor", "--json").stdout)}
    for subject in (
        "log",
        "topic blocks",
        "redis persistence",
        "model flights/1",
        "calibrate",
        "monitor",
        "refit",
        "alert",
    ):
        assert found[subject]["level"] == "ok", found[subject]
    assert "of cells" in found["memory needed"]["what"]
    too_much = served.command("doctor", "--rate", "1e9")
    assert too_much.returncode == 1
    assert "fail memory needed" in too_much.stdout


def test_doctor_where_the_state_is_of_other_settings(served: Deployment) -> None:
    other = served.write_config("other-horizon.toml", {"windows": {"horizon": "48h"}})
    done = command_line("doctor", "--config", str(other), environ=served.environ)
    assert done.returncode == 1
    assert "fail model flights/1: the state was made under other settings" in done.stdout


# --- before anything was written


def test_before_anything_was_written(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        (facts,) = json.loads(deployed.command("status", "--json").stdout)["models"]
        assert facts["snapshot"] is None
        assert facts["panes"]["matured"] is None
        assert facts["processes"] == []
        assert "none yet" in deployed.command("status").stdout
        assert json.loads(deployed.command("snapshot", "list", "--json").stdout) == {
            "current": None,
            "pinned": None,
            "shadow": None,
            "held": [],
            "history": [],
        }
        assert deployed.command("snapshot", "list").returncode == 0
        _check_one_line(deployed.command("snapshot", "show"), "no snapshot yet")
        _check_one_line(deployed.command("refit", "--model", "flights"), "nothing has been read yet")
        _check_one_line(
            deployed.command("snapshot", "rollback", "000001-0123456789ab", "--reason", "x"), "000001-0123456789ab"
        )


def test_replayed_files_are_served_and_joined(month: list[EventDay], tmp_path: Path) -> None:
    """A day of scores and labels out of files, with clocks that end: its panes mature."""
    with deployment(tmp_path) as deployed:
        topics = deployed.config.topics
        deployed.start("calibrate", "monitor")
        days = list(as_written(month[:2]))
        for topic in (topics.scores, topics.labels):
            records = [out for day in days for out in day if out.topic == topic]
            values = tmp_path / f"{topic}.jsonl.gz"
            with gzip.open(values, "wb") as stream:
                stream.write(b"".join((out.value or b"") + b"\n" for out in records if out.value))
            done = deployed.command("replay", str(values), "--into", topic, "--clock", "end", "--json")
            assert done.returncode == 0, done
            told = json.loads(done.stdout)
            assert told["finished"]
            assert told["written"] > 100
            assert told["clock_ms"] == told["last_ms"]
        deployed.until_matured((month[0].end_ms // 3_600_000) - 2)
        (facts,) = json.loads(deployed.command("status", "--json").stdout)["models"]
        assert facts["outcomes"]["matched"] > 100
        assert facts["coverage"]["labelled"] > 100


def test_replay_options_that_contradict_each_other(tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    file.write_text(config_text({}))
    lines = tmp_path / "lines.jsonl"
    lines.write_text("{}\n")
    for options, part in (
        ((), "either files, or a topic"),
        ((str(lines), "--topic", "old"), "either files, or a topic"),
        ((str(lines), "--until", "5"), "are for topics"),
        (("--topic", "scores"), "into another topic"),
        (("--topic", "old", "--kcat"), "--kcat says how the lines"),
        ((str(lines), "--rate", "5", "--speed", "5"), "give one of them"),
    ):
        done = command_line("replay", *options, "--into", "scores", "--config", str(file))
        _check_one_line(done, part)


def test_topics_from_nothing_to_a_topic_that_outgrew_the_others(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "server") as server:
        environ = {**os.environ, "STREAM_CALIB_LOG_URL": server.url, "STREAM_CALIB_REDIS_URL": server.url}
        file = tmp_path / "stream-calib.toml"
        file.write_text(config_text({"log": {"score_partitions": 3, "label_partitions": 2}}))

        def topics(*arguments: str) -> subprocess.CompletedProcess[str]:
            return command_line("topics", *arguments, "--config", str(file), environ=environ)

        before = topics("check", "--json")
        assert before.returncode == 1
        assert {finding["level"] for finding in json.loads(before.stdout)} == {"fail"}
        assert "stream-calib topics create" in before.stdout

        created = json.loads(topics("create", "--json").stdout)
        assert all(topic["created"] for topic in created["topics"])
        assert {topic["topic"]: topic["partitions"] for topic in created["topics"]} == {
            "scores": 3,
            "labels": 2,
            "blocks": 3,
            "calibrated": 3,
            "dead-letters": 1,
            "alerts": 1,
        }
        assert topics("check").returncode == 0
        again = topics("create")
        assert again.returncode == 0
        assert "was there" in again.stdout

        with EmbeddedLog(server.url) as log:
            log.grow_topic("scores", 4)
        grown = topics("check")
        assert grown.returncode == 1
        assert "blocks" in grown.stdout
        assert "--partitions 4" in " ".join(grown.stdout.split())
        assert topics("create").returncode == 1


# --- without a deployment


def test_no_configuration(tmp_path: Path) -> None:
    for command in (
        ("status",),
        ("run", "--role", "monitor"),
        ("config", "check"),
        ("config", "show"),
        ("snapshot", "list"),
        ("topics", "create"),
        ("topics", "check"),
        ("refit", "--model", "m"),
    ):
        _check_one_line(command_line(*command, "--config", str(tmp_path / "none.toml")), "none.toml")


def test_a_misspelt_key_is_shown_with_what_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    file.write_text(config_text({"windows": {"horizn": "24h"}}))
    done = command_line("config", "check", "--config", str(file))
    assert done.returncode == 1
    assert "windows.horizn" in done.stderr
    assert "horizon" in done.stderr.replace("horizn", "")
    assert "Traceback" not in done.stderr


def test_a_server_that_is_away(tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    file.write_text(config_text({}))
    for command in (
        ("status",),
        ("topics", "check"),
        ("snapshot", "list"),
        ("refit", "--model", "flights"),
        ("replay", str(file), "--into", "scores"),
    ):
        done = command_line(*command, "--config", str(file), environ={**os.environ, **NOWHERE})
        _check_one_line(done, "127.0.0.1:1")
    done = command_process("run", "--role", "calibrate", "--config", str(file), environ={**os.environ, **NOWHERE})
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_role_that_does_not_exist(tmp_path: Path) -> None:
    done = command_process("run", "--role", "calibrator", "--config", str(tmp_path / "none.toml"))
    assert done.returncode == 2
    assert "calibrate" in done.stderr


def _check_one_line(done: subprocess.CompletedProcess[str], part: str) -> None:
    """Code 1 and one line that names the part."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert part in done.stderr
    assert done.stderr.count("\n") <= 3, done.stderr
    assert "Traceback" not in done.stderr
