"""Where a backtest's history comes from: files, topics, a warehouse, a state, or cells that were made before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from stream_calib.backtest.dumped_state import keys_of_dump, state_of_dump
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.history_file import load_history
from stream_calib.backtest.topics.feed import feed_bounds
from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.errors import BacktestError, HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.panes import PaneSettings
from workers.backtest_places import files_named
from workers.backtest_progress import Steps
from workers.backtest_verify import replay_topics
from workers.cli_models import known_keys, selected_key
from workers.deployment import connect_state, open_log, state_of

LIVE = "live"
"""In place of a file: the state that the configuration names."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What was asked for on the command line; one source."""

    model: str | None = None
    version: str | None = None
    cells: Path | None = None
    state: str | None = None
    """LIVE, or a file of `state export`."""
    topics: bool = False
    since: Sequence[str] = ()
    until: Sequence[str] = ()
    allow_gaps: bool = False
    scores: Sequence[str] = ()
    """Files; tables or queries where `duckdb` or `ibis` is given. Likewise `labels` and `table`."""
    labels: Sequence[str] = ()
    as_written: bool = False
    table: Sequence[str] = ()
    """Scores and labels in one."""
    label_time: str | None = None
    """Column of the label's time in `table`; None: that of labels.time, or at the horizon."""
    engine: bool = False
    """Whether rows of files are counted inside DuckDB."""
    duckdb: Path | None = None
    """A database that is only read."""
    ibis: str | None = None
    """Address of another engine, as `ibis.connect` takes it."""
    live_buckets: bool = False
    """Whether an engine is given the unit buckets of live."""

    @property
    def in_engine(self) -> bool:
        """Whether rows become cells inside an engine."""
        return self.engine or self.duckdb is not None or self.ibis is not None or bool(self.table)

    def files(self) -> list[Path]:
        """Those that are read, as far as they are there."""
        files = [path for path in (self.cells, self.duckdb) if path is not None]
        if self.state is not None and self.state != LIVE:
            files.append(Path(self.state))
        if self.duckdb is None and self.ibis is None:
            files += files_named((*self.scores, *self.labels, *self.table))
        return files

    def check(self) -> None:
        """Raises BacktestError where there is not exactly one source, or an option is not of it."""
        given = {
            "--topics": self.topics,
            "--scores and --labels": bool(self.scores or self.labels),
            "--table": bool(self.table),
            "--state": self.state is not None,
            "--cells": self.cells is not None,
        }
        named = [option for option, there in given.items() if there]
        if len(named) != 1:
            what = f"{' and '.join(named)} are several sources" if named else "there is nothing to replay"
            raise BacktestError(f"{what}; give one of --scores with --labels, --table, --topics, --state, or --cells")
        if bool(self.scores) != bool(self.labels):
            missing = "--labels" if self.scores else "--scores"
            raise BacktestError(f"{missing} is missing: both the scores and their labels are needed")
        for option, there, needs in (
            ("--from", self.since, self.topics),
            ("--until", self.until, self.topics),
            ("--allow-gaps", self.allow_gaps, self.topics),
            ("--as-written", self.as_written, self.scores and not self.in_engine),
            ("--label-time", self.label_time, self.table),
            ("--engine", self.engine, self.scores or self.table),
            ("--duckdb", self.duckdb, self.scores or self.table),
            ("--ibis", self.ibis, (self.scores or self.table) and self.duckdb is None),
            ("--live-buckets", self.live_buckets, self.in_engine and self.ibis is None),
        ):
            if there and not needs:
                raise BacktestError(f"{option} says nothing of {named[0]}; leave it out")


def history_of(options: SourceOptions, config: Config, steps: Steps) -> CellHistory:
    """The history that the options name. Nothing is written anywhere, and only LIVE and topics connect to anything.

    Raises BacktestError, and StreamCalibError where a server does not answer.
    """
    options.check()
    if options.cells is not None:
        steps.begin(f"reading {options.cells}")
        return _checked(load_history(options.cells), options, config)
    if options.state is not None:
        steps.begin("reading the state")
        return _live(options, config) if options.state == LIVE else _dumped(Path(options.state), options, config)
    if options.topics:
        return _topics(options, config, steps)
    if options.in_engine:
        # Needs extras, which nobody needs who replays something else; so below.
        from workers.backtest_tables import history_of_tables

        steps.begin("counting rows")
        return history_of_tables(options, config, named_key(options, config))
    return _files(options, config, steps)


def _checked(history: CellHistory, options: SourceOptions, config: Config) -> CellHistory:
    """Cells that were made before are to be of this configuration."""
    selected_key([history.key], options.model, options.version)
    if history.generation != semantic_hash(config):
        raise HistoryError(
            f"{history.source}: its cells were counted under another configuration ({history.generation}, this one is"
            f" {semantic_hash(config)}): attributes, panes, horizon and lateness decide how events are counted; make"
            " the history again from events"
        )
    return history


def _live(options: SourceOptions, config: Config) -> CellHistory:
    with closing(connect_state(config)) as client:
        key = selected_key(known_keys(client, config), options.model, options.version)
        state = state_of(client, config, key)
        state.check()
        source = f"the live state of {key}"
        return CellHistory.of_state(state.store, key, state.generation, config.windows.pane_ms, source, {})


def _topics(options: SourceOptions, config: Config, steps: Steps) -> CellHistory:
    """The whole of it as the live state has begun it; a range needs no state."""
    tell = steps.begin("reading topics")
    since, until = feed_bounds(options.since, config), feed_bounds(options.until, config)
    with ExitStack() as stack:
        log = stack.enter_context(open_log(config))
        live = None
        if since or until:
            key = named_key(options, config)
        else:
            client = stack.enter_context(closing(connect_state(config)))
            key = selected_key(known_keys(client, config), options.model, options.version)
            live = state_of(client, config, key).store
        made = replay_topics(
            log,
            config,
            key,
            live,
            since=since,
            until=until,
            allow_gaps=options.allow_gaps,
            on_progress=lambda done, of: tell(done, of, f"{done:,} records"),
        )
        return made.history


def _dumped(path: Path, options: SourceOptions, config: Config) -> CellHistory:
    key = selected_key(keys_of_dump(path), options.model, options.version)
    state, generation = state_of_dump(path, key)
    history = CellHistory.of_state(state, key, generation, config.windows.pane_ms, f"state export {path}", {})
    return _checked(history, options, config)


def _files(options: SourceOptions, config: Config, steps: Steps) -> CellHistory:
    from stream_calib.backtest.files.feed import FileFeed

    key = named_key(options, config)
    tell = steps.begin("reading files")
    scores, labels = ([Path(name) for name in names] for names in (options.scores, options.labels))

    def on_read(done: int, of: int) -> None:
        tell(done, of, f"{done:,} records")

    with FileFeed(scores, labels, config, key, as_written=options.as_written, on_read=on_read) as feed:
        shards = ColumnShards(config.windows.shards, PaneSettings.of(config))
        history = ExactReplay(feed, config, key, shards).run(on_read)
        for warning in feed.warnings():
            steps.warn(warning)
        return history


def named_key(options: SourceOptions, config: Config) -> ModelKey:
    """The configured one that fits, or the one that is named where records say which model they are of."""
    if options.model is not None and options.version is not None:
        return ModelKey.of(options.model, options.version)
    return selected_key(list(configured_keys(config)), options.model, options.version)
