"""What a structure snapshot says of how it was made: what was chosen to be in it, and what its certificate claims."""

from __future__ import annotations

from typing import Literal

from stream_calib.snapshot.document import Document


class DerivedDocument(Document):
    """Attributes derived from the start of an event's pane; they follow the configured ones in a map's signatures."""

    names: tuple[str, ...]
    """Of `calibration.time_attributes`: those that the map uses, in their order."""
    zone: str
    """Of the time-zone database."""


class FigureDocument(Document):
    """What the evidence says of one thing that may be in the map or not."""

    name: str
    """As `family carrier & origin`, `rung platt`, `slopes carrier`, `derived hour_of_day`, `patches`."""
    on: bool
    difference: float | None
    """Mean log-loss a labelled row, with it less without it (of a rung: less the best rung's); None: no evidence."""
    standard_error: float | None
    """Day-clustered, of the difference."""


class PatchesDocument(Document):
    """What came of the patches that might be in the map."""

    outcome: Literal["confirmed", "not_confirmed", "none_due", "too_few_rows", "unit_sizes_unknown"]
    """`confirmed`: they are in the map, because fresh rows show that they help. There are none: fresh rows do not show
    it; no residual is large enough; an audit bucket has too few rows to show it; `scores.unit` is set, and cells do not
    say how many rows a unit has, without which nothing can be shown."""
    rows: int | None = None
    """Labelled rows of the smallest audit bucket, where they were looked at."""
    rows_needed: int | None = None
    """Of each audit bucket, to show a residual of the tolerance in a cell of mass gamma."""


class ChoicesDocument(Document):
    """What was let in by the evidence, and what it said."""

    rung: str
    """Name of the base map's kind: identity, platt, beta, isotonic, girb."""
    families_off: tuple[str, ...]
    """Names of the configured families that are off."""
    slopes: tuple[str, ...]
    """Names of the families that have slopes."""
    patches: bool
    """Whether the map has patches."""
    patches_tried: PatchesDocument | None = None
    """None: the evidence does not ask for patches."""
    days: int
    """Days of evidence."""
    rows: int
    """Labelled rows in them."""
    figures: tuple[FigureDocument, ...]
    evidence_sha256: str
    """Hash of the record of forward evidence that this was chosen by."""


class AuditCellDocument(Document):
    """One (group, interval of probability) on the certificate's buckets."""

    group: str
    """As `carrier=UA & origin=EWR`; `all` for everything."""
    lower: float
    upper: float
    mass: float
    """Share of the rows."""
    residual: float
    """Mean of label - probability."""
    half_width: float
    """Of its simultaneous interval."""


class CertificateDocument(Document):
    """What is claimed of the map on buckets that neither fit nor patches have seen."""

    status: Literal["certified", "violated", "uncertified"]
    """Every audit cell is within the tolerance of its interval; some cell is beyond it; the rows do not suffice to
    tell."""
    alpha: float | None
    """With probability 1 - delta no audit cell of mass gamma or more is further off than this. None: nothing is
    claimed, because there are no rows, or `scores.unit` is set and cells do not say how many rows a unit has."""
    gamma: float
    delta: float
    rows: int
    cells: int
    """Audit cells of enough mass."""
    smallest_detectable_alpha: float | None
    """What so many rows could have claimed at best; None without rows."""
    worst: AuditCellDocument | None
    """The cell that decides alpha: |residual| + half_width is largest."""

    @property
    def certified(self) -> bool:
        """Whether every audit cell is claimed to be within its tolerance."""
        return self.status == "certified"
