"""The exact replay of a model key's own topics, and its comparison with the live state. Both only read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stream_calib.backtest.exact.cuts import KnownCuts
from stream_calib.backtest.exact.given_log import GivenReplay, LiveDecisions
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.exact.resume import resume
from stream_calib.backtest.exact.verify import Verification, verify
from stream_calib.backtest.exact.verify_cells import PaneCursors
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.topics.feed import TopicFeed
from stream_calib.config import Config
from stream_calib.config_identity import semantic_content
from stream_calib.errors import HistoryError, HistoryGapError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.topic_range import Bound
from stream_calib.transport.port import Log
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.input_partitions import InputPartitions
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.registration import INPUTS, SEMANTICS, check_generation, recorded_inputs
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_store import StateStore

OnProgress = Callable[[int, int], None]
"""Hears how much is done, and how much there is in all."""


class Replayed(NamedTuple):
    history: CellHistory
    state: MemoryState
    """Its cells and pane records; nothing is decided."""


def replay_topics(
    log: Log,
    config: Config,
    key: ModelKey,
    live: StateStore | None,
    *,
    since: Mapping[str, Sequence[Bound]] | None = None,
    until: Mapping[str, Sequence[Bound]] | None = None,
    allow_gaps: bool = False,
    on_progress: OnProgress = lambda done, total: None,
) -> Replayed:
    """The model key's topics, from where it began; with `since` or `until` (see feed_bounds) a range, which is cold.

    `live`: its state, where there is one: it knows where each input began, and which label partitions were left out.
    Raises HistoryError, HistoryGapError where parts are gone and that is not allowed, GenerationMismatchError where the
    state was made under another configuration, TransportError.
    """
    begin, cuts = None, KnownCuts(-1)
    if live is not None and not since and not until:
        begin = _inputs(live, config) or None
        cuts = KnownCuts.of_state(live)
    with TopicFeed(log, config, key, begin=begin, since=since, until=until, allow_gaps=allow_gaps) as feed:
        replay = ExactReplay(feed, config, key, _shards(config), cuts=cuts)
        history = replay.run(on_progress)
    return Replayed(history, replay.state)


def replay_kept(
    log: Log, config: Config, key: ModelKey, live: StateStore, on_progress: OnProgress = lambda done, total: None
) -> Replayed:
    """What the topics still hold, where their beginning is gone: from the earliest pane record of the live state on
    that allows it. The cells are those of the live run, and the history is cold. Raises as `replay_topics`."""
    _inputs(live, config)
    resumed = resume(live, InputPartitions(log, config).starts, PaneSettings.of(config))
    with TopicFeed(log, config, key, begin=resumed.begin) as feed:
        replay = ExactReplay(feed, config, key, _shards(config), cuts=KnownCuts.of_state(live), state=resumed.state)
        history = replay.run(on_progress)
    return Replayed(history, replay.state)


def verify_live(
    log: Log,
    config: Config,
    key: ModelKey,
    live: StateStore,
    *,
    on_records: OnProgress = lambda done, total: None,
    on_panes: OnProgress = lambda done, total: None,
) -> Verification:
    """Replays the topics of the live run, decides them again beside its decision log, and compares. Where the beginning
    of the topics is gone, only the cells of what they still hold.

    Raises HistoryError where they hold nothing that has matured, and as `replay_topics`.
    """
    # Before the topics are read: what is counted and decided by then, they hold.
    at = PaneCursors.of_state(live)
    decisions: LiveDecisions | None = None
    left_out = []
    try:
        decisions = LiveDecisions.of_state(live)
    except HistoryError as error:
        left_out.append(f"decisions, snapshots and alerts: {error}")
    try:
        made = replay_topics(log, config, key, live, on_progress=on_records)
    except HistoryGapError as error:
        made = replay_kept(log, config, key, live, on_records)
        left_out = [f"decisions, snapshots and alerts: {error}"]
        decisions = None
    given: GivenReplay | None = None
    if decisions is not None:
        given = GivenReplay(made.history, config, decisions)
        given.run(on_panes)
    return verify(live, made.state, at=at, decisions=decisions, given=given, left_out=left_out)


def _inputs(live: StateStore, config: Config) -> dict[str, Mark]:
    """On record in a state of this configuration."""
    fields = live.read((INPUTS, "generation", SEMANTICS))
    check_generation(fields[SEMANTICS], fields["generation"], semantic_content(config))
    return recorded_inputs(live, int(fields[INPUTS] or 0))


def _shards(config: Config) -> ColumnShards:
    return ColumnShards(config.windows.shards, PaneSettings.of(config))
