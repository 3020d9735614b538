"""The snapshot: one immutable calibrator with its reference statistics and gate report, as documents.

A *structure* snapshot holds everything. A *level* snapshot is small: it replaces only the common offset of the
structure snapshot that it names. A version is `<sequence, six digits>-<first 12 hex digits of the SHA-256 of the
canonical bytes>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from stream_calib.drift.psi import PsiReference, ReferenceGroup
from stream_calib.errors import DamagedSnapshotError, StreamCalibError
from stream_calib.snapshot.canonical import sha256_hex
from stream_calib.snapshot.document import Document, ExtendedDocument
from stream_calib.snapshot.fit_documents import CertificateDocument, ChoicesDocument, DerivedDocument
from stream_calib.snapshot.map_documents import MapDocument, PredicateDocument
from stream_calib.snapshot.report import GateReport


class PsiGroupDocument(Document):
    """See `ReferenceGroup`."""

    attribute: str | None
    value: str | None
    last_bins: tuple[int, ...]
    rows: tuple[float, ...]
    design_effect: float | None


class WatchedCellDocument(ExtendedDocument):
    """One cell of a detector."""

    later = frozenset({"interval", "coverage"})

    values: tuple[str, ...]
    """The group, as in `OffsetDocument`; of everything, `all`."""
    interval: int | None = None
    """Place of the interval of probability; None: the whole group."""
    epsilon: float
    """How far off may be what is watched, in probability."""
    coverage: float | None = None
    """Share of the scores that had a label; only where that is what is watched."""


class WatchedFamilyDocument(ExtendedDocument):
    """Disjoint cells of one attribute, intersection or predicate, or of everything."""

    later = frozenset({"predicate"})

    attributes: tuple[str, ...]
    predicate: PredicateDocument | None = None
    phi: float
    """Overdispersion, at least 1."""
    cells: tuple[WatchedCellDocument, ...]


class WatchedDocument(Document):
    """What detectors of outcomes, or of labels that are missing, watch; see `WatchedCells`."""

    edges: tuple[float, ...]
    """Of the intervals of probability, from 0 to 1."""
    families: tuple[WatchedFamilyDocument, ...]


class ReferenceDocument(ExtendedDocument):
    """Statistics of the fit window, frozen: what drift is measured against, and the budget's unit of time."""

    later = frozenset({"residual", "selection"})

    scored_per_pane: float
    labelled_per_pane: float
    psi_groups: tuple[PsiGroupDocument, ...]
    residual: WatchedDocument | None = None
    """Whose outcomes are watched; None: nothing is known yet of how they vary."""
    selection: WatchedDocument | None = None
    """Whose labels are watched; None: as above."""


class _Snapshot(Document):
    format: Literal[1] = 1
    model: str
    model_version: str
    sequence: int = Field(ge=1, le=999_999)
    parent: str | None
    """The version that was current before."""
    request_id: str
    last_pane: int
    """Last matured pane used."""
    cells_sha256: str
    """Chain hash of the matured blobs used."""
    config_hash: str
    level: float
    """Common offset in log-odds."""
    gate: GateReport


class StructureSnapshot(_Snapshot, MapDocument):
    """The map stands in it part by part, beside what it was made of and what is claimed of it."""

    later = MapDocument.later | {"derived", "choices", "certificate"}

    kind: Literal["structure"] = "structure"
    grid: Literal["v1"] = "v1"
    first_pane: int
    pane_ms: int
    attributes: tuple[str, ...]
    """The configured ones, in the order of a signature's values."""
    derived: DerivedDocument | None = None
    """What follows them in the signatures of the map; None: nothing."""
    reference: ReferenceDocument
    roles: dict[str, list[int]]
    rows: int
    """Labelled rows of the fit, not decayed."""
    positives: int
    choices: ChoicesDocument | None = None
    certificate: CertificateDocument | None = None

    @property
    def map_attributes(self) -> tuple[str, ...]:
        """In the order of the values of a signature as the map takes it."""
        return self.attributes + (() if self.derived is None else self.derived.names)


class LevelSnapshot(_Snapshot):
    kind: Literal["level"] = "level"
    structure: str
    """Version of the structure snapshot."""


Snapshot: TypeAlias = StructureSnapshot | LevelSnapshot
_ADAPTER: TypeAdapter[Snapshot] = TypeAdapter(Annotated[Snapshot, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class ResolvedSnapshot:
    """What a version serves: a structure with a level."""

    version: str
    sequence: int
    structure_version: str
    structure: StructureSnapshot
    level: float


def version_of(sequence: int, encoded: bytes) -> str:
    """The version of the canonical bytes of a snapshot with this sequence number."""
    return f"{sequence:06d}-{sha256_hex(encoded)[:12]}"


def sequence_of(version: str) -> int:
    """The sequence number in a version. Raises DamagedSnapshotError where the text is no version."""
    number, dash, digest = version.partition("-")
    if not (number.isascii() and number.isdigit() and dash and len(digest) == 12):
        raise DamagedSnapshotError(f"{version!r} is not a snapshot version, as 000012-89abcdef0123")
    return int(number)


def decode_snapshot(version: str, encoded: bytes) -> Snapshot:
    """The snapshot with this version.

    Raises DamagedSnapshotError where the bytes are not those that the version was made of, or not of a known schema.
    """
    sequence = sequence_of(version)
    if version_of(sequence, encoded) != version:
        found = sha256_hex(encoded)[:12]
        raise DamagedSnapshotError(f"snapshot {version}: its {len(encoded)} bytes hash to {found}; they were damaged")
    try:
        snapshot = _ADAPTER.validate_json(encoded)
    except ValidationError as error:
        raise DamagedSnapshotError(f"snapshot {version} is not of a known schema (format 1): {error}") from error
    if snapshot.sequence != sequence or snapshot.encode() != encoded:
        raise DamagedSnapshotError(f"snapshot {version}: bytes not canonical, or of sequence {snapshot.sequence}")
    return snapshot


def resolve(version: str, snapshot: Snapshot, structure: Snapshot | None) -> ResolvedSnapshot:
    """A snapshot with its structure (`structure` None: it is its own). Raises DamagedSnapshotError where they do not
    fit."""
    if isinstance(snapshot, StructureSnapshot):
        return ResolvedSnapshot(version, snapshot.sequence, version, snapshot, snapshot.level)
    if not isinstance(structure, StructureSnapshot):
        raise DamagedSnapshotError(f"level snapshot {version}: {snapshot.structure} is no structure snapshot")
    return ResolvedSnapshot(version, snapshot.sequence, snapshot.structure, structure, snapshot.level)


def psi_reference(structure: StructureSnapshot) -> PsiReference:
    """The PSI reference as arrays. Raises DamagedSnapshotError where the document cannot be one."""
    try:
        groups = [
            ReferenceGroup(g.attribute, g.value, g.last_bins, g.rows, g.design_effect)
            for g in structure.reference.psi_groups
        ]
        return PsiReference(groups, structure.reference.scored_per_pane)
    except (ValueError, IndexError, StreamCalibError) as error:
        number = f"{structure.sequence:06d}"
        raise DamagedSnapshotError(f"PSI reference of snapshot {number} cannot be used: {error}") from error
