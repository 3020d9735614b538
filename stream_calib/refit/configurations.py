"""The configurations that are compared forward: everything configured, and one change at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stream_calib.calibration.configuration import Configuration, Rung
from stream_calib.calibration.groups import family_rule
from stream_calib.config import CANDIDATE_RUNGS, Config
from stream_calib.refit.derived import derived_names
from stream_calib.refit.groups import fitted_rules

RUNGS_COMPARED: tuple[Rung, ...] = CANDIDATE_RUNGS
"""Identity is left out: days vary so much that it is often within one standard error of the best rung, and offsets do
not mend what it leaves. On a year of flights it was chosen in two refits of three, and cost .0004 of log-loss and .7
points of worst group error against the ladder from Platt upwards; asking for proof of it did not help.
"""

FULL = "full"
"""Name of the configuration with every configured family on the richest rung that may be chosen: GIRB by default."""

Change = Literal["none", "family", "rung", "slopes", "derived", "patches"]


@dataclass(frozen=True, slots=True)
class Variant:
    """The full configuration with one change."""

    change: Change
    subject: str
    """What is changed: the family that is off, the other rung, the family with slopes, the derived attribute."""
    configuration: Configuration
    derived: tuple[str, ...] = ()
    """Derived attributes that follow the configured ones in its signatures."""

    @property
    def name(self) -> str:
        """As `full`, `family carrier & origin` (that is off), `rung platt`, `slopes carrier`, `derived hour_of_day`."""
        return FULL if self.change == "none" else f"{self.change} {self.subject}".strip()


def full_configuration(config: Config) -> Configuration:
    """The richest rung that may be chosen (`calibration.rungs`), with offsets of every configured attribute,
    intersection and predicate that is not audit-only."""
    return Configuration(config.calibration.rungs[-1], tuple(fitted_rules(config)))


def variants(config: Config) -> tuple[Variant, ...]:
    """All that are compared; the full one first."""
    full, attributes = full_configuration(config), tuple(config.scores.attributes)
    made = [Variant("none", "", full)]
    made += [Variant("family", rule.name, full.without(rule)) for rule in full.families]
    made += [Variant("rung", rung, full.on_rung(rung)) for rung in config.calibration.rungs if rung != full.rung]
    alone = [rule for rule in full.families if len(rule.attributes) == 1 and rule.predicate is None]
    made += [Variant("slopes", rule.name, full.with_slope(rule)) for rule in alone]
    for name in derived_names(config):
        with_it = full.with_family(family_rule((name,), (*attributes, name)))
        made.append(Variant("derived", name, with_it, (name,)))
    if config.scores.unit is None:
        # Cells do not say how many rows a unit has, and without it fresh rows confirm no patches.
        made.append(Variant("patches", "", full))
    return tuple(made)
