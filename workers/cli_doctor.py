"""`stream-calib doctor`."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, print_json
from workers.doctor import Doctor
from workers.findings import Finding, failed, finding_line
from workers.role import wall_clock_ms

app = typer.Typer()


@app.command(epilog="Examples: stream-calib doctor --config prod.toml ; stream-calib doctor --rate 1200 --json")
def doctor(
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0, help="Events a second to reckon the memory with; measured where not given."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Look at everything that can be wrong, and say what to do about it: configuration, log, topics, transactions,
    sizes, retention, Redis, clocks, stored state, processes, lag, memory. Code 1 where something fails.

    Changes nothing and writes to no topic.
    """
    # What the parts would warn of is among the findings.
    logging.disable(logging.WARNING)
    findings: list[Finding] = []
    for finding in Doctor(config, rate, wall_clock_ms).findings():
        findings.append(finding)
        if not as_json:
            console.print(finding_line(finding), soft_wrap=True)
    if as_json:
        print_json([finding.plain() for finding in findings])
    else:
        count = {level: sum(f.level == level for f in findings) for level in ("ok", "warn", "fail")}
        console.print(f"{count['ok']} ok, {count['warn']} to look at, {count['fail']} to mend")
    if failed(findings):
        raise typer.Exit(1)
