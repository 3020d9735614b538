"""From snapshot documents to the map that is served, and back: the one place that knows both forms."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.calibration.base_map import BaseMap
from stream_calib.calibration.groups import family_rule
from stream_calib.calibration.map_parts import FamilyShift, MapParts
from stream_calib.calibration.served_map import ServedMap
from stream_calib.errors import ConfigurationError, DamagedSnapshotError, FitError
from stream_calib.snapshot.model import BaseMapDocument, FamilyDocument, ResolvedSnapshot


def base_document(base: BaseMap) -> BaseMapDocument:
    """The base map as a document, exactly."""
    stored = base.to_lists()
    return BaseMapDocument(
        log_odds=tuple(stored["log_odds"]),
        value=tuple(stored["value"]),
        p_min=stored["p_min"],
        strict_slope=stored["strict_slope"],
    )


def build_map(
    attributes: Sequence[str],
    base: BaseMapDocument,
    families: Sequence[FamilyDocument],
    level: float,
    p_min: float,
) -> ServedMap:
    """The map of these documents. Raises DamagedSnapshotError where they do not make one."""
    try:
        shifts = tuple(
            FamilyShift(
                family_rule(family.attributes, attributes), {group.values: group.offset for group in family.offsets}
            )
            for family in families
        )
        return ServedMap(MapParts(BaseMap.from_lists(base.model_dump()), shifts, level, p_min))
    except (FitError, ConfigurationError, ValueError) as error:
        raise DamagedSnapshotError(f"snapshot documents do not make a map: {error}") from error


def compile_snapshot(resolved: ResolvedSnapshot) -> ServedMap:
    """The map that a version serves. Raises DamagedSnapshotError where its documents do not make one."""
    structure = resolved.structure
    return build_map(structure.attributes, structure.base, structure.families, resolved.level, structure.p_min)
