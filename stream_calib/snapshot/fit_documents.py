"""What a structure snapshot says of how it was made: what was chosen to be in it, and what its certificate claims."""

from __future__ import annotations

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


class ChoicesDocument(Document):
    """What was let in by the evidence, and what it said."""

    rung: str
    """Name of the base map's kind: identity, platt, beta, isotonic, girb."""
    families_off: tuple[str, ...]
    """Names of the configured families that are off."""
    slopes: tuple[str, ...]
    """Names of the families that have slopes."""
    patches: bool
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

    certified: bool
    """False: `uncertified`, the data do not suffice."""
    alpha: float | None
    """With probability 1 - delta no audit cell of mass gamma or more is further off than this."""
    gamma: float
    delta: float
    rows: int
    cells: int
    """Audit cells of enough mass."""
    smallest_detectable_alpha: float | None
    """What so many rows could have claimed at best; None without rows."""
    worst: AuditCellDocument | None
    """The cell that decides alpha."""
