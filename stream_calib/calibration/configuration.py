"""What a calibrator consists of before it is fitted: which base map, which families, which of them with slopes.

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
    """A rung, the families that have offsets, and those of them that have slopes too.

    Two configurations of the same families in another order are different values, so make variants with the methods,
    which keep the order. Raises ConfigurationError where a family occurs twice or a slope's family is not there.
    """

    rung: Rung
    families: tuple[FamilyRule, ...]
    slopes: tuple[FamilyRule, ...] = ()

    def __post_init__(self) -> None:
        if self.rung not in RUNGS:
            raise ConfigurationError(f"base map {self.rung!r} is unknown; the rungs are {', '.join(RUNGS)}")
        for what, rules in (("families", self.families), ("slopes", self.slopes)):
            if len(set(rules)) < len(rules):
                raise ConfigurationError(f"{what} {[rule.name for rule in rules]} name one twice; give each once")
        alone = [rule.name for rule in self.slopes if rule not in self.families]
        if alone:
            raise ConfigurationError(f"slopes of {alone} without offsets; add them to the families or drop the slopes")

    @property
    def name(self) -> str:
        """As `girb + carrier + origin (slope) + carrier & origin`."""
        parts = [f"{rule.name} (slope)" if rule in self.slopes else rule.name for rule in self.families]
        return " + ".join([self.rung, *parts])

    @property
    def slope_places(self) -> tuple[int, ...]:
        """Places in `families` of those with slopes."""
        return tuple(place for place, rule in enumerate(self.families) if rule in self.slopes)

    def on_rung(self, rung: Rung) -> Configuration:
        """The same on another base map."""
        return replace(self, rung=rung)

    def without(self, rule: FamilyRule) -> Configuration:
        """The same without a family and its slopes."""
        return replace(
            self,
            families=tuple(kept for kept in self.families if kept != rule),
            slopes=tuple(kept for kept in self.slopes if kept != rule),
        )

    def with_family(self, rule: FamilyRule) -> Configuration:
        """The same with one family more, at the end."""
        return replace(self, families=(*self.families, rule))

    def with_slope(self, rule: FamilyRule) -> Configuration:
        """The same with slopes of one of its families; slopes are kept in the families' order."""
        wanted = {*self.slopes, rule}
        alone = () if rule in self.families else (rule,)
        return replace(self, slopes=(*(family for family in self.families if family in wanted), *alone))
