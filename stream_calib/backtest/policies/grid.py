"""Grids of policies: settings with several values each, and every combination of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stream_calib.backtest.policies.policy import Policy, make_policy
from stream_calib.config import Config
from stream_calib.config_file import toml_value, tomllib
from stream_calib.errors import PolicyError

MOST_POLICIES = 2_000
"""Of one grid: more cost hours, and the best of so many says little."""

_OPENING, _CLOSING, _QUOTES = "[{", "]}", "\"'"


class GridValue(NamedTuple):
    """One value of a setting."""

    text: str
    """As it is shown in the name of a policy."""
    value: Any
    """As TOML gives it."""


Grid = Mapping[str, Sequence[GridValue]]
"""Dotted key -> its values, at least one."""


def grid_of_texts(texts: Sequence[str]) -> Grid:
    """Out of `refit.max_age=12h,1d,2d` and the like, one for each key.

    A value is TOML, or text without quotes; commas within brackets and quotes do not part values. Raises PolicyError.
    """
    grid: dict[str, list[GridValue]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not key or not equals:
            raise PolicyError(f"--grid {text!r}: write a key and its values, as 'refit.max_age=12h,1d,2d'")
        if key in grid:
            raise PolicyError(f"--grid {text!r}: {key} is there twice; give all of its values at once")
        parts = list(_parts(values))
        if not all(parts):
            raise PolicyError(f"--grid {text!r}: a value is empty; write values with one comma between them")
        grid[key] = [GridValue(_bare(part), _value(part)) for part in parts]
        _check_values(grid[key], f"--grid {text!r}")
    return grid


def grid_of_settings(given: Mapping[str, Any], where: str) -> Grid:
    """Out of dotted keys with lists of values, as in the table [grid] of a policy file. Raises PolicyError."""
    grid: dict[str, list[GridValue]] = {}
    for key, values in given.items():
        if not isinstance(values, list) or not values:
            raise PolicyError(f"{where}: grid: {key} needs a list of values, as {key} = [...]")
        grid[key] = [GridValue(_bare(toml_value(value)), value) for value in values]
        _check_values(grid[key], f"{where}: grid: {key}")
    return grid


def policies_of_grid(
    grid: Grid, base: Config, where: str, *, name: str = "", given: Mapping[str, Any] | None = None
) -> list[Policy]:
    """Every combination, the last key moving fastest, on top of the settings `given`.

    Names are as `max_age=12h psi_threshold=.2`, behind `name` where there is one. Raises PolicyError, also for more
    than MOST_POLICIES.
    """
    fixed = dict(given or {})
    twice = [key for key in grid if key in fixed]
    if twice:
        raise PolicyError(f"{where}: {twice[0]} has a value and is in the grid too; keep one of them")
    count = math.prod(len(values) for values in grid.values())
    if count > MOST_POLICIES:
        sizes = " x ".join(f"{len(values)} of {key}" for key, values in grid.items())
        raise PolicyError(
            f"{where}: the grid has {count:,} policies ({sizes}); at most {MOST_POLICIES:,}: leave out values, or try"
            " one setting after the other"
        )
    shown = [key.rpartition(".")[2] for key in grid]
    made = []
    for combination in itertools.product(*grid.values()):
        parts = [f"{short}={one.text}" for short, one in zip(shown, combination, strict=True)]
        chosen = {key: one.value for key, one in zip(grid, combination, strict=True)}
        made.append(make_policy(" ".join([name, *parts]).strip(), fixed | chosen, base, where))
    return made


def _parts(text: str) -> Iterator[str]:
    """The text cut at its commas that are outside of brackets and quotes."""
    depth, quote, begin = 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and not depth:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        pass  # not TOML: a number without its leading 0, or text without quotes
    try:
        return float(text) if text[0] in ".+-" else text
    except ValueError:
        return text


def _bare(text: str) -> str:
    """Without the quotes about it."""
    return text[1:-1] if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0] else text


def _check_values(values: Sequence[GridValue], where: str) -> None:
    for one in values:
        if sum(other.value == one.value for other in values) > 1:
            raise PolicyError(f"{where}: the value {one.text} is there twice; give each once")
