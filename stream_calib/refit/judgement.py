"""A candidate beside what is served, on the rows of the gate: all that a report says of the two."""

from __future__ import annotations

from dataclasses import dataclass

from stream_calib.config import Config
from stream_calib.drift.psi_window import Signatures
from stream_calib.refit.decisions import decision_impacts
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.gate import GateFigures, gate_figures
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells, gate_traffic
from stream_calib.refit.gate_groups import judge_groups
from stream_calib.refit.gate_rows import GateLosses
from stream_calib.refit.min_coverage import Uncovered
from stream_calib.refit.report_parts import changes_document, group_table_document, reliability_document
from stream_calib.snapshot.report_documents import (
    ChangesDocument,
    DecisionImpact,
    GroupTableDocument,
    ReliabilityDocument,
)


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """A function of the panes, of the two maps, and of the families and decisions that are configured."""

    figures: GateFigures
    decisions: tuple[DecisionImpact, ...]
    reliability: ReliabilityDocument | None
    groups: GroupTableDocument | None
    changes: ChangesDocument | None


def judgement(
    evidence: PastPanes,
    served: JudgedMap | None,
    candidate: JudgedMap,
    uncovered: Uncovered,
    signatures: Signatures,
    config: Config,
) -> Judgement:
    """`served` None: the raw score. `uncovered`: groups that are not judged as groups."""
    cells = gate_cells(evidence, signatures, config, served, candidate, uncovered)
    traffic = gate_traffic(evidence, signatures, config, served, candidate)
    losses = GateLosses.of(cells)
    judged = judge_groups(cells, losses)
    return Judgement(
        figures=gate_figures(cells, losses, judged),
        decisions=decision_impacts(traffic, config.decisions, config.refit.max_decision_shift),
        reliability=reliability_document(cells),
        groups=group_table_document(cells, judged),
        changes=changes_document(traffic),
    )
