"""The candidate of a structure refit: what the evidence chooses, fitted, as the map that would be served."""

from __future__ import annotations

from dataclasses import dataclass

from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.choice import choose
from stream_calib.refit.derived import time_attributes
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.fit import StructureFit, fit_structure
from stream_calib.refit.forward_evidence import ForwardRecord
from stream_calib.refit.gate_evidence import JudgedMap
from stream_calib.refit.group_coverage import group_coverage
from stream_calib.snapshot.compiled import map_document, map_parts
from stream_calib.snapshot.map_documents import MapDocument
from stream_calib.snapshot.report import GroupCoverage


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A function of the panes and of the configuration's part that fits depend on; of no snapshot."""

    fit: StructureFit
    document: MapDocument
    map: JudgedMap
    """The map of the documents: judged is what will be read."""
    coverage: tuple[GroupCoverage, ...]
    evidence_sha256: str
    """Of the record of forward evidence that it was chosen by."""


def make_candidate(evidence: PastPanes, record: ForwardRecord, signatures: Signatures, config: Config) -> Candidate:
    """Raises the FitError family."""
    record_sha256 = record.sha256
    choice = choose(record.variants, record.days, record_sha256, config)
    fit = fit_structure(evidence, choice, signatures, config)
    document = map_document(fit.parts)
    attributes = (*config.scores.attributes, *choice.derived)
    served = ServedMap(map_parts(attributes, document, fit.parts.level))
    return Candidate(
        fit=fit,
        document=document,
        map=JudgedMap(served, time_attributes(config, choice.derived)),
        coverage=group_coverage(evidence, signatures, config),
        evidence_sha256=record_sha256,
    )
