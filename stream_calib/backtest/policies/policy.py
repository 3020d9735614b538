"""A policy: the configuration with some settings changed, which is tried over a history whose cells are there already.

What decides how events are counted cannot be changed here, because the cells are of the old setting; what only says
where things are, or who is told, is no part of a policy.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from stream_calib.config import Config
from stream_calib.config_file import fault_text, key_name, toml_value, written_value
from stream_calib.config_plan import settings, written_key
from stream_calib.config_values import duration_ms, duration_text
from stream_calib.errors import PolicyError

CURRENT = "current"
"""Name of the policy that the configuration is as it stands."""
LABEL_DELAY = "label_delay"
"""Key of a policy that is no setting: labels are final by so much later than the configuration says."""
MOST_NAME_CHARACTERS = 200

_SECTIONS = ("calibration", "refit", "drift")
_SINGLE = (
    "decisions",
    "scores.intersections",
    "scores.predicates",
    "scores.derived",
    "scores.zone",
    "scores.audit_only",
    "serving.p_min",
    LABEL_DELAY,
)
_READING = ("model", "models", "fusion", "records", "scores", "labels", "windows")
"""Sections that say which events are counted, and how."""
_LIVE_ONLY = ("windows.keep_panes", "windows.settle_panes", "windows.expire_requests", "windows.max_input_skew")
"""They only decide when something is done by the roles that run live."""
_CUTOFF = 0.7


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy, checked."""

    name: str
    overrides: Mapping[str, str]
    """Dotted key -> value as TOML, of what was set, also where it is what the configuration has."""
    config: Config = field(repr=False)
    """The whole configuration with them."""
    label_delay_panes: int = 0
    """Panes by which labels are final later than the configuration says."""

    def content(self) -> tuple[str, int]:
        """Equal for policies that do the same, whatever they are called."""
        return self.config.model_dump_json(), self.label_delay_panes


def current_policy(config: Config) -> Policy:
    """The configuration as it is."""
    return Policy(CURRENT, {}, config)


def make_policy(name: str, given: Mapping[str, Any], base: Config, where: str) -> Policy:
    """The policy that sets dotted keys of the file (`refit.max_age`) to values as TOML gives them.

    `decisions` and `scores.predicates` are one setting each: what is given stands in place of all that was there.
    Raises PolicyError that begins with `where` and names each key that is at fault.
    """
    _check_name(name, where)
    faults = [f"{where}: {fault}" for fault in map(_refusal, given) if fault is not None]
    if faults:
        raise PolicyError("\n".join(faults))
    changed = {key: value for key, value in given.items() if key != LABEL_DELAY}
    config = _checked(changed, base, where) if changed else base
    panes = _delay_panes(given[LABEL_DELAY], config.windows.pane_ms, where) if LABEL_DELAY in given else 0
    return Policy(name, {key: toml_value(value) for key, value in given.items()}, config, panes)


@cache
def known_settings() -> frozenset[str]:
    """Dotted key of every setting of the configuration, and of a policy; one that takes any names below it is one."""
    return frozenset([*map(written_key, settings()), LABEL_DELAY])


@cache
def policy_settings() -> tuple[str, ...]:
    """Dotted keys that a policy may set, in the order of the file."""
    known = [*map(written_key, settings()), LABEL_DELAY]
    return tuple(key for key in known if key in _SINGLE or key.partition(".")[0] in _SECTIONS)


def _check_name(name: str, where: str) -> None:
    if not name.strip() or not name.isprintable() or len(name) > MOST_NAME_CHARACTERS:
        raise PolicyError(
            f"{where}: {name!r} is no name of a policy; use 1-{MOST_NAME_CHARACTERS} printable characters on one line"
        )


def _refusal(key: str) -> str | None:
    """Why a policy cannot set the key; None where it can."""
    may_be_set = policy_settings()
    if key in may_be_set:
        return None
    if key in _LIVE_ONLY:
        return f"{key} changes nothing in a backtest: it only decides when the live roles do something; leave it out"
    if key in known_settings():
        if key.partition(".")[0] in _READING:
            return (
                f"{key} decides which events are counted, or how, and the cells of this history are counted already;"
                " to try it, replay the history from events with that setting in the configuration"
            )
        return f"{key} is no part of a policy; {_what_may_be_set()}"
    near = difflib.get_close_matches(key, may_be_set, n=1, cutoff=_CUTOFF)
    return f"{key}: unknown key; " + (f"did you mean {near[0]}?" if near else _what_may_be_set())


def _what_may_be_set() -> str:
    return f"a policy may set {', '.join([*(f'[{section}]' for section in _SECTIONS), *_SINGLE])}"


def _checked(changed: Mapping[str, Any], base: Config, where: str) -> Config:
    """The base with the changed settings, checked as a whole."""
    raw: dict[str, Any] = {name: getattr(base, name) for name in Config.model_fields}
    for key, value in changed.items():
        section, _, name = key.partition(".")
        if not name:
            raw[section] = value
            continue
        if isinstance(raw[section], BaseModel):
            raw[section] = _as_written(raw[section])
        raw[section][name] = value
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        faults = [f"{where}: {fault_text(fault['loc'], fault, raw)}" for fault in error.errors()]
    # Raised outside of the handler, so that no traceback repeats pydantic's error beside ours.
    raise PolicyError("\n".join(faults))


def _as_written(section: BaseModel) -> dict[str, Any]:
    """The settings of a section as they stand in the file; sections within it as they are."""
    fields = type(section).model_fields.items()
    return {key_name(name, f): written_value(name, f, getattr(section, name)) for name, f in fields}


def _delay_panes(given: Any, pane_ms: int, where: str) -> int:
    try:
        delay = duration_ms(given)
    except ValueError as error:
        raise PolicyError(f"{where}: {LABEL_DELAY} = {given!r}: {error}") from error
    if delay % pane_ms:
        raise PolicyError(
            f"{where}: {LABEL_DELAY} = {duration_text(delay)} is not a whole number of panes"
            f" (windows.pane = {duration_text(pane_ms)})"
        )
    return delay // pane_ms
