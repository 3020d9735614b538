"""What a change of the configuration needs: nothing but a restart, a look at what it holds for, or state made anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from pydantic import BaseModel

from stream_calib.config import Config
from stream_calib.config_file import key_name, listed_section, written_value
from stream_calib.config_identity import PACKED_INTO_BLOCKS, semantic_content
from stream_calib.config_values import mask_url


class Kind(str, Enum):
    """What a change needs, from the least on."""

    HOT = "hot"
    """Taken up when the roles are started again."""
    FORWARD = "forward-only"
    """Holds for what comes from then on; what was counted or made before stays as it is."""
    REBUILD = "rebuild"
    """The state must be made anew from the log: `state rebuild`."""
    FRESH = "fresh start"
    """The state must be made anew, and the log does not hold what it would take: another model version."""


class Rule(NamedTuple):
    """Of one setting."""

    kind: Kind
    meaning: str


class Change(NamedTuple):
    """A setting that differs."""

    setting: str
    """As in `windows.horizon`."""
    before: Any
    after: Any
    kind: Kind
    meaning: str


_RESTART = "taken up when the roles are started again"
_READ = "records are read like this from the next one on; those that were read stay as they are"
_SERVED = "outputs are written like this from the next record on"
_FIT = "used by the next refit; the snapshot that is served stays"
_STEP = "used from the next decided pane on"
_CREATED = "used when topics are created; those that are there stay as they are"
_BLOCKS = (
    "calibrate packs it into `blocks`, so what the log holds is of the old setting and cannot be counted anew: give the"
    " model another version, which starts from here on"
)
_COUNTED = "decides how records are counted"

_HOT, _FORWARD, _REBUILD, _FRESH = Kind.HOT, Kind.FORWARD, Kind.REBUILD, Kind.FRESH

RULES: dict[str, Rule] = {
    "model.name": Rule(_FORWARD, "scores are of another model from then on, with a state of its own"),
    "model.name_path": Rule(_FORWARD, _READ),
    "model.version": Rule(_FORWARD, "scores are of another version from then on, with a state of its own"),
    "model.version_path": Rule(_FORWARD, _READ),
    "model.max_keys": Rule(_HOT, _RESTART),
    "models": Rule(_FORWARD, "models that are new begin with a state of their own, those that are gone are left alone"),
    "fusion": Rule(_FORWARD, "another fused score needs another fusion.version, which has a state of its own"),
    "topics.scores": Rule(_FORWARD, "calibrate reads the other topic from its beginning"),
    "topics.labels": Rule(_REBUILD, "positions belong to the other topic"),
    "topics.calibrated": Rule(_FORWARD, "outputs go there from the next batch on"),
    "topics.blocks": Rule(_REBUILD, "positions belong to the other topic"),
    "topics.live_blocks": Rule(_REBUILD, "positions belong to the other topic; a first one is only added"),
    "topics.dead_letters": Rule(_FORWARD, "rejects go there from the next batch on"),
    "topics.alerts": Rule(_FORWARD, "alerts go there from the next one on"),
    "log.client": Rule(_HOT, _RESTART),
    "log.client_secrets": Rule(_HOT, _RESTART),
    "log.kind": Rule(_REBUILD, "another log has other topics; not so between `kafka` and `librdkafka`"),
    "log.url": Rule(_HOT, "the same log at another address; topics that are others are refused"),
    "log.bootstrap_servers": Rule(_HOT, "the same cluster at another address; topics that are others are refused"),
    "log.delivery": Rule(_HOT, _RESTART),
    "log.group_prefix": Rule(_FORWARD, "another deployment: groups, registry of models and gaps begin anew"),
    "log.instance_id": Rule(_HOT, _RESTART),
    "log.session_timeout_ms": Rule(_HOT, _RESTART),
    "log.transaction_timeout_ms": Rule(_HOT, _RESTART),
    "log.metadata_max_age_ms": Rule(_HOT, _RESTART),
    "log.start": Rule(_FORWARD, "for topics on which the deployment has no positions yet"),
    "log.on_position_lost": Rule(_HOT, _RESTART),
    "log.score_partitions": Rule(_FORWARD, _CREATED),
    "log.label_partitions": Rule(_FORWARD, _CREATED),
    "log.replication_factor": Rule(_FORWARD, _CREATED),
    "log.output_retention_ms": Rule(_FORWARD, _CREATED),
    "log.blocks_retention_ms": Rule(_FORWARD, _CREATED),
    "log.reject_retention_ms": Rule(_FORWARD, _CREATED),
    "redis.client": Rule(_HOT, _RESTART),
    "redis.client_secrets": Rule(_HOT, _RESTART),
    "redis.url": Rule(_HOT, "to move the state to another server: `state export`, `state import`"),
    "redis.cluster": Rule(_HOT, "to move the state to another server: `state export`, `state import`"),
    "redis.sentinels": Rule(_HOT, _RESTART),
    "redis.sentinel_service": Rule(_HOT, _RESTART),
    "redis.socket_timeout_ms": Rule(_HOT, _RESTART),
    "redis.retries": Rule(_HOT, _RESTART),
    "http": Rule(_HOT, _RESTART),
    "telemetry": Rule(_HOT, _RESTART),
    "records": Rule(_FORWARD, _READ),
    "scores.id": Rule(_FORWARD, _READ),
    "scores.score": Rule(_FORWARD, _READ),
    "scores.scale": Rule(_FORWARD, _READ),
    "scores.time": Rule(_FORWARD, _READ),
    "scores.unit": Rule(_FRESH, _BLOCKS),
    "scores.attributes": Rule(_FRESH, _BLOCKS),
    "scores.intersections": Rule(_FORWARD, _FIT),
    "scores.predicates": Rule(_FORWARD, _FIT),
    "scores.derived": Rule(_FORWARD, _FIT),
    "scores.zone": Rule(_FORWARD, _FIT),
    "scores.max_value_bytes": Rule(_FORWARD, _READ),
    "scores.max_values": Rule(_FORWARD, "used from the next matured pane on"),
    "scores.audit_only": Rule(_FORWARD, _FIT),
    "scores.sample_rate": Rule(_FRESH, _BLOCKS),
    "scores.keep_rate": Rule(_FRESH, _BLOCKS),
    "labels.id": Rule(_FORWARD, _READ),
    "labels.label": Rule(_FORWARD, _READ),
    "labels.model": Rule(_REBUILD, _COUNTED),
    "labels.time": Rule(_FORWARD, _READ),
    "labels.time_granularity_ms": Rule(_REBUILD, _COUNTED),
    "labels.schedule": Rule(_HOT, _RESTART),
    "labels.schedule_zone": Rule(_HOT, _RESTART),
    "labels.schedule_grace_ms": Rule(_HOT, _RESTART),
    "labels.clock": Rule(_REBUILD, _COUNTED),
    "labels.keep_rate_positives": Rule(_FORWARD, _FIT),
    "labels.keep_rate_negatives": Rule(_FORWARD, _FIT),
    "serving.output": Rule(_FORWARD, _SERVED),
    "serving.bootstrap": Rule(_HOT, _RESTART),
    "serving.snapshot_poll_ms": Rule(_HOT, _RESTART),
    "serving.max_snapshot_staleness_ms": Rule(_HOT, _RESTART),
    "serving.clock_records": Rule(_HOT, _RESTART),
    "serving.max_batch_records": Rule(_HOT, _RESTART),
    "serving.batch_interval_ms": Rule(_HOT, _RESTART),
    "serving.p_min": Rule(_FORWARD, _SERVED),
    "windows.horizon_ms": Rule(_REBUILD, _COUNTED),
    "windows.pane_ms": Rule(_REBUILD, _COUNTED),
    "windows.score_lateness_ms": Rule(_REBUILD, _COUNTED),
    "windows.label_lateness_ms": Rule(_REBUILD, _COUNTED),
    "windows.max_clock_skew_ms": Rule(_FORWARD, "records are judged by it from the next one on"),
    "windows.max_input_skew_ms": Rule(_HOT, _RESTART),
    "windows.idle_timeout_ms": Rule(_HOT, _RESTART),
    "windows.keep_panes": Rule(_HOT, "how long matured panes stay; panes that were removed do not come back"),
    "windows.settle_panes": Rule(_HOT, _RESTART),
    "windows.expire_requests": Rule(_HOT, _RESTART),
    "windows.shards": Rule(_REBUILD, "decides where counts are kept"),
    "windows.missing_label": Rule(_REBUILD, _COUNTED),
    "calibration": Rule(_FORWARD, _FIT),
    "refit": Rule(_FORWARD, "used from the next decided pane, and by the next refit, on"),
    "drift": Rule(_FORWARD, _STEP),
    "decisions": Rule(_FORWARD, _FIT),
    "alerts": Rule(_HOT, _RESTART),
    "retention": Rule(_HOT, "what was dropped before does not come back"),
}
"""Setting, or section whose settings are all alike -> what a change of it needs."""


def rule_of(setting: str) -> Rule:
    """By the setting's place, as `windows.horizon_ms`. Raises KeyError where it has no rule."""
    parts = setting.split(".")
    for length in range(len(parts), 0, -1):
        if (rule := RULES.get(".".join(parts[:length]))) is not None:
            return rule
    raise KeyError(setting)


