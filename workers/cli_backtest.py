"""`stream-calib backtest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stream_calib.backtest.policies.run import WARM_UP_DAYS
from stream_calib.garbage_collection import collect_seldom
from workers.backtest_command import Asked, run_backtest, run_verify
from workers.backtest_outputs import Outputs
from workers.backtest_sources import SourceOptions
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, load, readable_errors
from workers.cli_models import ModelOption, VersionOption

_app = typer.Typer()

_EPILOG = (
    "Examples: stream-calib backtest --scores scores.parquet --labels labels.csv.gz --html report.html ;"
    " stream-calib backtest --scores 'scores-*.ndjson' --labels labels.parquet --save-cells year.cells ;"
    " stream-calib backtest --cells year.cells --policy strict.toml --grid refit.max_age=12h,1d,2d --html report.html ;"
    " stream-calib backtest --cells year.cells --inject 'shift group=carrier:UA size=.5 from=2013-06-01'"
)
_SOURCE, _TRIED, _OUTPUT = "What is replayed", "What is tried", "What comes out"
_WARM_UP_DAYS = 14
"""As in backtest/policies/run.py, which takes a second to import: other commands do not wait for it."""


app = typer.Typer()


@app.command(epilog=_EPILOG)
@app.command(epilog=_EPILOG)
def backtest(
    scores: Annotated[
        list[str] | None,
        typer.Option(
            "--scores",
            metavar="FILE",
            help="Files of scores, or patterns of their names: Parquet, CSV, NDJSON, also packed. Repeatable.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", metavar="FILE", help="Files of labels, likewise.", rich_help_panel=_SOURCE),
    ] = None,
    as_written: Annotated[
        bool,
        typer.Option(
            "--as-written",
            help="Files: rows come in the order in which they stand, so that some are late; else by event time.",
            rich_help_panel=_SOURCE,
        ),
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="FILE",
            help="Files that have score and label in one row; counted inside DuckDB. Repeatable.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    label_time: Annotated[
        str | None,
        typer.Option(
            "--label-time",
            metavar="COLUMN",
            help="--table: when the label was known; else labels.time of the configuration; else at the horizon.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    engine: Annotated[
        bool,
        typer.Option(
            "--engine",
            help="--scores, --labels: rows become cells inside DuckDB, for very many of them; nothing is late then.",
            rich_help_panel=_SOURCE,
        ),
    ] = False,
    duckdb: Annotated[
        Path | None,
        typer.Option(
            "--duckdb",
            metavar="DATABASE",
            help="--scores, --labels and --table are tables or queries of this database; counted inside it.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    ibis: Annotated[
        str | None,
        typer.Option(
            "--ibis",
            metavar="ADDRESS",
            help="The same in another engine, by its address for ibis: bigquery://project/dataset.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    live_buckets: Annotated[
        bool,
        typer.Option(
            "--live-buckets",
            help="Counted inside DuckDB: units fall into the same buckets as live, which takes longer.",
            rich_help_panel=_SOURCE,
        ),
    ] = False,
    topics: Annotated[
        bool,
        typer.Option(
            "--topics", help="The topics of this configuration: what the monitor has read.", rich_help_panel=_SOURCE
        ),
    ] = False,
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="TIME|OFFSET",
            help="Topics: a time of the log's timestamps (2024-05-01T00:00Z), or an offset of a topic (labels:1200), or"
            " of a partition (blocks:3:1200). Repeatable.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--until",
            metavar="TIME|OFFSET",
            help="Topics: likewise; it is not replayed itself.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps",
            help="Topics: go on where retention or compaction has taken records; they are counted.",
            rich_help_panel=_SOURCE,
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Topics: only compare the replay with the live state, and name the first pane and cell that differ.",
            rich_help_panel=_SOURCE,
        ),
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="live|FILE",
            help="The cells of the live state, or of a file that `state export` wrote.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option("--cells", help="A history that --save-cells wrote.", rich_help_panel=_SOURCE),
    ] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="TOML in the shape of the configuration file, with what differs. Repeatable.",
            rich_help_panel=_TRIED,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=V,V",
            help="Every combination of values: refit.max_age=12h,1d,2d. Repeatable.",
            rich_help_panel=_TRIED,
        ),
    ] = None,
    inject: Annotated[
        list[str] | None,
        typer.Option(
            "--inject",
            metavar="FAULT",
            help="What if: 'shift group=carrier:UA size=.5 from=2013-06-01'; or traffic (factor=), outage, delay (by=),"
            " duplicate (share=); several in one history with a semicolon between. Repeatable: each is a what-if of its"
            " own.",
            rich_help_panel=_TRIED,
        ),
    ] = None,
    warm_up_days: Annotated[
        int,
        typer.Option("--warm-up-days", min=0, help="First days that count in no figure.", rich_help_panel=_TRIED),
    ] = WARM_UP_DAYS,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the drawing of days for intervals.", rich_help_panel=_TRIED)
    ] = 0,
    html: Annotated[Path | None, typer.Option("--html", help="The report.", rich_help_panel=_OUTPUT)] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="The whole result, for programs.", rich_help_panel=_OUTPUT)
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", help="Folder for its tables as Parquet files.", rich_help_panel=_OUTPUT),
    ] = None,
    save_cells: Annotated[
        Path | None,
        typer.Option("--save-cells", help="Keep the history here, so that it is made once.", rich_help_panel=_OUTPUT),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="At most so many at once; default: the processors.")
    ] = None,
    resume_folder: Annotated[
        Path | None,
        typer.Option(
            "--resume-folder",
            help="Where outcomes are kept until all are there; default: a hidden folder beside the output.",
        ),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Replay history, and say what this configuration and others would have done, and which is better.

    Nothing is written but the outputs, and nothing is connected to but with --topics or --state live, which only read.
    Ctrl-C stops it; the same command goes on from there.

    Code 0: done; 1: an error, or a policy failed, or it was stopped; 3: --verify found differences.
    """
    with readable_errors():
        asked = Asked(
            config_file=config,
            source=SourceOptions(
                model=model,
                version=version,
                cells=cells,
                state=state,
                topics=topics,
                since=since or (),
                until=until or (),
                allow_gaps=allow_gaps,
                scores=scores or (),
                labels=labels or (),
                as_written=as_written,
                table=table or (),
                label_time=label_time,
                engine=engine,
                duckdb=duckdb,
                ibis=ibis,
                live_buckets=live_buckets,
            ),
            policies=policy or (),
            grid=grid or (),
            inject=inject or (),
            outputs=Outputs(html, json_file, parquet),
            save_cells=save_cells,
            processes=processes,
            resume_folder=resume_folder,
            warm_up_days=warm_up_days,
            seed=seed,
        )
        collect_seldom()
        code = run_verify(load(config), asked) if verify else run_backtest(load(config), asked)
    if code:
        raise typer.Exit(code)
