"""`stream-calib topics`: create and check the topics of a deployment."""

from __future__ import annotations

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.deployment import open_log
from workers.findings import Finding, failed, findings_table
from workers.topic_setup import TopicResult, create_topics, topic_findings

app = typer.Typer(no_args_is_help=True, help="Create and check the topics.")


@app.command(epilog="Example: stream-calib topics create --config prod.toml")
def create(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Create the topics that are missing, with partitions, retention and size limits that fit the configuration.

    Topics that are there stay as they are; what of them does not fit is listed, and what cannot work ends with code 1.
    Needs the right to create topics, which the roles themselves do not need.
    """
    with readable_errors():
        loaded = load(config)
        with open_log(loaded) as log:
            results = create_topics(log, loaded)
            findings = [finding for finding in topic_findings(log, loaded) if finding.level != "ok"]
    if as_json:
        print_json({"topics": [_plain(result) for result in results], "findings": [f.plain() for f in findings]})
    else:
        console.print(_results_table(results))
        _warn_of_defaults(results)
        if findings:
            console.print(findings_table(findings))
    _end(findings)


@app.command(epilog="Example: stream-calib topics check --json")
def check(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Say of each topic whether it is there and fits; code 1 where one cannot work. Changes nothing."""
    with readable_errors():
        loaded = load(config)
        with open_log(loaded) as log:
            findings = topic_findings(log, loaded)
    if as_json:
        print_json([finding.plain() for finding in findings])
    else:
        console.print(findings_table(findings))
    _end(findings)


def _end(findings: list[Finding]) -> None:
    if failed(findings):
        raise typer.Exit(1)


def _plain(result: TopicResult) -> dict[str, object]:
    planned = result.planned
    return {
        "topic": planned.topic,
        "purpose": planned.purpose,
        "created": result.created,
        "partitions": result.partitions,
        "settings": planned.settings if result.created else {},
    }


def _results_table(results: list[TopicResult]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("topic", "for", "", "partitions", "settings"):
        table.add_column(column)
    for result in results:
        planned = result.planned
        settings = ", ".join(f"{name}={value}" for name, value in planned.settings.items()) if result.created else ""
        what = "created" if result.created else "was there"
        table.add_row(planned.topic, planned.purpose.replace("_", " "), what, str(result.partitions), settings)
    return table


def _warn_of_defaults(results: list[TopicResult]) -> None:
    """Scores and labels are others' data: how long they are kept is not ours to say."""
    defaults = [result.planned.topic for result in results if result.created and not result.planned.settings]
    if defaults:
        console.print(
            f"note: {' and '.join(defaults)} got the broker's default retention; set what your producers need, and for"
            " labels at least what `stream-calib topics check` asks for"
        )