def plan(before: Config, after: Config) -> list[Change]:
    """Every setting that differs, in the order of the file. Addresses are masked."""
    old = dict(_settings(before))
    return [
        Change(written_key(setting), _shown(setting, old[setting][0]), _shown(setting, value), *rule)
        for setting, (value, raw) in _settings(after)
        if _differs(setting, old[setting][1], raw)
        for rule in (_rule(setting, old[setting][1], raw),)
    ]


def plan_of_content(stored: Mapping[str, Any], after: Config) -> list[Change]:
    """What differs between the semantic content that state was made under and a configuration: all that the state
    knows of."""
    wanted = semantic_content(after)
    return [
        Change(name, stored.get(name), wanted.get(name), *_CONTENT.get(name, Rule(_REBUILD, _COUNTED)))
        for name in sorted(stored.keys() | wanted.keys())
        if stored.get(name) != wanted.get(name)
    ]


_CONTENT = dict.fromkeys(PACKED_INTO_BLOCKS, Rule(_FRESH, _BLOCKS))
"""All other entries of the semantic content are of what is made of `blocks`."""


def needed(changes: list[Change]) -> Kind:
    """The most that any of them needs."""
    order = list(Kind)
    return max((change.kind for change in changes), key=order.index, default=Kind.HOT)


