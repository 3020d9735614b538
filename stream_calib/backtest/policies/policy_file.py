"""Policy files: TOML in the shape of the configuration file, with what differs, a name and, it may be, a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stream_calib.backtest.policies.grid import grid_of_settings, grid_of_texts, policies_of_grid
from stream_calib.backtest.policies.policy import Policy, current_policy, known_settings, make_policy
from stream_calib.config import Config
from stream_calib.config_file import read_toml
from stream_calib.errors import ConfigurationError, PolicyError

_NAME, _GRID = "name", "grid"


class Policies(NamedTuple):
    """What is to be tried."""

    tried: list[Policy]
    """The current one first; no two do the same."""
    same: list[str]
    """About each that was left out, what it is the same as, in words for people."""


def policies_of(base: Config, files: Sequence[Path | str] = (), grid: Sequence[str] = ()) -> Policies:
    """The current policy, those of policy files, and those of a grid of texts (`refit.max_age=12h,1d,2d`).

    Raises PolicyError, also where two that differ have one name.
    """
    made = [current_policy(base)]
    for path in files:
        made += read_policies(path, base)
    if grid:
        made += policies_of_grid(grid_of_texts(grid), base, "--grid")
    return _distinct(made)


def read_policies(path: Path | str, base: Config) -> list[Policy]:
    """The policy of one file; with a table [grid] every combination of it. Without `name` it is called as the file.

    Raises PolicyError that names the file and every key at fault.
    """
    try:
        raw = read_toml(path)
    except ConfigurationError as error:
        raise PolicyError(str(error)) from error
    where = str(path)
    name, grid = raw.pop(_NAME, Path(path).stem), raw.pop(_GRID, {})
    if not isinstance(name, str):
        raise PolicyError(f'{where}: {_NAME} = {name!r}: must be text in quotes ("...")')
    if not isinstance(grid, dict):
        raise PolicyError(f'{where}: {_GRID} must be a table: [grid], then "refit.max_age" = ["12h", "1d"]')
    known = known_settings()
    given = dict(_flat(raw, (), known))
    if not grid:
        return [make_policy(name, given, base, where)]
    lists = grid_of_settings(dict(_flat(grid, (), known)), where)
    return policies_of_grid(lists, base, where, name=name, given=given)


def _flat(table: Mapping[str, Any], path: tuple[str, ...], known: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values, down to the settings; a setting may be a table itself."""
    for key, value in table.items():
        place = (*path, key)
        dotted = ".".join(place)
        if isinstance(value, dict) and dotted not in known:
            yield from _flat(value, place, known)
        else:
            yield dotted, value


def _distinct(policies: Sequence[Policy]) -> Policies:
    tried: dict[tuple[str, int], Policy] = {}
    names: set[str] = set()
    same: list[str] = []
    for policy in policies:
        twin = tried.setdefault(policy.content(), policy)
        if twin is not policy:
            same.append(f"{policy.name} is the same as {twin.name}")
            continue
        if policy.name in names:
            raise PolicyError(f"two policies that differ are called {policy.name!r}; give one of them another name")
        names.add(policy.name)
    return Policies(list(tried.values()), same)
