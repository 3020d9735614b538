"""Audits of a candidate on buckets of their own: patches where they were chosen, the certificate always."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stream_calib.calibration.groups import Family, Signature, make_family
from stream_calib.calibration.labelled_cells import LabelledCells, together
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.multicalibration.audit import EVERYTHING, audit
from stream_calib.calibration.multicalibration.certificate import Certificate, certify
from stream_calib.calibration.multicalibration.finite import multicalibrate_cells
from stream_calib.calibration.multicalibration.round_search import ServedCells
from stream_calib.calibration.multicalibration.target import AuditTarget
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.derived import time_attributes
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.labelled import trailing_cells
from stream_calib.refit.roles import ROLES
from stream_calib.refit.row_weights import RowWeights
from stream_calib.snapshot.figures import rounded_figure
from stream_calib.snapshot.fit_documents import AuditCellDocument, CertificateDocument, PatchesDocument


@dataclass(frozen=True, slots=True)
class AuditedCells:
    """Cells of the roles, over one table of signatures: `fit` decayed by age, the others of the last 28 days, whole."""

    fit: LabelledCells
    audits: tuple[LabelledCells, ...]
    """One for each audit bucket."""
    certificate: LabelledCells
    largest_weight: float
    """No row of the audits or the certificate counts for more."""


def audited_cells(
    fit: LabelledCells, evidence: PastPanes, derived: tuple[str, ...], signatures: Signatures, config: Config
) -> AuditedCells:
    """The cells of all roles; those of the fit keep their order, and their signatures come first."""
    trailing = trailing_cells(
        evidence.audited_panes, signatures, time_attributes(config, derived), RowWeights.of(config)
    )
    table: dict[Signature, int] = {signature: place for place, signature in enumerate(fit.signatures)}
    place = np.array([table.setdefault(signature, len(table)) for signature in trailing.cells.signatures], np.intp)
    everything, cells = tuple(table), trailing.cells

    def of(buckets: Sequence[int]) -> LabelledCells:
        chosen = np.flatnonzero(np.isin(trailing.unit_bucket, buckets))
        own = cells.rows(chosen)
        return LabelledCells(everything, place[own.signature], own.grid_bin, own.labelled, own.positives)

    return AuditedCells(
        fit=LabelledCells(everything, fit.signature, fit.grid_bin, fit.labelled, fit.positives),
        audits=tuple(of([bucket]) for bucket in ROLES["audit"]),
        certificate=of(ROLES["certificate"]),
        largest_weight=trailing.weights.largest,
    )


def audit_target(config: Config) -> AuditTarget:
    """What is asked of every audit cell. Raises ConfigurationError."""
    calibration = config.calibration
    return AuditTarget(calibration.gamma, calibration.alpha_abs, calibration.alpha_rel)


def patch_parts(
    parts: MapParts, audited: AuditedCells, families: Sequence[Family], config: Config
) -> tuple[MapParts, PatchesDocument]:
    """The parts with the rounds of patches that fresh rows confirm, and what came of them. Raises FitError.

    `parts`: without level, because they are audited on weeks. Where the audit buckets have too few rows to confirm
    anything there are no patches.
    """
    made = multicalibrate_cells(
        audited.fit,
        audited.audits,
        audited.certificate,
        families,
        parts,
        target=audit_target(config),
        delta=config.calibration.delta,
        kappa=config.calibration.kappa,
        largest_unit=audited.largest_weight,
    )
    rows = int(min(cells.labelled.sum() for cells in audited.audits))
    needed = math.ceil(made.rows_needed)
    if not made.confirmable:
        return parts, PatchesDocument(outcome="too_few_rows", rows=rows, rows_needed=needed)
    outcome: Literal["confirmed", "not_confirmed", "none_due"]
    outcome = "confirmed" if made.parts.rounds else "not_confirmed" if made.rounds else "none_due"
    return made.parts, PatchesDocument(outcome=outcome, rows=rows, rows_needed=needed)


def certify_parts(
    parts: MapParts, audited: AuditedCells, families: Sequence[Family], config: Config
) -> CertificateDocument:
    """The certificate of parts as they are."""
    target, served = audit_target(config), ServedCells(parts)
    all_families = [make_family(EVERYTHING, audited.fit.signatures), *families]
    seen = together([audited.fit, *audited.audits])
    made = certify(
        audit(audited.certificate, served.on(audited.certificate), all_families, target),
        float(audited.certificate.labelled.sum()),
        audit(seen, served.on(seen), all_families, target),
        float(seen.labelled.sum()),
        target,
        config.calibration.delta,
        audited.largest_weight,
    )
    return _document(made, config)


def _document(made: Certificate, config: Config) -> CertificateDocument:
    # How many rows a unit has is not in the cells; where units are not single events, no bound follows from them.
    bounded = config.scores.unit is None and made.total_rows > 0
    deciding = None
    if len(made.rows):
        # The certificate's order is by the tolerances of the intervals; alpha is in probability.
        place = int((np.abs(made.residual) + made.half_width).argmax())
        interval = int(made.interval[place])
        deciding = AuditCellDocument(
            group=made.families[made.family[place]].names[made.group[place]],
            lower=made.target.edges[interval],
            upper=made.target.edges[interval + 1],
            mass=rounded_figure(float(made.rows[place]) / max(made.total_rows, 1.0)),
            residual=rounded_figure(float(made.residual[place])),
            half_width=rounded_figure(float(made.half_width[place])),
        )
    return CertificateDocument(
        status=made.status if bounded else "uncertified",
        alpha=rounded_figure(made.alpha_claimed) if bounded else None,
        gamma=made.target.gamma,
        delta=made.delta,
        rows=int(made.total_rows),
        cells=len(made.rows),
        smallest_detectable_alpha=rounded_figure(made.detectable_alpha) if bounded else None,
        worst=deciding,
    )
