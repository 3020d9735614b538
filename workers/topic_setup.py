"""Setting topics up, and checking those that are there. Nothing that exists is ever changed here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_calib.config import Config
from stream_calib.config_values import duration_text
from stream_calib.errors import TransportError, UnknownTopicError
from stream_calib.transport.port import Log
from workers.deployment import open_log
from workers.findings import Finding, Level
from workers.topic_plan import PlannedTopic, planned_topics

_LOG_STARTS_WITHIN_S = 10.0
_LOOK_AGAIN_S = 0.5

_ROLE_TOPICS = {
    "calibrate": ("scores", "blocks", "calibrated", "dead_letters"),
    "monitor": ("blocks", "live_blocks", "labels", "dead_letters"),
    "alert": ("alerts",),
    "refit": (),
    "serve": (),  # it answers requests without a log, and writes `live_blocks` once it is there
}
"""Role -> keys under [topics] of what it reads and writes."""


@dataclass(frozen=True, slots=True)
class TopicResult:
    """One topic after `create_topics`."""

    planned: PlannedTopic
    created: bool
    partitions: int


def create_topics(log: Log, config: Config) -> list[TopicResult]:
    """Creates the topics that are not there. Raises TransportError where one cannot be created."""
    results = []
    for planned in _plan(log, config):
        found = _partitions(log, planned.topic)
        if found is None:
            log.create_topic(planned.topic, planned.partitions, planned.settings)
        results.append(TopicResult(planned, found is None, found or planned.partitions))
    return results


def ready_topics(config: Config, roles: Sequence[str]) -> None:
    """What the roles need is there when this returns: on the embedded log, missing topics are created; elsewhere they
    are for somebody with the right to, and UnknownTopicError says how.

    Waits some seconds for a log that is still starting, as when a machine boots, and raises the TransportError of the
    last try when it has not come up: a wrong address must not look like patience.
    """
    needed = {key for role in roles for key in _ROLE_TOPICS[role]}
    if not needed:
        return
    give_up = time.monotonic() + _LOG_STARTS_WITHIN_S
    while True:
        try:
            with open_log(config) as log:
                if config.log.kind == "embedded":
                    create_topics(log, config)
                else:
                    _require(log, config, needed)
            return
        except UnknownTopicError:
            raise
        except TransportError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(_LOOK_AGAIN_S)


def topic_findings(log: Log, config: Config) -> list[Finding]:
    """One finding a topic at least: whether it is there, and what of it does not fit. Raises TransportError."""
    findings = []
    for planned in _plan(log, config):
        found = _partitions(log, planned.topic)
        if found is None:
            findings.append(_finding("fail", planned, "does not exist", "create it: stream-calib topics create"))
        else:
            settings = log.topic_settings(planned.topic) or {}
            wrong = [*_partition_findings(planned, found), *_setting_findings(planned, settings)]
            findings += wrong or [_finding("ok", planned, _described(found, settings))]
    return findings


def _require(log: Log, config: Config, needed: set[str]) -> None:
    missing = [p.topic for p in planned_topics(config) if p.purpose in needed and _partitions(log, p.topic) is None]
    if missing:
        raise UnknownTopicError(
            f"{'topic' if len(missing) == 1 else 'topics'} {', '.join(missing)} not on the log: create what is missing"
            " with `stream-calib topics create`, or correct the names under [topics]"
        )


def _plan(log: Log, config: Config) -> tuple[PlannedTopic, ...]:
    return planned_topics(config, _partitions(log, config.topics.scores))


def _partitions(log: Log, topic: str) -> int | None:
    try:
        return log.partitions(topic)
    except UnknownTopicError:
        return None


def _partition_findings(planned: PlannedTopic, found: int) -> list[Finding]:
    if found >= planned.least_partitions:
        return []
    what = f"{found} partitions, scores has {planned.least_partitions}: outputs go to the partition of their score"
    todo = (
        f"add partitions: kafka-topics.sh --alter --topic {planned.topic} --partitions {planned.least_partitions}"
        " (the next time before those of scores)"
    )
    return [_finding("fail", planned, what, todo)]


def _setting_findings(planned: PlannedTopic, settings: Mapping[str, str]) -> list[Finding]:
    """What of the settings loses records. Nothing is said of a setting that the log does not tell."""
    findings = []
    if "compact" in settings.get("cleanup.policy", "") and planned.purpose != "labels":
        what = "cleanup.policy has compact: records are lost when their key comes again"
        findings.append(_finding("fail", planned, what, _alter(planned, "cleanup.policy=delete")))
    most = settings.get("max.message.bytes")
    if most is not None and int(most) < planned.largest_record_bytes:
        what = f"max.message.bytes is {int(most):,}; a record may have {planned.largest_record_bytes:,}"
        todo = _alter(planned, f"max.message.bytes={planned.largest_record_bytes}")
        findings.append(_finding("warn", planned, what, todo))
    kept_ms = settings.get("retention.ms")
    if kept_ms is not None and 0 <= int(kept_ms) < planned.least_retention_ms:
        least = planned.least_retention_ms
        what = f"kept for {duration_text(int(kept_ms))}; {duration_text(least)} are needed {planned.needed_for}"
        findings.append(_finding("warn", planned, what, _alter(planned, f"retention.ms={least}")))
    if int(settings.get("retention.bytes", "-1")) >= 0 and planned.least_retention_ms:
        what = f"retention.bytes is {int(settings['retention.bytes']):,}: a rush may push out what is still needed"
        findings.append(_finding("warn", planned, what, _alter(planned, "retention.bytes=-1")))
    return findings


def _alter(planned: PlannedTopic, setting: str) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {planned.topic} --add-config {setting}"


def _described(partitions: int, settings: Mapping[str, str]) -> str:
    kept = settings.get("retention.ms")
    for_ever = kept is not None and int(kept) < 0
    retention = "" if kept is None else f", kept {'for ever' if for_ever else f'for {duration_text(int(kept))}'}"
    return f"{partitions} partition{'' if partitions == 1 else 's'}{retention}"


def _finding(level: Level, planned: PlannedTopic, what: str, todo: str = "") -> Finding:
    return Finding(level, f"topic {planned.topic}", what, todo)
