"""What the documentation names is there: pages and sections, files, settings, commands, metrics, alerts, words of the
logs; its figures are the program's; its programs run."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml
from pydantic import BaseModel
from typer.core import TyperGroup

from stream_calib.alerts.model import AlertKind
from stream_calib.config import Config
from stream_calib.config_connections import LogSection
from stream_calib.fault_points import CALLS
from stream_calib.metrics import CATALOGUE
from stream_calib.transport.kafka import KafkaLog
from stream_calib.transport.port import Outgoing
from tests.kafka_services import fresh_name
from workers.cli import app
from workers.doctor_memory import estimate

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
OPERATIONS = ROOT / "docs/operations.md"
tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@cache
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def fenced(page: Path, language: str) -> list[str]:
    """Blocks of a language, also those within lists."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text(page), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


def prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text(page), flags=re.DOTALL | re.MULTILINE)


def quoted(page: Path) -> list[str]:
    """What stands between backticks; lines may be broken there."""
    paragraphs = re.split(r"\n\s*\n|\n(?=[|*#]|\d+\. )", prose(page))
    return [" ".join(found.split()) for paragraph in paragraphs for found in re.findall(r"`([^`]+)`", paragraph)]


# --- pages and files


@cache
def anchors(page: Path) -> list[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]


