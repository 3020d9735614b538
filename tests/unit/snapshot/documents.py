"""Small valid documents for the tests."""

from __future__ import annotations

from typing import Any

from stream_calib.snapshot.decision_log import Request
from stream_calib.snapshot.fit_documents import AuditCellDocument, CertificateDocument, ChoicesDocument
from stream_calib.snapshot.map_documents import BaseMapDocument, FamilyDocument, OffsetDocument
from stream_calib.snapshot.model import LevelSnapshot, PsiGroupDocument, ReferenceDocument, StructureSnapshot
from stream_calib.snapshot.report import GateReport, RefitReport

GATE = GateReport(
    kind="structure",
    baseline=None,
    first_pane=1,
    last_pane=9,
    incomplete_panes=0,
    days=7,
    rows=900,
    positives=90,
    margin=0.02,
    role_overlap=0,
    passed=True,
)

CERTIFICATE = CertificateDocument(
    status="uncertified",
    alpha=0.09,
    gamma=0.01,
    delta=0.05,
    rows=9_000,
    cells=40,
    smallest_detectable_alpha=0.07,
    worst=AuditCellDocument(group="carrier=UA", lower=0.1, upper=0.2, mass=0.02, residual=0.03, half_width=0.06),
)


def choices(**change: Any) -> ChoicesDocument:
    fields: dict[str, Any] = {
        "rung": "platt",
        "families_off": (),
        "slopes": (),
        "patches": True,
        "days": 9,
        "rows": 100,
        "figures": (),
        "evidence_sha256": "ef",
    }
    return ChoicesDocument(**fields | change)


def structure(request_id: str = "r1", parent: str | None = None, **change: Any) -> StructureSnapshot:
    fields: dict[str, Any] = {
        "model": "m",
        "model_version": "1",
        "sequence": 1,
        "parent": parent,
        "request_id": request_id,
        "first_pane": 1,
        "last_pane": 9,
        "cells_sha256": "ab",
        "config_hash": "cd",
        "pane_ms": 1_000,
        "attributes": ("região", "device"),
        "base": BaseMapDocument(log_odds=(-2.0, 0.1, 2.0), value=(0.1, 0.4, 0.8), p_min=1e-6, strict_slope=1e-6),
        "families": (
            FamilyDocument(attributes=("região",), offsets=(OffsetDocument(values=("São Paulo",), offset=0.3),)),
        ),
        "level": 0.25,
        "p_min": 1e-6,
        "reference": ReferenceDocument(
            scored_per_pane=10.0,
            labelled_per_pane=9.5,
            psi_groups=(
                PsiGroupDocument(attribute=None, value=None, last_bins=(200, 401), rows=(5.0, 5.0), design_effect=None),
            ),
        ),
        "roles": {"fit": [0]},
        "rows": 900,
        "positives": 90,
        "gate": GATE,
    }
    return StructureSnapshot(**fields | change)


def level(structure_version: str, request_id: str, parent: str) -> LevelSnapshot:
    return LevelSnapshot(
        model="m",
        model_version="1",
        sequence=1,
        parent=parent,
        request_id=request_id,
        last_pane=12,
        cells_sha256="ab",
        config_hash="cd",
        structure=structure_version,
        level=-0.5,
        gate=GATE.model_copy(update={"kind": "level"}),
    )


def request(request_id: str, pane: int, parent: str | None = None) -> Request:
    return Request(
        pane=pane,
        id=request_id,
        kind="structure",
        reason="age",
        first_pane=1,
        last_pane=pane,
        cells_sha256="ab",
        parent=parent,
        roles={"fit": [0]},
        config_hash="cd",
    )


def report(request_id: str, outcome: Any = "published", pane: int = 9) -> RefitReport:
    return RefitReport(
        request_id=request_id, kind="structure", reason="age", pane=pane, outcome=outcome, detail="as it went"
    )
