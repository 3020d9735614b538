"""How far the clocks of the shards let the cursors of a model key go.

Pure functions of what the shards say of themselves; a shard checks its own clocks again with every read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stream_calib.windows.clocks import least_of_all
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.shard_store import Progress


def first_pane(shards: Sequence[Progress], scores: Sequence[str], settings: PaneSettings) -> int | None:
    """A generation's first pane; None until every score input has had its first event on every shard."""
    firsts = [s.marks[i].first_clock_ms if i in s.marks else None for s in shards for i in scores]
    least = least_of_all(firsts)
    return None if least is None else settings.first_pane(least)


def watermark(
    shards: Sequence[Progress], inputs: Sequence[str], settings: PaneSettings, excluded: Collection[str] = ()
) -> int | None:
    """Epoch milliseconds: the least clock of the inputs of one side, but for the excluded ones, minus its lateness;
    None where one has no clock on some shard, or none is left."""
    least = least_of_all(
        [s.marks[i].clock_ms if i in s.marks else None for s in shards for i in inputs if i not in excluded]
    )
    return None if least is None else least - settings.lateness_ms(inputs[0][0])


def last_to_close(shards: Sequence[Progress], scores_ms: int, settings: PaneSettings) -> int:
    """The last pane that may be closed at this score watermark. Where every score input has ended: as far behind the
    last one with a score as deciding that one needs."""
    end = _end(shards, scores_ms, settings)
    last = _last_ended(scores_ms, settings)
    return last if end is None else min(last, end + settings.horizon_panes)


def last_to_mature(shards: Sequence[Progress], scores_ms: int, labels_ms: int, settings: PaneSettings) -> int:
    """The last pane that may be matured at these watermarks. Where every score input has ended: not behind the last
    one with a score."""
    end = _end(shards, scores_ms, settings)
    last = _last_ended(min(scores_ms, labels_ms) - settings.horizon_ms, settings)
    return last if end is None else min(last, end)


def _last_ended(time_ms: int, settings: PaneSettings) -> int:
    """The last pane whose end is not after the time."""
    return time_ms // settings.pane_ms - 1


def _end(shards: Sequence[Progress], scores_ms: int, settings: PaneSettings) -> int | None:
    """The last pane with a score, -1 without one; None as long as one of the score inputs has not ended."""
    if scores_ms < ENDED_CLOCK_MS - settings.score_lateness_ms:
        return None
    last = last_scored(shards)
    return -1 if last is None else last


def last_scored(shards: Sequence[Progress]) -> int | None:
    """The last pane with an accepted score, None where there is none."""
    return max((s.last_pane for s in shards if s.last_pane is not None), default=None)
