"""`stream-calib fusion`: weights for `[fusion]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError
from stream_calib.events.event_times import iso8601_ms
from stream_calib.events.topic_range import Bound
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.deployment import open_log
from workers.fusion_rows import ServedRows, join, read_outcomes, read_served
from workers.replay_source import FileSource, Source, TopicSource
from workers.replay_times import EventTimes

app = typer.Typer(no_args_is_help=True, help="One score out of those of several models.")

_NEW_NAME = "fused"


@app.callback()
def _group() -> None:
    """Keeps `fit` a command of the group, as long as it is the only one."""


@app.command(
    epilog="Examples: stream-calib fusion fit --from 2024-05-01T00:00Z --until 2024-06-01T00:00Z ; stream-calib fusion"
    " fit --calibrated calibrated.jsonl.gz --labels labels.jsonl.gz"
)
def fit(
    config: ConfigOption = DEFAULT_CONFIG,
    since: Annotated[
        str | None,
        typer.Option("--from", help="What calibrate wrote from then on, by the log's timestamps (2024-05-01T00:00Z)."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="And before then. Labels are read up to now.")] = None,
    calibrated: Annotated[
        list[Path] | None,
        typer.Option("--calibrated", help="In place of the topic: outputs as JSON lines; .gz is unpacked; repeatable."),
    ] = None,
    labels: Annotated[
        list[Path] | None, typer.Option("--labels", help="In place of the topic: labels as JSON lines; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit the weights of a fusion to what calibrate served and how it turned out; nothing is changed.

    Logistic regression of the outcome on the models' calibrated log-odds, with weights of 0 or more. Prints the
    weights with their standard errors, the held-out log-loss of each model, of equal and of fitted weights, and the
    lines for the configuration. Only rows count on which each model was served by a snapshot of its own.
    """
    with readable_errors():
        loaded = load(config)
        members = _members(loaded)
        with ExitStack() as stack:
            outputs, outcomes = _sources(stack, loaded, since, until, calibrated or [], labels or [])
            served = read_served(outputs.items(), loaded, members)
            fused = loaded.fusion.name or _NEW_NAME
            joined = join(served, outcome := read_outcomes(outcomes.items(), loaded, fused))
        # scikit-learn takes most of a second to import, and only this command of the command line needs it.
        from workers.fusion_fit import fit as fit_weights

        refit = loaded.refit
        found = fit_weights(joined, members, min_rows=refit.min_rows, min_positives=refit.min_positives)
    facts: dict[str, Any] = {
        **found._asdict(),
        "weights": asdict(found.weights),
        "candidates": [candidate._asdict() for candidate in found.candidates],
        "outputs": len(served.fingerprint),
        "outputs_unused": served.unused,
        "labels": len(outcome.label),
        "labels_rejected": outcome.rejected,
        "snapshots": {name: sorted(of) for name, of in zip(members, served.snapshots, strict=True)},
        "toml": _toml(loaded, members, found.weights.weights),
    }
    if as_json:
        print_json(facts)
    else:
        _print(facts, loaded, served)


def _members(config: Config) -> list[str]:
    fused = config.fused()
    members = list(fused.weights) if fused is not None else [model.name for model in config.models]
    if len(members) < 2:
        raise ConfigurationError(f"{len(members)} [[models]] to fuse; a fusion needs two or more in one record")
    return members


