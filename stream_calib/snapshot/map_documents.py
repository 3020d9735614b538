"""The parts of a map as documents, as they stand in a structure snapshot. See `MapParts` for what they mean.

What came later than the first snapshots (slopes, patches, predicates, bin weights) is left out of the bytes where a map
has none of it. So the snapshots of before keep their bytes and their versions, and a reader that does not know a part
refuses the map that uses it, in place of serving it without.
"""

from __future__ import annotations

from stream_calib.snapshot.document import Document, ExtendedDocument


class BaseMapDocument(Document):
    """As `BaseMap.to_lists` of the calibration."""

    log_odds: tuple[float, ...]
    value: tuple[float, ...]
    p_min: float
    strict_slope: float


class PredicateDocument(Document):
    """A family of one group: the signatures whose values are all admitted."""

    name: str
    admitted: tuple[tuple[str, ...], ...]
    """For each of the family's attributes the values that it admits, sorted."""


class OffsetDocument(ExtendedDocument):
    """What one group adds in log-odds: offset + slope x (raw log-odds - the map's `slope_centre`)."""

    later = frozenset({"slope"})

    values: tuple[str, ...]
    """In the order of the family's attributes; of a predicate, its name alone."""
    offset: float
    slope: float = 0.0


class FamilyDocument(ExtendedDocument):
    """All groups of one attribute, of one intersection of attributes, or of a predicate; other values have offset 0."""

    later = frozenset({"predicate"})

    attributes: tuple[str, ...]
    offsets: tuple[OffsetDocument, ...]
    predicate: PredicateDocument | None = None


class PatchDocument(Document):
    """Shifts in probability of one group, one for each interval of its round."""

    values: tuple[str, ...]
    """As in `OffsetDocument`."""
    shifts: tuple[float, ...]


class PatchRoundDocument(ExtendedDocument):
    """See `PatchRound` of the calibration."""

    later = frozenset({"predicate"})

    attributes: tuple[str, ...]
    predicate: PredicateDocument | None = None
    edges: tuple[float, ...]
    """Of the m intervals of probability, m + 1 from 0 to 1."""
    patches: tuple[PatchDocument, ...]


class MapDocument(ExtendedDocument):
    """A whole map but for its level."""

    later = frozenset({"slope_centre", "rounds", "bin_weight"})

    base: BaseMapDocument
    families: tuple[FamilyDocument, ...]
    p_min: float
    slope_centre: float = 0.0
    """Raw log-odds at which slopes add nothing."""
    rounds: tuple[PatchRoundDocument, ...] = ()
    """In the order in which they are applied."""
    bin_weight: tuple[float, ...] | None = None
    """Weights of the 402 grid bins in projections; None: all the same, as where there are no slopes and no rounds."""
