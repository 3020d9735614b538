"""What a calibrator consists of before it is fitted: which base map, which families, what is special about some.

Configurations are values: they are compared, hashed, and serve as keys of the losses by which they are chosen
(entering.py), on folds or forward in time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from stream_calib.calibration.groups import FamilyRule
from stream_calib.errors import ConfigurationError

Rung = Literal["identity", "platt", "beta", "isotonic", "girb"]
"""A kind of base map."""

RUNGS: tuple[Rung, ...] = ("identity", "platt", "beta", "isotonic", "girb")
"""The ladder, from the simplest rung to the richest."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A rung, the families that have offsets, those of them that have slopes too, and those that are held
    near 0 firmly (`joint.penalty`).

    Two configurations of the same families in another order are different values, so make variants with the methods,
    which keep the order. Raises ConfigurationError where a family occurs twice, or one of `slopes` or `firm`
    is not among the families.
    """

    rung: Rung
    families: tuple[FamilyRule, ...]
    slopes: tuple[FamilyRule, ...] = ()
    firm: tuple[FamilyRule, ...] = ()

    def __post_init__(self) -> None:
        if self.rung not in RUNGS:
            raise ConfigurationError(f"base map {self.rung!r} is unknown; the rungs are {', '.join(RUNGS)}")
        for what, rules in (("families", self.families), ("slopes", self.slopes), ("firm", self.firm)):
            if len(set(rules)) < len(rules):
                raise ConfigurationError(f"{what} {[rule.name for rule in rules]} name one twice; give each once")
            alone = [rule.name for rule in rules if rule not in self.families]
            if alone:
                raise ConfigurationError(f"{what} {alone} have no offsets; add them to the families or drop them here")

    @property
    def name(self) -> str:
        """As `girb + carrier + origin (slope) + carrier & origin (firm)`."""
        return " + ".join([self.rung, *(rule.name + self._marks(rule) for rule in self.families)])

    @property
    def slope_places(self) -> tuple[int, ...]:
        """Places in `families` of those with slopes."""
        return tuple(place for place, rule in enumerate(self.families) if rule in self.slopes)

    @property
    def firm_places(self) -> tuple[int, ...]:
        """Places in `families` of those that are held firmly."""
        return tuple(place for place, rule in enumerate(self.families) if rule in self.firm)

    def on_rung(self, rung: Rung) -> Configuration:
        """The same on another base map."""
        return replace(self, rung=rung)

    def without(self, rule: FamilyRule) -> Configuration:
        """The same without a family and what is special about it."""
        kept = (tuple(r for r in rules if r != rule) for rules in (self.families, self.slopes, self.firm))
        return Configuration(self.rung, *kept)

    def with_family(self, rule: FamilyRule) -> Configuration:
        """The same with one family more, at the end."""
        return replace(self, families=(*self.families, rule))

    def with_slope(self, rule: FamilyRule) -> Configuration:
        """The same with slopes of one of its families."""
        return replace(self, slopes=self._in_order((*self.slopes, rule)))

    def with_firm(self, rule: FamilyRule) -> Configuration:
        """The same with one of its families held firmly."""
        return replace(self, firm=self._in_order((*self.firm, rule)))

    def _in_order(self, rules: tuple[FamilyRule, ...]) -> tuple[FamilyRule, ...]:
        places = {rule: place for place, rule in enumerate(self.families)}
        return tuple(sorted(rules, key=lambda rule: places.get(rule, len(places))))

    def _marks(self, rule: FamilyRule) -> str:
        marks = [mark for mark, rules in (("slope", self.slopes), ("firm", self.firm)) if rule in rules]
        return f" ({', '.join(marks)})" if marks else ""
