"""Fusion through the live path: two badly scaled models, calibrated, fused, calibrated again; and its weights fitted to
what was served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from typer.testing import CliRunner

from stream_calib.calibration.baselines import Platt
from stream_calib.calibration.fusion import FusionWeights, fuse
from stream_calib.calibration.metrics import log_loss
from stream_calib.config_file import load_config
from stream_calib.config_identity import configured_keys
from stream_calib.events.blocks import unpack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.control import is_control
from stream_calib.transport.port import Outgoing, TopicPartition
from stream_calib.windows.pane_record import PaneNames, decode_record
from tests.integration.harness import Deployment, deployment
from workers.cli import app
from workers.deployment import State
from workers.role import wall_clock_ms

pytestmark = pytest.mark.services

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
FIRST_MS = 1_714_521_600_000
DAYS, EVENTS_A_DAY, HOURS_OF_EVENTS = 4, 4_000, 20
FUSED = ModelKey("fused", "1")
CONFIG = """
[[models]]
name = "loud"
score = "loud"

[[models]]
name = "quiet"
score = "quiet"

[fusion]
name = "fused"

[scores.time]
path = "ts"

[scores.attributes]
region = "region"

[labels.time]
path = "ts"

[serving]
clock_records = "off"
snapshot_poll = "20ms"

[refit]
max_auc_drop = 0.01 # of about 700 rows

