"""Groups of signatures: which group of a family a signature is in, and how groups are called.

A family is a partition: every attribute alone, an intersection of attributes, or a named predicate (one group; the rest
is in none). Families overlap; the groups of one do not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from stream_calib.errors import ConfigurationError

OTHER = "__other__"
"""The value that stands for all values beyond the configured number; it is in no group."""

Signature = tuple[str, ...]
"""One value for each attribute, in the attributes' order."""

GroupKey = tuple[str, ...]
"""A group within its family: the values of the family's attributes; of a predicate, its name alone."""


@dataclass(frozen=True, slots=True)
class FamilyRule:
    """How a family sorts signatures into groups.

    `attributes`: names, in the order of the values in a group's key. `positions`: their places in a signature.
    `predicate`: None, or the name of a predicate and `admitted`, for each attribute the values that it admits: the
    family then has one group, of the signatures whose values are all admitted.
    """

    attributes: tuple[str, ...]
    positions: tuple[int, ...]
    predicate: str | None = None
    admitted: tuple[frozenset[str], ...] = ()

    @property
    def name(self) -> str:
        """As `carrier`, `carrier & origin`, or the predicate's name."""
        return self.predicate or " & ".join(self.attributes)

    def group(self, signature: Signature) -> GroupKey | None:
        """The signature's group; None where it is in none (`__other__`, or not admitted)."""
        values = tuple(signature[position] for position in self.positions)
        if self.predicate is None:
            return None if OTHER in values else values
        inside = all(value in admitted for value, admitted in zip(values, self.admitted, strict=True))
        return (self.predicate,) if inside else None

    def groups(self, signatures: Sequence[Signature]) -> list[GroupKey | None]:
        """The group of each signature, as `group` says."""
        if not self.positions:
            return [self.group(())] * len(signatures)
        if self.predicate is not None:
            return [self.group(signature) for signature in signatures]
        # The same for many at once, because every fit begins with it.
        if len(self.positions) == 1:
            (place,) = self.positions
            found = [(signature[place],) for signature in signatures]
        else:
            found = list(map(itemgetter(*self.positions), signatures))
        outside = {key for key in set(found) if OTHER in key}
        return [None if key in outside else key for key in found] if outside else list[GroupKey | None](found)

    def group_name(self, key: GroupKey) -> str:
        """As `carrier=UA & origin=EWR`, or the predicate's name."""
        if self.predicate is not None:
            return self.predicate
        return " & ".join(f"{a}={v}" for a, v in zip(self.attributes, key, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """The groups of one rule among s given signatures, sorted by their keys."""

    rule: FamilyRule
    keys: tuple[GroupKey, ...]
    """Of the G groups."""
    group_of: NDArray[np.intp]
    """(s,) group of each signature, -1 where it is in none."""

    @property
    def names(self) -> list[str]:
        """Of the G groups, as `carrier=UA & origin=EWR`."""
        return [self.rule.group_name(key) for key in self.keys]

    def without(self, keys: Collection[GroupKey]) -> Family:
        """The family in which signatures of these groups are in none."""
        kept = np.array([key not in keys for key in self.keys], dtype=bool)
        if kept.all():
            return self
        number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last one for those in none
        return Family(self.rule, tuple(key for key in self.keys if key not in keys), number[self.group_of])

    def of_cells(self, signature: NDArray[np.intp]) -> CellGroups:
        """The groups of k cells, given the place (k,) of each one's signature."""
        return CellGroups(self.names, self.group_of[signature])


@dataclass(frozen=True, slots=True, eq=False)
class CellGroups:
    """One family among k cells: the names of its groups, and (k,) the group of each cell, -1 for none."""

    names: Sequence[str]
    group_of: NDArray[np.intp]


def family_rule(attributes: Sequence[str], all_attributes: Sequence[str]) -> FamilyRule:
    """The family of one attribute or of an intersection. Raises ConfigurationError for an unknown attribute."""
    return FamilyRule(tuple(attributes), _positions(attributes, all_attributes))


def predicate_rule(name: str, admitted: Mapping[str, Iterable[str]], all_attributes: Sequence[str]) -> FamilyRule:
    """A named predicate: the conjunction over attributes of "its value is one of these".

    Raises ConfigurationError for an unknown attribute, values that are no list of texts, or where nothing is asked.
    """
    if not name or not admitted:
        raise ConfigurationError(f"predicate {name!r} needs a name and at least one attribute with its values")
    text = [attribute for attribute, values in admitted.items() if isinstance(values, str)]
    sets = tuple(frozenset(values) for values in admitted.values())
    # A text is a list of its letters too, which nobody means.
    if text or not all(isinstance(value, str) for values in sets for value in values):
        raise ConfigurationError(f"predicate {name!r} admits {dict(admitted)}; give a list of texts for each attribute")
    return FamilyRule(tuple(admitted), _positions(tuple(admitted), all_attributes), name, sets)


def families_up_to(depth: int, all_attributes: Sequence[str]) -> list[FamilyRule]:
    """All intersections of 1 .. `depth` attributes, in order of depth, then of the attributes' places."""
    return [
        family_rule(names, all_attributes)
        for size in range(1, min(depth, len(all_attributes)) + 1)
        for names in combinations(all_attributes, size)
    ]


def make_family(rule: FamilyRule, signatures: Sequence[Signature]) -> Family:
    """The family's groups among s signatures."""
    if rule.predicate is None and len(rule.positions) == 1:
        # By the values themselves, whose hashes are known, where every key would have to be hashed.
        values = list(map(itemgetter(*rule.positions), signatures))
        alone = sorted({*values} - {OTHER})
        of_value = dict(zip(alone, range(len(alone)), strict=True))
        of_value[OTHER] = -1
        group_of = np.fromiter(map(of_value.__getitem__, values), np.intp, len(values))
        return Family(rule, tuple((value,) for value in alone), group_of)
    keys = rule.groups(signatures)
    groups = sorted(key for key in set(keys) if key is not None)
    number: dict[GroupKey | None, int] = {key: i for i, key in enumerate(groups)}
    number[None] = -1
    return Family(rule, tuple(groups), np.fromiter(map(number.__getitem__, keys), np.intp, len(keys)))


def _positions(attributes: Sequence[str], all_attributes: Sequence[str]) -> tuple[int, ...]:
    unknown = [name for name in attributes if name not in all_attributes]
    if unknown:
        raise ConfigurationError(f"unknown attributes {unknown}; the scores have {list(all_attributes)}")
    return tuple(list(all_attributes).index(name) for name in attributes)