@every_page
def test_links_lead_to_pages_and_sections(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = page if not path else (page.parent / path).resolve()
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@every_page
def test_a_section_can_be_linked_to(page: Path) -> None:
    linked = {
        target.partition("#")[2]
        for other in PAGES
        for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", prose(other))
        if (other.parent / target.partition("#")[0]).resolve() == page or (target.startswith("#") and other == page)
    }
    assert [anchor for anchor in linked if anchors(page).count(anchor) > 1] == []


@every_page
def test_files_that_are_named_are_there(page: Path) -> None:
    names = [
        name
        for name in quoted(page)
        if re.fullmatch(r"\w[\w./@-]*/[\w.@-]+\.(py|lua|yml|yaml|toml|json|lock|md)", name)
    ]
    assert [name for name in names if not any((root / name).exists() for root in (ROOT, ROOT / "stream_calib"))] == []


def test_the_file_map_has_every_package() -> None:
    (file_map,) = re.findall(r"^## File map\n(.*)", text(ROOT / "docs/architecture.md"), re.DOTALL | re.MULTILINE)
    packages = {path.parent.name for path in (ROOT / "stream_calib").glob("*/__init__.py")}
    assert len(packages) >= 10
    assert [name for name in packages if f"`stream_calib/{name}/`" not in file_map] == []


# --- settings


def setting_names(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        yield prefix + name
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from setting_names(part, f"{prefix}{name}.")


SETTINGS = frozenset(setting_names())
SECTIONS = frozenset(name for name in SETTINGS if any(other.startswith(f"{name}.") for other in SETTINGS))
OF_RECORDS = frozenset({"scores.fraud", "scores.abuse"})
"""Paths within records, in examples."""
FREE_TABLES = (
    "decisions",
    "fusion.members",
    "log.client",
    "log.client_secrets",
    "redis.client",
    "redis.client_secrets",
    "scores.attributes",
)


def is_setting(name: str) -> bool:
    return name in SETTINGS or any(name.startswith(f"{table}.") for table in FREE_TABLES)


@every_page
def test_settings_that_are_named_exist(page: Path) -> None:
    named = {
        match[1]
        for quote in quoted(page)
        if (match := re.match(r"([a-z]+(?:\.[a-z_]+)+)(?:$| = )", quote)) and match[1].partition(".")[0] in SECTIONS
    }
    files = re.compile(r".*\.(md|py|toml|json|lua|yml)")
    assert [
        name
        for name in named
        if not is_setting(name) and name not in OF_RECORDS and name not in CALLS and not files.fullmatch(name)
    ] == []
    sections = {quote.strip("[]") for quote in quoted(page) if re.fullmatch(r"\[{1,2}[a-z_.]+\]{1,2}", quote)}
    assert sections <= SECTIONS.union(FREE_TABLES)


def keys_of(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        yield prefix + name
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from keys_of(part, f"{prefix}{name}.")


@every_page
def test_settings_in_examples_exist(page: Path) -> None:
    given = {name for block in fenced(page, "toml") for name in keys_of(tomllib.loads(block))}
    assert [name for name in given if not is_setting(name)] == []


# --- commands


def faults(line: str) -> list[str]:
    """What the command line names that is not there."""
    found, words = typer.main.get_command(app), line.split()
    while isinstance(found, TyperGroup):
        command = found.get_command(typer.Context(found), words[0]) if words else None
        if command is None:
            return [line]
        found, words = command, words[1:]
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [f"{line}: {word}" for word in words if re.fullmatch(r"--[a-z-]+", word) and word not in {*known, "--help"}]


@every_page
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    lines = [quote.removeprefix("stream-calib ") for quote in quoted(page) if quote.startswith("stream-calib ")]
    for script in fenced(page, "bash"):
        lines += re.findall(
            r"^(?:.* (?:exec|run --rm) \w+ )?stream-calib ((?!--)[a-z][^#\n]*)",
            script.replace("\\\n", " "),
            re.MULTILINE,
        )
    assert [fault for line in lines for fault in faults(line)] == []


# --- metrics, alerts, words


@every_page
def test_metrics_that_are_named_exist(page: Path) -> None:
    exported = {metric.name for metric in CATALOGUE}
    named = {match[1] for quote in quoted(page) if (match := re.match(r"(stream_calib_\w+)", quote))}
    assert named <= exported


def sections(title: str) -> dict[str, str]:
    """Sections of the run book under a heading -> their text."""
    (part,) = re.findall(rf"^### {title}\n(.*?)(?=^### |\Z)", text(OPERATIONS), re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"^#### (.*?)\n(.*?)(?=^#### |\Z)", part, re.DOTALL | re.MULTILINE))


def test_the_run_book_has_a_section_for_each_alert_rule() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert names == set(
        re.findall(r"^`(StreamCalib\w+)`", "\n".join(sections("Alerts of Prometheus").values()), re.MULTILINE)
    )


def test_the_run_book_has_a_section_for_each_alert_kind() -> None:
    kinds = set(get_args(AlertKind))
    own = set(sections("Alerts of its own"))
    assert own <= kinds
    elsewhere = " ".join(sections("Alerts of Prometheus").values())
    assert [kind for kind in kinds - own if f"alert `{kind}`" not in elsewhere] == []


def test_each_failure_says_what_happens_by_itself_or_what_to_do() -> None:
    failures = sections("Failures")
    assert len(failures) >= 13
    assert [name for name, body in failures.items() if not re.search(r"\*\*(By itself|Do)\*\*", body)] == []


@cache
def words_of_the_program() -> str:
    """Every text in the source, with `%s` and what is formatted as `...`."""
    found = []
    for folder in ("stream_calib", "workers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
                elif isinstance(node, ast.JoinedStr):
                    found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "..." for p in node.values))
    return "\n".join(re.sub(r"%[.\d]*[sdgf]", "...", one) for one in found)


NO_WORDS_OF_OURS = re.compile(
    r"(?:stream-calib|docker|kubectl|make|systemctl|curl|kcat|kafka-[a-z-]+\.sh|kill|appendfsync|appendonly) "
    r"|[\w.]+ = |--|ACL |CONFIG |CRASH_ARGS=|maxmemory-policy |stream_calib_"
)
"""Commands and settings, ours and others'."""
FAULTS = frozenset({"broker lost", "disk full", "move slots", "receiver kill", "redis back"})
"""What the crash matrix does (tests/crash/faults.py), as its tables name it."""


@pytest.mark.parametrize("page", [OPERATIONS, ROOT / "docs/transactions.md"], ids=lambda page: page.name)
def test_what_logs_and_statuses_are_said_to_say_is_in_the_program(page: Path) -> None:
    phrases = [
        quote for quote in quoted(page) if " " in quote and not NO_WORDS_OF_OURS.match(quote) and quote not in FAULTS
    ]
    assert len(phrases) >= 4
    program = words_of_the_program()
    parts = [(phrase, part.strip(" :;")) for phrase in phrases for part in phrase.split("...")]
    assert [phrase for phrase, part in parts if part and part not in program] == []


# --- figures and programs


def test_figures_of_sizing_are_those_that_doctor_reckons_with() -> None:
    (table,) = re.findall(r"^<!-- sizing.*?-->\n(.*?)\n\n", text(OPERATIONS), re.DOTALL | re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) >= 4
    for rate, horizon, shards, pending, join, roomy in rows:
        windows = {"horizon": horizon, "shards": int(shards)}
        config = Config.model_validate({"model": {"name": "m"}, "windows": windows})
        found = estimate(config, float(rate.replace(",", "")), [])
        assert pending == f"{found.pending_scores / 1e6:,.0f} million"
        assert (join, roomy) == (f"{found.join_bytes / 1e9:.1f} GB", f"{1.5 * found.join_bytes / 1e9:.1f} GB")


@pytest.mark.timeout(300)
def test_a_reader_uses_each_score_once(kafka_bootstrap: str, tmp_path: Path) -> None:
    (script,) = fenced(ROOT / "docs/consumers.md", "python")
    topic = fresh_name("calibrated")
    for shown, used in (
        ('"calibrated",\n', f'"{topic}",\n'),
        ("127.0.0.1:9092", kafka_bootstrap),
        ('"decisions"', f'"{fresh_name("decisions")}"'),
        ("timeout_ms=10_000", "timeout_ms=3_000"),
    ):
        assert script.count(shown) == 1
        script = script.replace(shown, used)

    def output(position: int, probability: float, status: str = "calibrated") -> Outgoing:
        value = (
            f'{{"event_id":"id-{position}","stream_calib":{{"churn":{{"raw":0.5,"calibrated":{probability},'
            f'"snapshot":"000001-0123456789abcdef","status":"{status}"}}}}}}'
        )
        source = {"topic": b"scores", "partition": b"3", "offset": b"%d" % position}
        headers = tuple((f"stream-calib-source-{name}", value) for name, value in source.items())
        return Outgoing(topic, None, value.encode(), headers, 0)

    with KafkaLog(LogSection(kind="kafka", bootstrap_servers=kafka_bootstrap, replication_factor=1)) as log:
        log.create_topic(topic, 1)
        log.produce([output(7, 0.25), output(8, 0.5, "identity"), output(9, 0.75)])
        log.produce([output(7, 0.125), output(9, 0.75), output(10, 0.5)])  # again, partly by another snapshot
    for _ in range(2):  # the second run finds nothing new
        subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, timeout=120)
    with sqlite3.connect(tmp_path / "decisions.db") as results:
        rows = results.execute("SELECT position, probability FROM decision ORDER BY position").fetchall()
    assert rows == [(7, 0.25), (9, 0.75), (10, 0.5)]


