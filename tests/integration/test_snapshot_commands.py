"""`stream-calib snapshot held|approve|reject|shadow|at` on a state that is made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from stream_calib.events.identity import signature_hash
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.cells import MaturedCells
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.asking import ask
from tests.unit.snapshot.documents import GATE, report, structure
from workers.cli import app
from workers.cli_common import console, load
from workers.cli_models import open_selected
from workers.deployment import State

pytestmark = pytest.mark.services

CONFIG = """
[model]
name = "m"
version = "1"

[scores.attributes]
region = "r"
device = "d"

[windows]
horizon = "2h"

[log]
kind = "embedded"
url = "{url}"

[redis]
url = "{url}"
"""
VALUES = ("São Paulo", "phone")


class Commands:
    """The command line in this process, over a state of a few panes."""

    def __init__(self, url: str, folder: Path) -> None:
        self.file = folder / "stream-calib.toml"
        self.file.write_text(CONFIG.format(url=url), encoding="utf-8")
        self.state: State = open_selected(load(self.file), None, None)
        self.store = SnapshotStore(self.state.store, self.state.model_key, "g", 3_600_000, lambda: 1_362_132_000_000)
        signature = signature_hash(VALUES)
        cells = MaturedCells.count(
            np.arange(40, dtype=np.uint8) % 20,
            np.full(40, signature, np.uint64),
            np.full(40, 200, np.uint16),
            (np.arange(40) % 4 == 0).astype(np.int8),
        )
        blobs = {f"matured:{pane}": cells.pack() for pane in range(9, 20)}
        fields = {"first_pane": "9", "decided": "9"}
        self.state.store.commit(Commit(fields=fields, blobs=blobs))
        self.state.store.put_signatures({signature: VALUES}, 0)
        token = self.state.store.acquire_lease("refit", "w", 60_000)
        assert token is not None
        self.token = token

    def hold(self, name: str, **change: Any) -> str:
        parent = self.store.current()
        asked = ask(self.state.store, name, parent)
        gate = GATE.model_copy(
            update={"gain": 0.0012, "gain_lower": -0.0003, "auc_served": 0.7, "auc_candidate": 0.7012}
        )
        made = report(name, pane=asked.pane).model_copy(update={"gate": gate})
        return self.store.hold(
            structure(name, parent, attributes=("region", "device"), families=(), **change), made, self.token
        )

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--config", str(self.file)])

    def told(self, *arguments: str) -> str:
        done = self.run("snapshot", *arguments)
        assert done.exit_code == 0, done.output
        return done.output

    def facts(self, *arguments: str) -> Any:
        return json.loads(self.told(*arguments, "--json"))


@pytest.fixture
def commands(redis_client: Any, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    monkeypatch.setattr(console, "width", 200)
    made = Commands(redis_url, tmp_path)
    yield made
    made.state.close()


WHY = ("--reason", "it was reviewed", "--actor", "ann")


def test_a_candidate_is_looked_at_and_approved(commands: Commands) -> None:
    assert "no candidate of m/1 is held" in commands.told("held")
    first, second = commands.hold("r1"), commands.hold("r2", rows=7)
    shown = commands.told("held")
    assert first in shown
    assert "+0.00120" in shown
    assert "0.7000 to 0.7012" in shown
    facts = commands.facts("held")
    assert [(one["version"], one["approvable"], one["report"]["gate"]["gain"]) for one in facts] == [
        (first, True, 0.0012),
        (second, True, 0.0012),
    ]
    assert f"m/1 now serves {second}" in commands.told("approve", second, *WHY)
    assert commands.facts("held") == []
    (move,) = commands.facts("list")["history"]
    assert (move["what"], move["version"], move["actor"], move["reason"]) == ("publish", second, "ann", WHY[1])
    refused = commands.run("snapshot", "approve", first, *WHY)
    assert refused.exit_code == 1
    assert f"superseded when {second} was approved by ann" in refused.stderr
    assert commands.run("snapshot", "approve", first).exit_code == 2  # without a reason


def test_a_candidate_is_rejected(commands: Commands) -> None:
    version = commands.hold("r1")
    assert f"{version} is rejected" in commands.told("reject", version, *WHY)
    assert [move["what"] for move in commands.facts("list")["history"]] == ["reject"]
    assert "reject" in commands.told("list")


def test_a_shadow_is_set_shown_and_ended(commands: Commands) -> None:
    assert "has no shadow" in commands.told("shadow")
    first = commands.hold("r1")
    commands.told("approve", first, *WHY)
    version = commands.hold("r2", level=-0.9)
    commands.told("shadow", version, *WHY)
    ask(commands.state.store, "r3", first)
    shown = commands.told("shadow")
    assert f"{version}, the shadow since" in shown
    facts = commands.facts("shadow")
    assert (facts["shadow"]["actor"], facts["figures"]["rows"]) == ("ann", 120)  # panes 10 to 12
    assert facts["figures"]["gain"] > 0
    assert f"{facts['figures']['gain']:+.5f}" in shown
    assert "Beside what was served" in commands.told("show", version)
    assert version in commands.told("list")
    assert "is no longer the shadow" in commands.told("shadow", "--off", *WHY)
    for arguments, message in (
        ((version, "--off", *WHY), "not both"),
        ((version,), "say why with --reason"),
        (("--off", *WHY), "is the shadow"),
    ):
        refused = commands.run("snapshot", "shadow", *arguments)
        assert refused.exit_code == 1
        assert message in refused.stderr


def test_what_was_live_then_by_the_clock_and_by_the_events(commands: Commands) -> None:
    version = commands.hold("r1")
    commands.store.approve(version, "ann", "it was reviewed")
    ask(commands.state.store, "r2", version)
    shown = commands.told("at", "2013-03-01T10:00")
    assert "2013-03-01 10:00 UTC, published by ann: it was reviewed" in shown
    assert "not decided yet" in shown
    assert "none that is on record" in commands.told("at", "2013-03-01T09:59")
    by_pane = {pane: commands.facts("at", f"1970-01-01T{pane}:30Z")["by_event_time"] for pane in (10, 11, 12)}
    assert [(found["decided"], found["version"]) for found in by_pane.values()] == [
        (True, None),
        (True, version),
        (False, None),
    ]
    refused = commands.run("snapshot", "at", "yesterday")
    assert refused.exit_code == 1
    assert "yesterday is no time" in refused.stderr
