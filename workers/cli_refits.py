"""`stream-calib snapshot report`: everything that is kept of one refit, published or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.fate import fate
from stream_calib.snapshot.report import RefitReport
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, console, load, readable_errors
from workers.cli_models import ModelOption, VersionOption, open_selected
from workers.refit_page import refit_page
from workers.refit_tables import report_tables

app = typer.Typer()


@app.command(epilog="Examples: stream-calib snapshot report ; ... report 000012-89abcdef0123 --html report.html")
def report(
    wanted: Annotated[
        str | None,
        typer.Argument(
            metavar="REQUEST_ID|VERSION", help="A request, or the version that came of it; the latest by default."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page that holds everything to this file.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report as it is kept to this file.")
    ] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """What one refit was asked for, made of and judged by: data of each role, gate, reliability, groups, what changes
    for whom, decisions, certificate; refused and failed ones too."""
    with readable_errors():
        loaded = load(config)
        state = open_selected(loaded, model, version)
        found = chosen_report(state.snapshots.reports(), wanted, state.model_key)
        became = None if found.version is None else fate(state.snapshots.log(), found.version)
        if json_file is not None:
            _write(json_file, found.encode() + b"\n")
        if html is not None:
            _write(html, refit_page(found, state.model_key, loaded.windows.pane_ms, became).encode())
    if html is None and json_file is None:
        console.print(*report_tables(found, loaded.windows.pane_ms, became), sep="\n")


def chosen_report(reports: Sequence[RefitReport], wanted: str | None, key: ModelKey) -> RefitReport:
    """The newest one of the request or version; the newest of all where none is named. Raises ConfigurationError where
    there is none."""
    for report in reversed(reports):
        if wanted in (None, report.request_id, report.version):
            return report
    if not reports:
        raise ConfigurationError(f"no refit of {key} has ended yet; `stream-calib status` says what it waits for")
    raise ConfigurationError(
        f"{wanted} is neither a request nor a version among the {len(reports)} kept reports of {key}; those of"
        " `snapshot refits --json` are there"
    )


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    console.print(f"written: {path}", soft_wrap=True)
