"""Faults as settings: what is injected, into which events, from when on; and the text form of `--inject`.

shift group=carrier:UA size=.5 from=2013-06-01
outage from=2013-06-01 until=2013-06-04 ; traffic group=origin:EWR factor=2 from=2013-06-04
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NamedTuple, TypeAlias

from stream_calib.config import Config
from stream_calib.config_values import duration_ms, duration_text
from stream_calib.errors import BacktestError
from stream_calib.events.event_times import iso8601_ms
from stream_calib.pages.texts import minute_text

Fault: TypeAlias = Literal["shift", "traffic", "outage", "delay", "duplicate"]
_EXAMPLE = "'shift group=carrier:UA size=.5 from=2013-06-01'"


class Member(NamedTuple):
    """One value of an attribute that events of the group have."""

    attribute: str
    place: int
    """Of the attribute in a signature."""
    value: str


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault, in the events of a group whose scores lie in the panes that begin in [from_ms, until_ms)."""

    fault: Fault
    amount: float
    """`shift`: log-odds that outcomes move by; `traffic`: factor; `outage`, `duplicate`: share of the events, in
    (0, 1]; `delay`: milliseconds."""
    group: tuple[Member, ...]
    """Events of all of them; (): all events."""
    from_ms: int
    until_ms: int | None
    """None: to the end of the history."""
    seed: int = 0
    missing_is_negative: bool = False
    """Whether a score without a label counts as negative (windows.missing_label)."""

    def __str__(self) -> str:
        """In words for people."""
        whose = " and ".join(f"{m.attribute} {m.value}" for m in self.group)
        events = f"events of {whose}" if whose else "all events"
        said = {
            "shift": f"outcomes of {whose or 'all events'} moved by {self.amount:+g} in log-odds",
            "traffic": f"traffic of {whose or 'everybody'} times {self.amount:g}",
            "outage": f"no labels for {events}"
            if self.amount == 1
            else f"no labels for {self.amount:.0%} of {whose or 'all events'}",
            "delay": f"labels final {duration_text(round(self.amount))} later",
            "duplicate": f"{self.amount:.0%} of {events} counted twice"
            if self.amount < 1
            else f"{events} counted twice",
        }[self.fault]
        return f"{said}, from {minute_text(self.from_ms)}" + (
            "" if self.until_ms is None else f" until {minute_text(self.until_ms)}"
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """Faults injected into one history, in this order; at least one."""

    faults: tuple[Injection, ...]

    @property
    def from_ms(self) -> int:
        """When the first of them begins."""
        return min(fault.from_ms for fault in self.faults)

    def __str__(self) -> str:
        return "; ".join(map(str, self.faults))


class _Key(NamedTuple):
    read: Callable[[str], float]
    what: str
    default: float | None


def _size(text: str) -> float:
    size = float(text)
    if not 0 < abs(size) <= 10:
        raise ValueError
    return size


def _factor(text: str) -> float:
    factor = float(text)
    if not 0 <= factor <= 100 or factor == 1:
        raise ValueError
    return factor


def _share(text: str) -> float:
    share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 < share <= 1:
        raise ValueError
    return share


def _delay(text: str) -> float:
    delay_ms = duration_ms(text)
    if not delay_ms:
        raise ValueError
    return float(delay_ms)


_SHARE = "a share of the events, as .3 or 30%"
_AMOUNTS: Mapping[Fault, tuple[str, _Key]] = {
    "shift": ("size", _Key(_size, "log-odds from -10 to 10 that outcomes move by, as .5, and not 0", None)),
    "traffic": ("factor", _Key(_factor, "a factor from 0 to 100, as 2 or .5, and not 1", None)),
    "outage": ("share", _Key(_share, _SHARE, 1.0)),
    "delay": ("by", _Key(_delay, 'a duration, as "12h" or "2d"', None)),
    "duplicate": ("share", _Key(_share, _SHARE, None)),
}


def parse_scenario(text: str, config: Config) -> Scenario:
    """One or several faults, with a semicolon between them. Raises BacktestError naming what cannot be read."""
    words = _words(text)
    faults: list[list[str]] = [[]]
    for word in words:
        if word == ";":
            faults.append([])
        else:
            faults[-1].append(word)
    return Scenario(tuple(_injection(text, some, config) for some in faults))


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError as error:
        raise BacktestError(
            f"--inject {text!r}: {error}; quote values with blanks, as group='carrier:United Air'"
        ) from (error)


def _injection(text: str, words: list[str], config: Config) -> Injection:
    if not words or words[0] not in _AMOUNTS:
        raise _refused(
            text, f"{words[0]!r} is no fault" if words else "a fault is missing", f"write one of {', '.join(_AMOUNTS)}"
        )
    fault: Fault = words[0]  # type: ignore[assignment]  # one of the keys, which are such
    amount_key, amount = _AMOUNTS[fault]
    known = [*(() if fault == "delay" else ("group",)), amount_key, "from", "until", "seed"]
    given: dict[str, str] = {}
    members: list[Member] = []
    for word in words[1:]:
        key, separator, value = word.partition("=")
        if not separator or key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"{fault} takes {', '.join(known)}, each as key=value"
            raise _refused(text, f"{word!r} says nothing of a {fault}", hint)
        if key == "group":
            members.append(_member(text, value, config))
        elif key in given:
            raise _refused(text, f"{key} is there twice", "give it once")
        else:
            given[key] = value
    if len({member.place for member in members}) < len(members):
        raise _refused(text, "one attribute is there twice", "an event has one value of it; inject two faults with ;")
    for key in (amount_key, "from"):
        if key not in given and (key == "from" or amount.default is None):
            what = amount.what if key == amount_key else "a time, as 2013-06-01"
            raise _refused(text, f"{key} is missing", f"{key}= takes {what}")
    from_ms = _time(text, "from", given["from"])
    until_ms = _time(text, "until", given["until"]) if "until" in given else None
    if until_ms is not None and until_ms <= from_ms:
        raise _refused(text, "it ends before it begins", "until= is later than from=")
    size = amount.default if amount_key not in given else _amount(text, amount_key, given[amount_key], amount)
    assert size is not None  # without a default it was given
    seed = given.get("seed", "0")
    if not (seed.isascii() and seed.isdigit()):
        raise _refused(text, f"seed={seed} is no seed", "it takes a whole number from 0 on")
    missing_is_negative = config.windows.missing_label == "negative_at_horizon"
    return Injection(fault, size, tuple(members), from_ms, until_ms, int(seed), missing_is_negative)


def _member(text: str, value: str, config: Config) -> Member:
    attributes = list(config.scores.attributes)
    name, separator, wanted = value.partition(":")
    if not separator or name not in attributes:
        near = get_close_matches(name, attributes, 1)
        there = f"did you mean {near[0]}?" if near else f"there are: {', '.join(attributes) or 'none'}"
        raise _refused(text, f"group={value} is no attribute and value", f"write group=ATTRIBUTE:VALUE; {there}")
    return Member(name, attributes.index(name), wanted)


def _amount(text: str, key: str, value: str, amount: _Key) -> float:
    try:
        found = amount.read(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise _refused(text, f"{key}={value} cannot be used", f"it takes {amount.what}")
    return found


def _time(text: str, key: str, value: str) -> int:
    time_ms = iso8601_ms(value)
    if time_ms is None:
        raise _refused(text, f"{key}={value} is no time", "write 2013-06-01 or 2013-06-01T10:00Z; UTC without a zone")
    return time_ms


def _refused(text: str, what: str, hint: str) -> BacktestError:
    return BacktestError(f"--inject {text!r}: {what}; {hint}. Example: --inject {_EXAMPLE}")