def settings() -> list[str]:
    """Every setting by its place; a table that takes any names, or a list of tables, is one."""
    return [place for place, _ in _fields(Config, ())]


def _differs(setting: str, before: Any, after: Any) -> bool:
    """The order of attributes is that of the values in a signature."""
    return bool(before != after or (setting == "scores.attributes" and list(before) != list(after)))


def _rule(setting: str, before: Any, after: Any) -> Rule:
    """That of the setting, but where only the place in the users' records has moved."""
    if setting == "scores.attributes" and list(before) == list(after):
        return Rule(_FORWARD, _READ)
    if setting in ("labels.model", "scores.keep_rate") and before is not None and after is not None:
        return Rule(_FORWARD, _READ)
    if setting == "topics.live_blocks" and before is None:
        return Rule(_HOT, "the topic is read from its beginning")
    if setting == "log.kind" and "embedded" not in (before, after):
        return Rule(_HOT, _RESTART)
    return rule_of(setting)


def _fields(section: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, field in section.model_fields.items():
        place = (*path, name)
        inner = field.annotation
        if listed_section(field) is None and isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, place)
        else:
            yield ".".join(place), place


def _settings(config: Config) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Place -> (as it is written, as it is held)."""
    for place, names in _fields(Config, ()):
        section: Any = config
        for name in names[:-1]:
            section = getattr(section, name)
        raw = getattr(section, names[-1])
        yield place, (written_value(names[-1], type(section).model_fields[names[-1]], raw), raw)


def written_key(setting: str) -> str:
    """The setting as it is named in the file: `windows.horizon`."""
    section: Any = Config
    keys = []
    for name in setting.split("."):
        field = section.model_fields[name]
        keys.append(key_name(name, field))
        section = field.annotation
    return ".".join(keys)


def _shown(setting: str, value: Any) -> Any:
    if setting.endswith(".url") and isinstance(value, str):
        return mask_url(value)
    if isinstance(value, list):
        return [item.model_dump(exclude_none=True) if isinstance(item, BaseModel) else item for item in value]
    return value
