"""Alerts of what processes say of themselves in their statuses: that they are behind, reject much, found writes lost.

Every monitor reads the statuses of all processes and comes to about the same; the first one that sees a change writes
it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from stream_calib.alerts.conditions import AT_ONCE, ConditionAlert, Level, Seen, Steadiness, level_of, switched_off
from stream_calib.alerts.standing import StandingAlert
from stream_calib.config import Config
from stream_calib.config_values import duration_text
from stream_calib.windows.model_registry import deployment_scope
from workers.status_board import MemberStatus
from workers.time_text import age

_FRESH_MS = 15_000
"""A status that is older is of a process that has ended, or hangs."""
_NAMED = 20
_FEWEST_REJECTS = 20
"""Fewer in a window are no alert; it closes with half as many."""
_TOP_REASONS = 5
_MINUTE_MS = 60_000
_LOST_WRITES_STAY_MS = 10 * _MINUTE_MS
"""Without further ones."""
_LOST_WRITES_OPEN_MS = 5 * _MINUTE_MS
"""Older ones open nothing: the clock of another monitor, which has closed the alert, may be ahead."""


class LaggingRole:
    """Records have waited too long to be read by one role."""

    def __init__(self, role: str, config: Config, limit_ms: int | None) -> None:
        """`limit_ms`: None: off."""
        self._role, self._limit_ms = role, limit_ms
        scope = deployment_scope(config.log.group_prefix)
        alert = StandingAlert(scope, "lag", config.windows.pane_ms, subject=role)
        self.alert = ConditionAlert(f"lag:{role}", alert, Steadiness(_MINUTE_MS, _MINUTE_MS, 0))

    def seen(self, statuses: Sequence[MemberStatus], now_ms: int) -> Seen | None:
        """None where no process of the role says anything."""
        if (limit_ms := self._limit_ms) is None:
            return switched_off("lag", now_ms)
        told = [
            status.facts["waits"]
            for status in statuses
            if status.role == self._role and now_ms - status.time_ms <= _FRESH_MS and "waits" in status.facts
        ]
        if not told:
            return None
        waits: dict[str, tuple[int, int, int | None]] = {name: tuple(wait) for w in told for name, wait in w.items()}
        longest_ms = max((at_least for _, at_least, _ in waits.values()), default=0)
        is_known = all(at_most is not None for _, _, at_most in waits.values())
        level = level_of(longest_ms, limit_ms, limit_ms / 2)
        if level == "fine" and not is_known:
            level = "between"  # a process that has just begun cannot say for how long
        if level == "fine":
            return Seen(level, now_ms, f"{self._role} reads in time again", {"role": self._role})
        slow = {name: wait for name, wait in waits.items() if wait[1] >= limit_ms}
        worst = dict(sorted(slow.items(), key=lambda item: -item[1][1])[:_NAMED])
        behind = sum(records for records, _, _ in slow.values())
        text = (
            f"{self._role} is behind: up to {behind:,} records of {len(slow)} partitions ({', '.join(worst)}) wait, the"
            f" oldest for {age(longest_ms)}; start more processes of it, up to one a partition, and see what takes the"
            " time (stream_calib_batch_stage_seconds)"
        )
        evidence = {
            "role": self._role,
            "records": behind,
            "longest_ms": longest_ms,
            "limit_ms": limit_ms,
            "partitions": {name: {"records": wait[0], "waited_ms": wait[1]} for name, wait in worst.items()},
        }
        return Seen(level, now_ms - longest_ms, text, evidence)


class LostWrites:
    """A shard had lost writes, as after a failover of Redis: monitors read again, and say so."""

    def __init__(self, config: Config) -> None:
        scope = deployment_scope(config.log.group_prefix)
        alert = StandingAlert(scope, "redis_writes_lost", config.windows.pane_ms)
        self.alert = ConditionAlert("redis_writes_lost", alert, AT_ONCE)

    def seen(self, statuses: Sequence[MemberStatus], now_ms: int) -> Seen:
        """By the last time at which a process read something again."""
        rewound = Counter[str]()
        for status in statuses:
            for topic, time_ms in status.facts.get("rewound", {}).items():
                rewound[topic] = max(rewound[topic], time_ms)
        recent = {topic: time_ms for topic, time_ms in rewound.items() if now_ms - time_ms < _LOST_WRITES_STAY_MS}
        if not recent:
            return Seen("fine", now_ms, "no writes were lost since; what was lost of the counts has been read again")
        text = (
            f"shards had lost writes of {', '.join(sorted(recent))}, which are read again and counted once. What people"
            " did in the last seconds before (rollbacks, pins, requests) may be lost: see `stream-calib snapshot list`,"
            " and do it again if so. See that Redis has appendonly, and replicas that keep up"
        )
        level: Level = "bad" if now_ms - max(recent.values()) < _LOST_WRITES_OPEN_MS else "between"
        evidence = {"topics": {topic: {"read_again_ms": time_ms} for topic, time_ms in recent.items()}}
        return Seen(level, min(recent.values()), text, evidence)


class _Window(NamedTuple):
    """What came to a topic between two looks."""

    time_ms: int
    read: int
    rejected: Counter[str]


class RejectedShares:
    """Too large a share of a topic's records is rejected: one alert for each topic that is read."""

    def __init__(self, topics: Sequence[str], config: Config) -> None:
        conditions = config.alerts.conditions
        self._share, self._window_ms = conditions.rejected_share, conditions.rejected_window_ms
        self._dead_letters = config.topics.dead_letters
        self._of: dict[str, deque[_Window]] = {topic: deque() for topic in topics}
        self._read, self._rejected = Counter[str](), {topic: Counter[str]() for topic in topics}
        """Sums over the window, by topic."""
        self._counts: dict[tuple[str, str, str], tuple[int, Counter[str]]] = {}
        """(role, member, topic) -> records read and rejected, as the process said last."""
        self._began_ms: int | None = None
        scope = deployment_scope(config.log.group_prefix)
        self.alerts = {
            topic: ConditionAlert(
                f"rejected_rate:{topic}",
                StandingAlert(scope, "rejected_rate", config.windows.pane_ms, subject=topic),
                Steadiness(_MINUTE_MS, _MINUTE_MS, 10 * _MINUTE_MS),
            )
            for topic in topics
        }

    def note(self, statuses: Sequence[MemberStatus], now_ms: int) -> None:
        """Adds what came since the last time. Of a process that is new here nothing is known of when its counts came
        about: they begin to count from then on."""
        self._began_ms = now_ms if self._began_ms is None else self._began_ms
        before, self._counts = self._counts, {}
        read, rejected = Counter[str](), {topic: Counter[str]() for topic in self._of}
        for status in statuses:
            for topic, counts in status.facts.get("records", {}).items():
                if topic not in self._of:
                    continue
                key, now = (status.role, status.member, topic), (counts["read"], Counter[str](counts["rejected"]))
                self._counts[key] = now
                then = before.get(key, now)
                read[topic] += max(0, now[0] - then[0])
                rejected[topic] += now[1] - then[1]
        for topic, windows in self._of.items():
            windows.append(_Window(now_ms, read[topic], rejected[topic]))
            self._read[topic] += read[topic]
            self._rejected[topic].update(rejected[topic])
            while windows[0].time_ms <= now_ms - self._window_ms:
                gone = windows.popleft()
                self._read[topic] -= gone.read
                self._rejected[topic] -= gone.rejected

    def seen(self, topic: str, now_ms: int) -> Seen:
        """Over the window that ends now."""
        read, reasons = self._read[topic], self._rejected[topic]
        rejected = sum(reasons.values())
        share = rejected / read if read else 0.0
        level: Level = level_of(share, self._share, self._share / 2)
        if level == "bad" and rejected < _FEWEST_REJECTS:
            level = "between"
        if rejected < _FEWEST_REJECTS / 2:
            level = "fine"
        if level == "fine" and self._began_ms is not None and now_ms - self._began_ms < self._window_ms:
            level = "between"  # what came before this process began is not known
        window, top = duration_text(self._window_ms), reasons.most_common(_TOP_REASONS)
        figures = f"{rejected:,} of {read:,} records of {topic} in {window}"
        evidence = {"topic": topic, "read": read, "rejected": rejected, "share": share, "window_ms": self._window_ms}
        evidence |= {"reasons": dict(top)}
        if level != "bad":
            return Seen(level, now_ms, f"{figures} were rejected: few again", evidence)
        said = ", ".join(f"{reason} {count:,}" for reason, count in top)
        text = (
            f"{figures} were rejected ({said}); they are on {self._dead_letters}, each with its reason. Mostly a"
            " producer has changed its format: correct it, or the paths of the configuration, and replay them"
        )
        return Seen(level, now_ms - self._window_ms, text, evidence, top[0][0])