[windows]
horizon = "2h"
label_lateness = "5m"
shards = 1
max_clock_skew = "off"
idle_timeout = "off"
expire_requests = false
"""


class World(NamedTuple):
    """Events in the order of their days: each model sees one of two independent signs of the outcome. One shouts, the
    other whispers, and neither is where it should be."""

    loud: NDArray[np.float64]
    quiet: NDArray[np.float64]
    label: NDArray[np.int64]


class Served(NamedTuple):
    """What is on `calibrated`, in the order of the events."""

    by_model: dict[str, list[dict[str, Any]]]
    values: list[bytes]

    def column(self, model: str, field: str, rows: slice) -> NDArray[np.float64]:
        return np.array([member[field] for member in self.by_model[model][rows]])


class Run(NamedTuple):
    deployed: Deployment
    served: Served
    counted: list[tuple[int, ...]]
    """For each day and key: rows in blocks up to its end."""


@pytest.fixture(scope="module")
def world() -> World:
    random = np.random.default_rng(5)
    signs = random.normal(size=(2, DAYS * EVENTS_A_DAY))
    label = random.random(signs.shape[1]) < expit(1.2 * signs.sum(axis=0) - 0.5)
    return World(expit(4 * signs[0] + 1), expit(0.4 * signs[1] - 1.5), label.astype(np.int64))


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with deployment(tmp_path_factory.mktemp("fusion"), text=CONFIG) as deployed:
        for role in ("calibrate", "monitor", "refit"):
            deployed.start(role)
        states = [deployed.state_of(key) for key in configured_keys(deployed.config)]
        counted = []
        for day in range(DAYS):
            deployed.log.produce(_events(world, day) + deployed.clocks(FIRST_MS + (day + 1) * DAY_MS))
            last_pane = (FIRST_MS + day * DAY_MS) // HOUR_MS + HOURS_OF_EVENTS - 1
            deployed.until(lambda p=last_pane: _settled(deployed, states, p), f"day {day} to be settled")  # type: ignore[misc]  # mypy cannot infer lambdas with defaults
            counted.append(tuple(_rows_in_blocks(deployed, state.model_key) for state in states))
        for state in states:
            state.close()
        yield Run(deployed, _served(deployed), counted)


def _events(world: World, day: int) -> list[Outgoing]:
    records = []
    for i in range(day * EVENTS_A_DAY, (day + 1) * EVENTS_A_DAY):
        ts = FIRST_MS + day * DAY_MS + (i % EVENTS_A_DAY) * HOURS_OF_EVENTS * HOUR_MS // EVENTS_A_DAY
        score = {"event_id": i, "ts": ts, "loud": world.loud[i], "quiet": world.quiet[i], "region": f"R{i % 2}"}
        label = {"event_id": i, "ts": ts + HOUR_MS, "label": int(world.label[i])}
        records += [Outgoing("scores", b"%d" % i, json.dumps(score).encode())]
        records += [Outgoing("labels", b"%d" % i, json.dumps(label).encode())]
    return records


def _settled(deployed: Deployment, states: list[State], pane: int) -> bool:
    """Whether every key has decided the pane, and calibrate serves what came of it."""
    if deployed.lag("calibrate", "scores"):
        return False
    for state in states:
        found = state.store.read(("first_pane", "decided", "open_request", "current"))
        if found["open_request"] or found["first_pane"] is None or int(found["decided"] or -1) < pane:
            return False
        shown = [s.facts["snapshot"] for s in state.board.all(wall_clock_ms()) if s.role == "calibrate"]
        if shown != [found["current"] or ""]:
            return False
    return True


def _rows_in_blocks(deployed: Deployment, key: ModelKey) -> int:
    rows = 0
    for partition in range(deployed.log.partitions("blocks")):
        for record in deployed.log.read(TopicPartition("blocks", partition), 0, 1_000_000):
            if not is_control(record) and (block := unpack(record.value or b"")).model_key == key:
                rows += len(block.fingerprint)
    return rows


def _served(deployed: Deployment) -> Served:
    found: dict[int, tuple[dict[str, dict[str, Any]], bytes]] = {}
    for partition in range(deployed.log.partitions("calibrated")):
        for record in deployed.log.read(TopicPartition("calibrated", partition), 0, 1_000_000):
            event = json.loads(record.value or b"")
            found[int(event["event_id"])] = event["stream_calib"], record.value or b""
    ordered = [found[i] for i in range(DAYS * EVENTS_A_DAY)]
    names = ("loud", "quiet", "fused")
    return Served({name: [members[name] for members, _ in ordered] for name in names}, [value for _, value in ordered])


LAST_DAYS = slice(2 * EVENTS_A_DAY, DAYS * EVENTS_A_DAY)


def test_the_fused_model_follows_its_members(run: Run) -> None:
    """First snapshots of the members come after the first day, that of the fused one after the second."""
    statuses = {
        name: [sorted({m["status"] for m in members[day : day + EVENTS_A_DAY]}) for day in (0, 4_000, 8_000, 12_000)]
        for name, members in run.served.by_model.items()
    }
    first, later = ["identity"], ["calibrated"]
    assert statuses["loud"] == statuses["quiet"] == [first, later, later, later]
    assert statuses["fused"] == [first, first, later, later]
    assert run.counted == [(4_000, 4_000, 0), (8_000, 8_000, 4_000), (12_000, 12_000, 8_000), (16_000, 16_000, 12_000)]


def test_each_row_is_counted_once_whatever_its_key_and_batch(run: Run) -> None:
    """Batches span hours here, and no row is late for those of another key."""
    for key, rows in zip(configured_keys(run.deployed.config), (16_000, 16_000, 12_000), strict=True):
        state = run.deployed.state_of(key)
        try:
            found = state.store.read(("first_pane", "matured"))
            panes = range(int(found["first_pane"] or 0), int(found["matured"] or 0) + 1)
            blobs = state.store.blobs([PaneNames.of(pane).record for pane in panes])
            assert sum(decode_record(blob or b"").labelled for blob in blobs) == rows
        finally:
            state.close()


def test_the_fused_score_is_the_mean_of_what_was_served(run: Run) -> None:
    everything = slice(0, None)
    parts = [run.served.column(name, "calibrated", everything) for name in ("loud", "quiet")]
    assert np.array_equal(
        run.served.column("fused", "raw", everything), fuse(np.array(parts).T, FusionWeights.equal(2))
    )


def test_fusion_after_calibration_beats_fusion_of_raw_scores_and_the_best_model(run: Run, world: World) -> None:
    """On the last two days, by outcomes that no snapshot at work had seen. By far: each loss is 10 standard errors of
    its paired difference above that of the fused score."""
    served, label = run.served, world.label[LAST_DAYS]
    raw = np.array([world.loud, world.quiet]).T
    raw_fused = fuse(raw, FusionWeights.equal(2))
    platt = Platt().fit(raw_fused[: 2 * EVENTS_A_DAY], world.label[: 2 * EVENTS_A_DAY])
    others = {
        "raw scores fused": raw_fused[LAST_DAYS],
        "raw scores fused, then calibrated": platt.predict(raw_fused[LAST_DAYS]),
        "loud": served.column("loud", "calibrated", LAST_DAYS),
        "quiet": served.column("quiet", "calibrated", LAST_DAYS),
        "fused, not calibrated": served.column("fused", "raw", LAST_DAYS),
    }
    fused = served.column("fused", "calibrated", LAST_DAYS)
    losses = {name: log_loss(label, probability) for name, probability in others.items()}
    mine = log_loss(label, fused)
    print({"fused": mine} | losses)
    for name, probability in others.items():
        difference = _losses(label, probability) - _losses(label, fused)
        standard_error = difference.std() / np.sqrt(len(difference))
        assert difference.mean() > (3 if name == "fused, not calibrated" else 10) * standard_error, (name, mine, losses)


def _fit(deployed: Deployment, *arguments: str) -> Any:
    """`stream-calib fusion fit` in this process."""
    return CliRunner().invoke(
        app, ["fusion", "fit", "--config", str(deployed.config_file), *arguments], env=dict(deployed.environ)
    )


def _losses(label: NDArray[np.int64], probability: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.log(np.where(label == 1, probability, 1 - probability))


def test_weights_are_fitted_to_the_topics_and_to_files_alike(run: Run, world: World, tmp_path: Path) -> None:
    deployed = run.deployed
    done = _fit(deployed, "--from", "2020-01-01", "--until", "2090-01-01", "--json")
    assert done.exit_code == 0, done.stderr
    by_topics = json.loads(done.stdout)

    outputs, labels = tmp_path / "calibrated.jsonl", tmp_path / "labels.jsonl"
    outputs.write_bytes(b"\n".join(run.served.values))
    written = [o.value or b"" for day in range(DAYS) for o in _events(world, day) if o.topic == "labels"]
    labels.write_bytes(b"\n".join(written))
    done = _fit(deployed, "--calibrated", str(outputs), "--labels", str(labels), "--json")
    assert done.exit_code == 0, done.stderr
    by_files = json.loads(done.stdout)

    for found in (by_topics, by_files):
        assert found["members"] == ["loud", "quiet"]
        assert (found["outputs"], found["labels"]) == (DAYS * EVENTS_A_DAY,) * 2
        assert (found["rows"], found["incomplete"]) == (3 * EVENTS_A_DAY, EVENTS_A_DAY)
        # The signs are alike, so the true weights are equal.
        for weight, error in zip(found["weights"]["weights"], found["weights"]["standard_errors"], strict=True):
            assert abs(weight - 0.5) < 4 * error < 0.1
        losses = {candidate["name"]: candidate["calibrated_log_loss"] for candidate in found["candidates"]}
        assert max(losses["equal weights"], losses["fitted weights"]) < min(losses["loud"], losses["quiet"]) - 0.05
    # Only the order in which rows are summed differs.
    assert by_topics["weights"]["weights"] == pytest.approx(by_files["weights"]["weights"], abs=1e-9)


def test_the_lines_that_are_printed_make_a_configuration(run: Run, tmp_path: Path) -> None:
    done = run.deployed.command("fusion", "fit", "--from", "2020-01-01", "--until", "2090-01-01")
    assert done.returncode == 0, done.stderr
    lines = done.stdout[done.stdout.index("[fusion]") :].split("\n\n")[0]
    file = tmp_path / "next.toml"
    file.write_text(CONFIG.replace('[fusion]\nname = "fused"\n', lines + "\n"), encoding="utf-8")
    fused = load_config(file, {}).fused()
    assert fused is not None
    assert fused.key == ModelKey("fused", "2")
    assert sum(fused.weights.values()) == pytest.approx(1, abs=1e-3)


def test_a_window_with_too_few_rows_is_refused(run: Run, tmp_path: Path) -> None:
    outputs, labels = tmp_path / "calibrated.jsonl", tmp_path / "labels.jsonl"
    outputs.write_bytes(b"\n".join(run.served.values[-1_500:]))
    labels.write_bytes(b"\n".join(json.dumps({"event_id": i, "ts": 1, "label": 1}).encode() for i in range(9)))
    done = _fit(run.deployed, "--calibrated", str(outputs), "--labels", str(labels))
    assert done.exit_code == 1
    assert "0 labelled rows have a calibrated score of each of loud, quiet" in done.stderr


def test_counts_of_other_weights_are_refused(run: Run) -> None:
    deployed = run.deployed
    text = CONFIG.replace('name = "fused"\n', 'name = "fused"\nmembers = { loud = 2, quiet = 1 }\n')
    monitor = deployed.start("monitor", config_file=deployed.write_config("weights.toml", {}, text))
    monitor.expected = False
    deployed.until(lambda: monitor.process.poll() is not None, "monitor to end")
    assert monitor.process.returncode == 1
    assert "give fusion.version another value to start afresh" in monitor.last_words()
