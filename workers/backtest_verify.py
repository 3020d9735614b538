"""The exact replay of a model key's own topics, and its comparison with the live state. Both only read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stream_calib.backtest.exact import ExactReplay
from stream_calib.backtest.exact_cuts import KnownCuts
from stream_calib.backtest.given_log import GivenReplay, LiveDecisions
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.topic_feed import TopicFeed
from stream_calib.backtest.verify import Verification, verify
from stream_calib.backtest.verify_cells import PaneCursors
from stream_calib.config import Config
from stream_calib.config_identity import semantic_content
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.topic_range import Bound
from stream_calib.transport.port import Log
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.panes import PaneSettings
from stream_calib.windows.registration import INPUTS, SEMANTICS, check_generation, recorded_inputs
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
    Raises HistoryError, GenerationMismatchError where the state was made under another configuration, TransportError.
    """
    begin, cuts = None, KnownCuts(-1)
    if live is not None and not since and not until:
        fields = live.read((INPUTS, "generation", SEMANTICS))
        check_generation(fields[SEMANTICS], fields["generation"], semantic_content(config))
        begin = recorded_inputs(live, int(fields[INPUTS] or 0)) or None
        cuts = KnownCuts.of_state(live)
    shards = ColumnShards(config.windows.shards, PaneSettings.of(config))
    feed = TopicFeed(log, config, key, begin=begin, since=since, until=until, allow_gaps=allow_gaps)
    with feed:
        replay = ExactReplay(feed, config, key, shards, cuts=cuts)
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
    """Replays the topics of the live run, decides them again beside its decision log, and compares.

    Raises HistoryError where the topics do not hold all that was counted, and as `replay_topics`.
    """
    # Before the topics are read: what is counted and decided by then, they hold.
    at = PaneCursors.of_state(live)
    decisions: LiveDecisions | None = None
    left_out = []
    try:
        decisions = LiveDecisions.of_state(live)
    except HistoryError as error:
        left_out.append(f"decisions: {error}")
    made = replay_topics(log, config, key, live, on_progress=on_records)
    given: GivenReplay | None = None
    if decisions is not None:
        given = GivenReplay(made.history, config, decisions)
        given.run(on_panes)
    return verify(live, made.state, at=at, decisions=decisions, given=given, left_out=left_out)