@pytest.mark.timeout(400)
def test_the_steps_on_kafka_lead_to_a_calibrated_score(kafka_bootstrap: str, redis_url: str, tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    (described,) = re.findall(r"^```toml\n(.*?)^```", text(readme), re.DOTALL | re.MULTILINE)
    (append,) = [block for block in fenced(readme, "bash") if block.startswith("cat >> stream-calib.toml")]
    (script,) = [block for block in fenced(readme, "python") if "KafkaProducer" in block]
    names = {
        topic: fresh_name(topic) for topic in ("scores", "labels", "calibrated", "blocks", "dead_letters", "alerts")
    }
    apart = f'group_prefix = "{fresh_name("docs")}"\nreplication_factor = 1\n[topics]\n'
    apart += "".join(f'{key} = "{name}"\n' for key, name in names.items())
    (tmp_path / "stream-calib.toml").write_text(described, encoding="utf-8")
    subprocess.run(["sh", "-ec", append.replace("127.0.0.1:9092", kafka_bootstrap)], check=True, cwd=tmp_path)
    with (tmp_path / "stream-calib.toml").open("a", encoding="utf-8") as file:
        file.write(apart)
    script = script.replace("127.0.0.1:9092", kafka_bootstrap)
    for topic in ("scores", "calibrated"):
        assert script.count(f'"{topic}",') == 1
        script = script.replace(f'"{topic}",', f'"{names[topic]}",')

    def started(*words: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "STREAM_CALIB_REDIS_URL": redis_url}
        line = [sys.executable, "-m", "workers.cli", *words, "--config", str(tmp_path / "stream-calib.toml")]
        return subprocess.Popen(line, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE)

    for command in ("topics create", "doctor"):
        said, _ = (process := started(*command.split())).communicate(timeout=120)
        assert process.returncode == 0, said
    calibrate = started("run", "--role", "calibrate")
    try:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    finally:
        calibrate.terminate()
        calibrate.communicate(timeout=60)
    output = json.loads(done.stdout)
    assert output["event_id"] == "A-17"
    assert output["stream_calib"]["churn"] == {"raw": 0.8, "calibrated": 0.8, "snapshot": None, "status": "identity"}
