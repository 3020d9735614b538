"""The families that parameters ask for: crossed up to a depth, crossed by name, and predicates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

from stream_calib.calibration.groups import FamilyRule, families_up_to, family_rule, predicate_rule
from stream_calib.errors import ConfigurationError


def family_rules(
    depth: int,
    intersections: Sequence[Sequence[str]],
    predicates: Mapping[str, Mapping[str, Sequence[str]]] | None,
    names: Sequence[str],
) -> list[FamilyRule]:
    """All intersections of up to `depth` of the attributes `names`, then `intersections`, then `predicates`.

    Raises ConfigurationError for unknown attributes, for parameters of another kind, and for a family asked for twice.
    """
    rules = families_up_to(depth, names)
    rules += [family_rule(crossed, names) for crossed in _checked_intersections(intersections, depth)]
    rules += [predicate_rule(name, admitted, names) for name, admitted in _checked_predicates(predicates).items()]
    return rules


def _checked_intersections(given: object, depth: int) -> list[tuple[str, ...]]:
    wanted = f"intersections = {given!r}; give a list of lists of attributes, as [('region', 'device')]"
    if not _is_list(given):
        raise ConfigurationError(wanted)
    crossed: list[tuple[str, ...]] = []
    for each in given:
        given_names = list(each) if _is_list(each) else []
        names = tuple(name for name in given_names if isinstance(name, str))
        if not names or len(names) < len(given_names):
            raise ConfigurationError(wanted)
        if len(set(names)) < len(names):
            raise ConfigurationError(f"the intersection {names} names an attribute twice; name each once")
        if any(set(names) == set(other) for other in crossed):
            raise ConfigurationError(f"intersections cross {sorted(names)} twice; give each set of attributes once")
        if len(names) <= depth:
            raise ConfigurationError(f"depth = {depth} makes {names} a family already; leave it out of intersections")
        crossed.append(names)
    return crossed


def _checked_predicates(given: object) -> Mapping[str, Mapping[str, Collection[str]]]:
    predicates = {} if given is None else given
    wanted = f"predicates = {given!r}; give for each name {{attribute: [its values]}}"
    if not isinstance(predicates, Mapping):
        raise ConfigurationError(wanted)
    for name, admitted in predicates.items():
        if not isinstance(name, str) or not isinstance(admitted, Mapping):
            raise ConfigurationError(wanted)
        if not all(isinstance(values, Collection) for values in admitted.values()):
            raise ConfigurationError(wanted)
    return predicates


def _is_list(given: object) -> TypeGuard[Collection[object]]:
    # A text is a list of its letters too, which nobody means.
    return isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)
