"""Alerts of one model key that no pane decides: nobody scores it, what it is served by is too old.

Both go by event time, as the clocks of the inputs tell it. Only where `serving.clock_records` is `wall`: in history
silence and age say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from stream_calib.alerts.conditions import ConditionAlert, Seen, Steadiness, level_of, switched_off
from stream_calib.alerts.standing import StandingAlert
from stream_calib.config import Config
from stream_calib.errors import SnapshotError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.decision_log import DecisionLog, Expired, Settled
from stream_calib.snapshot.model import LevelSnapshot
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.panes import ENDED_CLOCK_MS
from stream_calib.windows.state_store import StateStore
from workers.time_text import age, utc_minute

_EVERY_MS = 10_000
_DAY_MS = 86_400_000
_CLOSES_AT = 0.5
"""Of the threshold at which it opens."""
_NEEDED = ("current", "first_pane")


class ModelConditions:
    """Looked at by the closer of the model key."""

    def __init__(
        self,
        key: ModelKey,
        generation: str,
        state: StateStore,
        snapshots: SnapshotStore,
        config: Config,
        scored_later: Callable[[int], ModelKey | None],
    ) -> None:
        """`scored_later`: another version of the model that was scored in that pane or a later one, where there is one
        that this key gives way to."""
        self._key, self._state, self._snapshots, self._scored_later = key, state, snapshots, scored_later
        conditions, self._pane_ms = config.alerts.conditions, config.windows.pane_ms
        self._horizon_ms = -(-config.windows.horizon_ms // self._pane_ms) * self._pane_ms
        self._ended_ms = ENDED_CLOCK_MS - config.windows.score_lateness_ms
        is_live = config.serving.clock_records == "wall"
        self._most_silent_ms = conditions.no_scores_ms if is_live else None
        self._oldest_ms = conditions.snapshot_age_ms if is_live else None
        self._silence = ConditionAlert(
            "no_scores",
            StandingAlert(key, "no_scores", self._pane_ms, generation=generation),
            Steadiness(open_ms=60_000, close_ms=30_000, update_ms=0),
        )
        self._age = ConditionAlert(
            "snapshot_too_old",
            StandingAlert(key, "snapshot_too_old", self._pane_ms, generation=generation),
            Steadiness(open_ms=60_000, close_ms=60_000, update_ms=3_600_000),
        )
        self._fitted: tuple[str, int] = ("", 0)
        """The version that was looked at last, and the event time up to which its structure was fitted."""
        self._looked_at_ms = 0

    def look(self, now_ms: int, score_watermark_ms: int | None, last_scored_pane: int | None) -> None:
        """Opens, updates or closes the alerts where it is time to. `now_ms`: wall time; `last_scored_pane`: the last
        pane with a score. Raises StateUnavailableError."""
        if 0 <= now_ms - self._looked_at_ms < _EVERY_MS:
            return
        self._looked_at_ms = now_ms
        if score_watermark_ms is None or last_scored_pane is None or score_watermark_ms >= self._ended_ms:
            return
        found = self._state.read((*_NEEDED, self._silence.field, self._age.field))
        silent_ms = score_watermark_ms - (last_scored_pane + 1) * self._pane_ms
        if self._most_silent_ms is None:
            seen = switched_off("no_scores", now_ms)
        else:
            seen = self._silence_seen(silent_ms, self._most_silent_ms, last_scored_pane)
        self._silence.look(self._state, {self._silence.field: found[self._silence.field]}, seen, now_ms)
        if self._oldest_ms is None:
            seen = switched_off("snapshot_age", now_ms)
        elif found["first_pane"] is None or (fitted_ms := self._fitted_until_ms(found)) is None:
            return
        else:
            seen = self._age_seen(fitted_ms, silent_ms, self._oldest_ms, last_scored_pane, found["current"] or None)
        self._age.look(self._state, {self._age.field: found[self._age.field]}, seen, now_ms)

    # --- silence

    def _silence_seen(self, silent_ms: int, most_ms: int, last_scored_pane: int) -> Seen:
        level = level_of(silent_ms, most_ms, most_ms * _CLOSES_AT)
        since_ms = (last_scored_pane + 1) * self._pane_ms
        evidence = {"silent_ms": max(0, silent_ms), "limit_ms": most_ms}
        if level == "fine":
            return Seen(level, since_ms, f"{self._key.model} is scored again", evidence)
        # Asked only now: a version that another one has taken the place of is silent for good.
        if (other := self._scored_later(last_scored_pane)) is not None:
            return Seen("fine", since_ms, f"{other} is scored in its place", evidence)
        text = (
            f"no scores of {self._key.model} since {utc_minute(since_ms)} UTC, for {age(silent_ms)}: look at what"
            " produces them. A model that is not used any more is taken out with `stream-calib models retire`; where"
            " silence is usual, raise alerts.conditions.no_scores"
        )
        return Seen(level, since_ms, text, evidence)

    # --- age

    def _fitted_until_ms(self, found: Mapping[str, str | None]) -> int | None:
        """Event time up to which the structure that is served was fitted; without one, where the key begins. None: not
        known."""
        version = found["current"] or ""
        if not version:
            return int(found["first_pane"] or 0) * self._pane_ms
        if version != self._fitted[0]:
            try:
                document = self._snapshots.document(version)
                if isinstance(document, LevelSnapshot):
                    document = self._snapshots.document(document.structure)
            except SnapshotError:
                return None  # who serves it says that it is damaged; how old it is cannot be known
            self._fitted = version, (document.last_pane + 1) * self._pane_ms
        return self._fitted[1]

    def _age_seen(
        self, fitted_ms: int, silent_ms: int, oldest_ms: int, last_scored_pane: int, version: str | None
    ) -> Seen:
        """As of the newest traffic: what nobody scores does not grow old."""
        traffic_ms = (last_scored_pane + 1) * self._pane_ms
        age_ms = traffic_ms - self._horizon_ms - fitted_ms
        level = level_of(age_ms, oldest_ms, oldest_ms * _CLOSES_AT)
        since_ms = fitted_ms + self._horizon_ms + oldest_ms
        figures: dict[str, Any] = {"version": version, "fitted_until_ms": fitted_ms, "age_ms": age_ms}
        figures["limit_ms"] = oldest_ms
        if level == "fine":
            return Seen(level, since_ms, f"{version} is served, which is young enough", figures)
        if silent_ms > _DAY_MS:
            return Seen("fine", since_ms, "nothing is scored with it any more", figures)
        reason, news, outcomes = _why(self._snapshots.log())
        what = (
            f"{version} was fitted on data up to {utc_minute(fitted_ms)} UTC"
            if version
            else f"there is no snapshot yet, since {utc_minute(fitted_ms)} UTC"
        )
        text = f"{what}, {age(age_ms)} before what could be used by now: {reason}"
        return Seen(level, since_ms, text, figures | outcomes, news)


def _why(log: DecisionLog) -> tuple[str, str, dict[str, int]]:
    """Why there is no newer snapshot: in words, in one, and the outcomes of requests since the last publication."""
    outcomes = Counter[str]()
    last = ""
    for entry in reversed(log.entries):
        outcome = entry.outcome if isinstance(entry, Settled) else "expired" if isinstance(entry, Expired) else None
        if outcome == "published":
            break
        if outcome is not None:
            outcomes[outcome] += 1
            if not last and isinstance(entry, Settled):
                last = entry.reason
    counts = dict(outcomes)
    if log.pin is not None:
        return f"{log.pin.actor} pinned it ({log.pin.reason}); see `stream-calib snapshot unpin`", "pinned", counts
    if log.open_request is not None:
        return "a refit was asked for and is not answered; is refit at work?", "unanswered", counts
    if not outcomes:
        return "no refit was asked for since; do labels come, and do panes mature?", "none", counts
    (commonest, _), *_ = outcomes.most_common()
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    return f"refits since then: {said}; the last: {last or commonest}", commonest, counts
