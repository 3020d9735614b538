"""The families that a configuration asks for."""

from __future__ import annotations

from stream_calib.calibration.groups import FamilyRule, family_rule, predicate_rule
from stream_calib.config import Config


def fitted_rules(config: Config) -> list[FamilyRule]:
    """Those among `family_rules` that the map may have; the others are only watched (`scores.audit_only`)."""
    audit_only = set(config.scores.audit_only)
    return [rule for rule in family_rules(config) if not audit_only & {rule.predicate, *rule.attributes}]


def family_rules(config: Config) -> list[FamilyRule]:
    """Every configured attribute alone, then the configured intersections, then the predicates."""
    attributes = list(config.scores.attributes)
    asked = [(name,) for name in attributes] + [tuple(names) for names in config.scores.intersections]
    predicates = [predicate_rule(name, admitted, attributes) for name, admitted in config.scores.predicates.items()]
    return [family_rule(names, attributes) for names in asked] + predicates