def _sources(
    stack: ExitStack,
    config: Config,
    since: str | None,
    until: str | None,
    calibrated: Sequence[Path],
    labels: Sequence[Path],
) -> tuple[Source, Source]:
    """Outputs, and labels."""
    topics = config.topics
    unread, times = EventTimes(config, topics.calibrated), EventTimes(config, topics.labels)
    if calibrated or labels:
        if not (calibrated and labels):
            raise ConfigurationError("--calibrated and --labels go together: both from files, or both from the topics")
        if since is not None or until is not None:
            raise ConfigurationError("--from and --until are for topics; of files, all lines are read")
        return (
            FileSource(calibrated, topics.calibrated, unread, kcat=False, skip_lines=0),
            FileSource(labels, topics.labels, times, kcat=False, skip_lines=0),
        )
    if since is None or until is None:
        raise ConfigurationError("give the window with --from and --until, or files with --calibrated and --labels")
    begins, ends = _time("--from", since), _time("--until", until)
    if (begins.time_ms or 0) >= (ends.time_ms or 0):
        raise ConfigurationError(f"--from {since} is not before --until {until}")
    log = stack.enter_context(open_log(config))
    return (
        TopicSource(log, topics.calibrated, topics.calibrated, unread, since=[begins], until=[ends], partitions=[]),
        TopicSource(log, topics.labels, topics.labels, times, since=[begins], until=[], partitions=[]),
    )


def _time(option: str, text: str) -> Bound:
    time_ms = iso8601_ms(text)
    if time_ms is None:
        raise ConfigurationError(f"{option} {text} is not a time; write it as 2024-05-01T00:00Z")
    return Bound(text, time_ms=time_ms)


def _toml(config: Config, members: Sequence[str], weights: Sequence[float]) -> str:
    """The section with these weights: of a fusion that there is, with a version of its own."""
    written = ", ".join(f"{_key(name)} = {weight:.4g}" for name, weight in zip(members, weights, strict=True))
    version = f'version = "{_next(config.fusion.version)}"\n' if config.fusion.version is not None else ""
    return f'[fusion]\nname = "{config.fusion.name or _NEW_NAME}"\n{version}members = {{ {written} }}\n'


def _key(name: str) -> str:
    """As a key of TOML: a dot would make a table of it."""
    return json.dumps(name) if "." in name else name


def _next(version: str) -> str:
    return str(int(version) + 1) if version.isascii() and version.isdigit() else f"{version}-refitted"[:64]


def _print(facts: dict[str, Any], config: Config, served: ServedRows) -> None:
    console.print(
        f"{facts['outputs']:,} outputs, {facts['labels']:,} labels; {facts['rows']:,} rows with both and every model"
        f" calibrated, {facts['positives']:,} positive; {facts['incomplete']:,} labelled rows lack a model"
    )
    weights = Table("model", box=SIMPLE_HEAD, title="Weights", title_justify="left")
    for column in ("weight", "standard error", "snapshots"):
        weights.add_column(column, justify="right")
    fitted = facts["weights"]
    rows = zip(facts["members"], fitted["weights"], fitted["standard_errors"], served.snapshots, strict=True)
    for name, weight, error, snapshots in rows:
        weights.add_row(name, f"{weight:.3f}", "held at 0" if error is None else f"{error:.3f}", str(len(snapshots)))
    losses = Table("score", box=SIMPLE_HEAD, title="Log-loss on the half not fitted to", title_justify="left")
    for column in ("as it is", "calibrated", "more than fitted weights"):
        losses.add_column(column, justify="right")
    for name, plain, calibrated, behind, error in (c.values() for c in facts["candidates"]):
        last = f"{behind:+.5f} +- {error:.5f}" if error else ""
        losses.add_row(name, f"{plain:.5f}", f"{calibrated:.5f}", last)
    console.print(weights, losses, sep="\n")
    console.print("For the configuration:", facts["toml"], sep="\n")
    console.print(
        "Where the last column is within two standard errors of 0, take the simpler score. The weights mean something"
        " only where no snapshot was fitted to these events: so it is with what calibrate served live, by snapshots of"
        " the time before. Events that were replayed through later snapshots, or through a rollback, are not"
        " independent of them."
    )
    if config.scores.unit is not None and config.serving.output == "compact":
        console.print(
            f"Compact outputs do not tell the unit ({config.scores.unit}): events counted as independent, and the"
            " standard errors are too small where units repeat."
        )
