"""Alert where the clock of an input partition stands and holds the watermark back, although all of it has been read.

A partition with unread records is slow, not silent: that is `lag`. Pure but for what was told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from stream_calib.alerts.conditions import ConditionAlert, Level, Seen, Steadiness, switched_off
from stream_calib.alerts.standing import StandingAlert
from stream_calib.config import Config
from stream_calib.transport.port import TopicPartition
from stream_calib.windows.model_registry import deployment_scope
from workers.input_reports import InputReport
from workers.time_text import age, utc_minute

_NAMED = 20
"""So many partitions are named in the evidence at most."""


class Standing(NamedTuple):
    """A partition whose clock stands."""

    clock_ms: int | None
    """None: it has had no event yet."""
    behind_ms: int
    """How far the clock is behind the newest one of its side; without a clock, for how long nothing was read."""


class StalledInputs:
    """One alert for each topic that the monitor reads."""

    def __init__(self, config: Config, sides: Mapping[str, str], limit_ms: int | None) -> None:
        """`sides`: topic -> "s" or "l". `limit_ms`: of standing still, and of being behind; None: off."""
        self._sides, self._limit_ms = sides, limit_ms
        self._lateness_ms = config.windows.score_lateness_ms
        scope = deployment_scope(config.log.group_prefix)
        self.alerts = {
            topic: ConditionAlert(
                f"watermark_stalled:{topic}",
                StandingAlert(scope, "watermark_stalled", config.windows.pane_ms, subject=topic),
                Steadiness(open_ms=30_000, close_ms=30_000, update_ms=300_000),
            )
            for topic in sides
        }

    def seen(
        self,
        topic: str,
        reports: Mapping[TopicPartition, InputReport | None],
        left_out: Collection[TopicPartition],
        now_ms: int,
    ) -> Seen | None:
        """The topic's partitions as they are now; None where nobody says anything of them.

        `reports`: of all partitions, None of one that no monitor reads. `left_out`: those that hold nothing up.
        `now_ms`: wall time.
        """
        if (limit_ms := self._limit_ms) is None:
            return switched_off("watermark_stalled", now_ms)
        of_topic = {p: report for p, report in reports.items() if p.topic == topic and p not in left_out}
        if all(report is None for report in of_topic.values()):
            return None
        newest_ms = self._newest_ms(self._sides[topic], reports, now_ms)
        found: dict[int, Standing] = {}
        level: Level = "fine"
        for partition, report in sorted(of_topic.items(), key=lambda item: item[0]):
            if report is None:
                level = "between" if level == "fine" else level
                continue
            if report.idle_since_ms is None:
                continue
            idle_ms = now_ms - report.idle_since_ms
            behind_ms = newest_ms - (0 if report.clock_ms is None else report.clock_ms)
            if min(idle_ms, behind_ms) >= limit_ms:
                shown_ms = idle_ms if report.clock_ms is None else behind_ms
                found[partition.partition] = Standing(report.clock_ms, shown_ms)
                level = "bad"
            elif behind_ms >= limit_ms // 2 and level == "fine":
                level = "between"  # a monitor that has just begun does not know for how long nothing came
        return self._seen(topic, level, found, len(of_topic), now_ms)

    def _newest_ms(self, side: str, reports: Mapping[TopicPartition, InputReport | None], now_ms: int) -> int:
        """What the clocks of the side should be at. Those of scores follow wall time also without traffic."""
        clocks = [
            r.clock_ms
            for p, r in reports.items()
            if r is not None and r.clock_ms is not None and self._sides[p.topic] == side
        ]
        newest_ms = min(max(clocks, default=0), now_ms)
        return max(newest_ms, now_ms - self._lateness_ms) if side == "s" else newest_ms

    def _seen(self, topic: str, level: Level, found: Mapping[int, Standing], of: int, now_ms: int) -> Seen:
        if not found:
            return Seen(level, now_ms, f"the clocks of {topic} go on", {"topic": topic})
        clocks = [stands.clock_ms for stands in found.values() if stands.clock_ms is not None]
        since_ms = min(clocks, default=now_ms - max(stands.behind_ms for stands in found.values()))
        names = [str(number) for number in found]
        shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        mend = (
            "see that a producer, or a clock record, moves them, or set windows.idle_timeout"
            if self._sides[topic] == "l"
            else "see that calibrate runs and reads all partitions, and of live blocks that their services do"
        )
        text = (
            f"{topic}: the clocks of {len(found)} of {of} partitions ({shown}) stand since {utc_minute(since_ms)} UTC,"
            f" {age(max(s.behind_ms for s in found.values()))} behind, and nothing is left to be read there; no pane"
            f" closes or matures until they go on: {mend}"
        )
        evidence = {
            "topic": topic,
            "partitions": of,
            "standing": len(found),
            "clocks": {str(number): {"clock_ms": found[number].clock_ms} for number in list(found)[:_NAMED]},
            "behind_ms": max(stands.behind_ms for stands in found.values()),
        }
        return Seen(level, since_ms, text, evidence, ",".join(names))
