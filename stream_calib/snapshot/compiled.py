"""From snapshot documents to the map that is served, and back: the one place that knows both forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from stream_calib.calibration.groups import FamilyRule, family_rule, predicate_rule
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.calibration.time_attributes import TimeAttributes
from stream_calib.errors import ConfigurationError, DamagedSnapshotError, FitError
from stream_calib.snapshot.map_documents import (
    BaseMapDocument,
    FamilyDocument,
    MapDocument,
    OffsetDocument,
    PatchDocument,
    PatchRoundDocument,
    PredicateDocument,
)
from stream_calib.snapshot.model import ResolvedSnapshot, StructureSnapshot, WatchedFamilyDocument


def base_document(base: BaseMap) -> BaseMapDocument:
    """The base map as a document, exactly."""
    stored = base.to_lists()
    return BaseMapDocument(
        log_odds=tuple(stored["log_odds"]),
        value=tuple(stored["value"]),
        p_min=stored["p_min"],
        strict_slope=stored["strict_slope"],
    )


def map_document(parts: MapParts) -> MapDocument:
    """The parts as a document, but for the level; groups sorted. `map_parts` of it gives the same map, bit for bit."""
    weighted = parts.rounds or any(family.slopes for family in parts.families)
    return MapDocument(
        base=base_document(parts.base),
        families=tuple(
            FamilyDocument(
                attributes=family.rule.attributes,
                offsets=tuple(
                    OffsetDocument(values=key, offset=family.offsets.get(key, 0.0), slope=family.slopes.get(key, 0.0))
                    for key in sorted(family.offsets.keys() | family.slopes.keys())
                ),
                predicate=predicate_document(family.rule),
            )
            for family in parts.families
        ),
        p_min=parts.p_min,
        slope_centre=parts.slope_centre,
        rounds=tuple(
            PatchRoundDocument(
                attributes=patches.rule.attributes,
                predicate=predicate_document(patches.rule),
                edges=patches.edges,
                patches=tuple(PatchDocument(values=key, shifts=patches.shifts[key]) for key in sorted(patches.shifts)),
            )
            for patches in parts.rounds
        ),
        bin_weight=tuple(parts.bin_weight.tolist()) if weighted else None,
    )


def map_parts(attributes: Sequence[str], document: MapDocument, level: float) -> MapParts:
    """The parts of this document. `attributes`: of the map's signatures, derived ones at the end.

    Raises DamagedSnapshotError where they do not make a map.
    """
    try:
        parts = MapParts(
            BaseMap.from_lists(document.base.model_dump()),
            tuple(
                FamilyShift(
                    rule_of(family, attributes),
                    {group.values: group.offset for group in family.offsets},
                    {group.values: group.slope for group in family.offsets if group.slope},
                )
                for family in document.families
            ),
            level,
            document.p_min,
            document.slope_centre,
            tuple(
                PatchRound(rule_of(patches, attributes), patches.edges, {p.values: p.shifts for p in patches.patches})
                for patches in document.rounds
            ),
        )
        if document.bin_weight is None:
            return parts
        return dataclasses.replace(parts, bin_weight=np.array(document.bin_weight))
    except (FitError, ConfigurationError, ValueError) as error:
        raise DamagedSnapshotError(f"snapshot documents do not make a map: {error}") from error


def compile_snapshot(resolved: ResolvedSnapshot, max_compiled: int = 20_000) -> ServedMap:
    """The map that a version serves; `max_compiled` as in ServedMap. Raises DamagedSnapshotError where its documents do
    not make one."""
    structure = resolved.structure
    return ServedMap(map_parts(structure.map_attributes, structure, resolved.level), max_compiled)


def time_attributes(structure: StructureSnapshot) -> TimeAttributes | None:
    """What its map takes beside the configured attributes; None: nothing. Raises DamagedSnapshotError where that is
    not known."""
    derived = structure.derived
    if derived is None:
        return None
    try:
        return TimeAttributes(derived.names, derived.zone, structure.pane_ms)
    except ConfigurationError as error:
        raise DamagedSnapshotError(f"derived attributes of snapshot {structure.sequence:06d}: {error}") from error


def predicate_document(rule: FamilyRule) -> PredicateDocument | None:
    """The predicate of a family, if it is one."""
    if rule.predicate is None:
        return None
    return PredicateDocument(name=rule.predicate, admitted=tuple(tuple(sorted(values)) for values in rule.admitted))


def rule_of(
    document: FamilyDocument | PatchRoundDocument | WatchedFamilyDocument, attributes: Sequence[str]
) -> FamilyRule:
    """The rule of a stored family. `attributes`: of the signatures. Raises ConfigurationError for an unknown one."""
    predicate = document.predicate
    if predicate is None:
        return family_rule(document.attributes, attributes)
    if not document.attributes:  # patches of everything
        return FamilyRule((), (), predicate.name)
    admitted = dict(zip(document.attributes, predicate.admitted, strict=True))
    return predicate_rule(predicate.name, admitted, attributes)
