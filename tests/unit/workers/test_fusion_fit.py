"""Fusion weights out of joined rows, their held-out figures, and the command that prints them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit
from typer.testing import CliRunner

from stream_calib.calibration.fusion import FusionWeights, fit_fusion, fuse
from stream_calib.calibration.metrics import log_loss
from stream_calib.config_file import load_config
from stream_calib.errors import TooFewPositivesError, TooFewRowsError
from stream_calib.events.identity import fingerprints, unit_buckets
from workers.cli import app
from workers.fusion_fit import EQUAL, FITTED, fit
from workers.fusion_rows import JoinedRows

CONFIG = """
[[models]]
name = "a.x"
score = "a"
[[models]]
name = "b"
score = "b"
[windows]
horizon = "1d"
[refit]
min_rows = 500
"""
MEMBERS = ("a.x", "b")


def rows(n: int, truth: tuple[float, float] = (1.5, 0.5), *, seed: int = 1, a_unit: int = 1) -> JoinedRows:
    """Two models with independent signs; the outcome goes by their log-odds, weighted by `truth`. `a_unit`: rows of
    one unit, which all are the same."""
    random = np.random.default_rng(seed)
    units = n // a_unit
    log_odds = random.normal(size=(units, 2))
    label = random.random(units) < expit(log_odds @ np.array(truth))
    unit = fingerprints(str(i) for i in range(units))
    return JoinedRows(
        np.repeat(expit(log_odds), a_unit, axis=0), np.repeat(label, a_unit).astype(np.int8), np.repeat(unit, a_unit)
    )


def test_weights_are_those_of_all_complete_rows() -> None:
    joined = rows(4_000)
    joined.probability[::7, 0] = np.nan
    found = fit(joined, MEMBERS, min_rows=10, min_positives=10)
    complete = ~np.isnan(joined.probability).any(axis=1)
    assert found.weights == fit_fusion(joined.probability[complete], joined.label[complete])
    assert (found.rows, found.incomplete) == (complete.sum(), (~complete).sum())
    assert found.positives == joined.label[complete].sum()
    for weight, expected, error in zip(found.weights.weights, (0.75, 0.25), found.weights.standard_errors, strict=True):
        assert error is not None
        assert abs(weight - expected) < 4 * error


def test_figures_are_of_rows_that_the_weights_were_not_fitted_to() -> None:
    joined = rows(4_000)
    found = {c.name: c for c in fit(joined, MEMBERS, min_rows=10, min_positives=10).candidates}
    assert list(found) == [*MEMBERS, EQUAL, FITTED]
    half = unit_buckets(joined.unit) % 2 == 0
    expected = np.empty(4_000)
    for judged in (half, ~half):
        expected[judged] = fuse(
            joined.probability[judged], fit_fusion(joined.probability[~judged], joined.label[~judged])
        )
    assert found[FITTED].log_loss == pytest.approx(log_loss(joined.label, expected), rel=1e-12)
    equal = fuse(joined.probability, FusionWeights.equal(2))
    assert found[EQUAL].log_loss == pytest.approx(log_loss(joined.label, equal), rel=1e-12)
    assert found["b"].log_loss == pytest.approx(log_loss(joined.label, joined.probability[:, 1]), rel=1e-12)
    # The true law of the outcome is the best that any of them can be.
    best = log_loss(joined.label, expit(logit(joined.probability) @ np.array([1.5, 0.5])))
    assert best < found[FITTED].calibrated_log_loss < best + 0.003
    for candidate in found.values():
        assert candidate.behind == pytest.approx(candidate.calibrated_log_loss - found[FITTED].calibrated_log_loss)
    assert min(found[name].behind - 4 * found[name].standard_error for name in (*MEMBERS, EQUAL)) > 0
    assert found[FITTED].standard_error == 0


def test_fitted_weights_gain_nothing_where_models_are_equally_good() -> None:
    """The gain of equal weights is noise: |z| > 4 once in 16,000 times."""
    for seed in range(5):
        found = {
            c.name: c for c in fit(rows(4_000, (1.0, 1.0), seed=seed), MEMBERS, min_rows=1, min_positives=1).candidates
        }
        assert abs(found[EQUAL].behind) < 4 * found[EQUAL].standard_error


def test_rows_of_a_unit_count_as_one() -> None:
    """Each row four times says nothing new: figures and their standard errors stay, but for the ridge of the weights,
    which counts for less then. (As rows they would halve the standard errors.)"""
    once = fit(rows(4_000), MEMBERS, min_rows=10, min_positives=10).candidates
    four_times = fit(rows(16_000, a_unit=4), MEMBERS, min_rows=10, min_positives=10).candidates
    for a, b in zip(once, four_times, strict=True):
        assert a.standard_error == pytest.approx(b.standard_error, rel=0.1)
        assert a.calibrated_log_loss == pytest.approx(b.calibrated_log_loss, rel=1e-3)


def test_too_few_rows_or_outcomes_are_refused() -> None:
    joined = rows(100)
    joined.probability[:40, 1] = np.nan
    with pytest.raises(TooFewRowsError, match=r"60 labelled rows .* each of a.x, b \(40 more lack one\).*= 61"):
        fit(joined, MEMBERS, min_rows=61, min_positives=1)
    with pytest.raises(TooFewPositivesError, match=r"of \d+ rows of one half .* refit.min_positives = 90"):
        fit(rows(100), MEMBERS, min_rows=1, min_positives=90)
    nobody = JoinedRows(joined.probability, np.ones(100, dtype=np.int8), joined.unit)
    with pytest.raises(TooFewPositivesError):
        fit(nobody, MEMBERS, min_rows=1, min_positives=1)


# --- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The configuration, outputs and labels."""
    joined = rows(2_000)

    def member(probability: float) -> dict[str, object]:
        return {"raw": 0.5, "calibrated": probability, "snapshot": "s", "status": "calibrated"}

    outputs = [
        {"event_id": str(i), "stream_calib": {"a.x": member(a), "b": member(b)}}
        for i, (a, b) in enumerate(joined.probability.tolist())
    ]
    labels = [{"event_id": i, "label": label} for i, label in enumerate(joined.label.tolist())]
    (tmp_path / "calibrated.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, outputs)).encode()))
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    (tmp_path / "config.toml").write_text(CONFIG)
    names = {"config": "config.toml", "calibrated": "calibrated.jsonl.gz", "labels": "labels.jsonl"}
    return {option: str(tmp_path / name) for option, name in names.items()}


def run(*arguments: str, **options: str) -> tuple[int, str]:
    given = [text for name, value in options.items() for text in (f"--{name}", value)]
    result = CliRunner().invoke(app, ["fusion", "fit", *arguments, *given])
    return result.exit_code, result.stdout + result.stderr


def test_the_command_prints_weights_figures_and_lines_for_the_configuration(files: dict[str, str]) -> None:
    code, printed = run(**files)
    assert code == 0, printed
    assert "2,000 outputs, 2,000 labels; 2,000 rows with both" in " ".join(printed.split())
    lines = printed[printed.index("[fusion]") :].split("\n\n")[0]
    path = Path(files["config"])
    path.write_text(CONFIG + lines, encoding="utf-8")
    fused = load_config(path, {}).fused()
    assert fused is not None
    facts = json.loads(run("--json", **files)[1])
    assert fused.key == ("fused", "1")
    assert list(fused.weights.values()) == pytest.approx(facts["weights"]["weights"], rel=1e-3)
    # The next fit is for a version of its own, because it would be another score.
    assert 'name = "fused"\nversion = "2"\n' in facts["toml"]


@pytest.mark.parametrize(
    ("without", "arguments", "message"),
    [
        (("labels",), (), "--calibrated and --labels go together"),
        (("calibrated",), (), "--calibrated and --labels go together"),
        ((), ("--from", "2024-05-01"), "--from and --until are for topics"),
        (("calibrated", "labels"), (), "give the window with --from and --until"),
        (("calibrated", "labels"), ("--from", "2024-05-01"), "give the window with --from and --until"),
        (("calibrated", "labels"), ("--from", "12", "--until", "2024-05-01"), "--from 12 is not a time"),
        (
            ("calibrated", "labels"),
            ("--from", "2024-05-01", "--until", "2024-05-01"),
            "--from 2024-05-01 is not before --until 2024-05-01",
        ),
    ],
)
def test_a_window_that_is_none_is_refused(
    files: dict[str, str], without: tuple[str, ...], arguments: tuple[str, ...], message: str
) -> None:
    code, printed = run(*arguments, **{name: value for name, value in files.items() if name not in without})
    assert (code, message in " ".join(printed.split())) == (1, True), printed


def test_one_model_is_none_to_fuse(files: dict[str, str]) -> None:
    Path(files["config"]).write_text('[model]\nname = "m"\n[windows]\nhorizon = "1d"')
    code, printed = run(**files)
    assert (code, "a fusion needs two or more" in printed) == (1, True), printed
