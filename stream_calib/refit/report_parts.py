"""The parts of a refit's report, from what the refit had in hand. Figures are by weight where events were thinned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.metrics import ReliabilityCurve, group_table_of_counts, reliability_curve_of_counts
from stream_calib.calibration.rounding import round_significant
from stream_calib.events.identity import UNIT_BUCKETS
from stream_calib.refit.evidence import PastPanes
from stream_calib.refit.gate_groups import JudgedGroup
from stream_calib.refit.gate_rows import GateCells, GateTraffic
from stream_calib.refit.labelled import PaneCells, one_after_another
from stream_calib.refit.roles import ROLES
from stream_calib.snapshot.decision_log import Request
from stream_calib.snapshot.difference import MOVED_BY
from stream_calib.snapshot.figures import rounded_figure
from stream_calib.snapshot.report_documents import (
    MOST_GROUPS,
    AskedDocument,
    ChangesDocument,
    GroupLine,
    GroupTableDocument,
    MovedShare,
    ReliabilityColumns,
    ReliabilityDocument,
    RoleRows,
    ShiftLine,
)

_MOST_ASKERS = 5
_DIGITS = 6
"""Of figures in long lists: they are there to be looked at, and every report is kept."""
_MOST_CHARACTERS = 300
"""Of one asker with the reason."""


def asked_document(request: Request, asked_by: Iterable[str], evidence_sha256: str | None = None) -> AskedDocument:
    """`asked_by`: who asked for it by hand, and why."""
    return AskedDocument(
        first_pane=request.first_pane,
        last_pane=request.last_pane,
        parent=request.parent,
        cells_sha256=request.cells_sha256,
        config_hash=request.config_hash,
        evidence_sha256=evidence_sha256,
        asked_by=tuple(text[:_MOST_CHARACTERS] for text in asked_by)[:_MOST_ASKERS],
    )


def role_rows(evidence: PastPanes) -> tuple[RoleRows, ...]:
    """The labelled rows that each role had, in the order in which they are used."""
    return (
        RoleRows(
            role="fit",
            unit_buckets=tuple(ROLES["fit"]),
            first_pane=evidence.first_pane,
            last_pane=evidence.last_pane,
            incomplete_panes=None,
            rows=evidence.fit_rows,
            positives=evidence.fit_positives,
        ),
        *_trailing_rows(("audit", "certificate"), evidence.audited_panes, evidence),
        *_trailing_rows(("gate",), evidence.gate_panes, evidence),
    )


def _trailing_rows(
    roles: Sequence[Literal["audit", "certificate", "gate"]], panes: Iterable[PaneCells], evidence: PastPanes
) -> Iterator[RoleRows]:
    """Of roles whose buckets are in the cells of these panes."""
    held = list(panes)
    cells, _ = one_after_another([pane for pane in held if pane.complete])
    rows, positives = (
        np.bincount(cells.unit_bucket, column, UNIT_BUCKETS) for column in (cells.labelled, cells.positives)
    )
    for role in roles:
        yield RoleRows(
            role=role,
            unit_buckets=tuple(ROLES[role]),
            first_pane=held[0].pane if held else evidence.first_pane,
            last_pane=evidence.last_pane,
            incomplete_panes=sum(not pane.complete for pane in held),
            rows=int(rows[ROLES[role]].sum()),
            positives=int(positives[ROLES[role]].sum()),
        )


def reliability_document(cells: GateCells) -> ReliabilityDocument | None:
    """Of what is served and of the candidate, on the same rows; None without labelled rows."""
    if not len(cells.labelled):
        return None
    labelled, positives = cells.weights.weighted(cells.labelled, cells.positives)
    served, candidate = (
        _columns(reliability_curve_of_counts(value, labelled, positives, overdispersion=_design_effect(cells)))
        for value in (cells.served, cells.candidate)
    )
    return ReliabilityDocument(served=served, candidate=candidate)


def _columns(curve: ReliabilityCurve) -> ReliabilityColumns:
    return ReliabilityColumns(
        probability=_figures(curve.mean_probability),
        rate=_figures(curve.rate),
        rows=_figures(curve.labelled),
        lower=_figures(curve.lower),
        upper=_figures(curve.upper),
    )


def group_table_document(cells: GateCells, judged_groups: Sequence[JudgedGroup]) -> GroupTableDocument | None:
    """Every group's rate against both probabilities, and what the gate finds; None without labelled rows.

    `judged_groups`: as `judge_groups` finds them.
    """
    if not len(cells.labelled):
        return None
    labelled, positives = cells.weights.weighted(cells.labelled, cells.positives)
    group_of = [family.group_of for family in cells.families]
    effect = _design_effect(cells)
    before, after = (
        group_table_of_counts(value, labelled, positives, group_of, overdispersion=effect)
        for value in (cells.served, cells.candidate)
    )
    # The first line is everything, of which the gate's own figures speak.
    own = np.flatnonzero(before.family >= 0)
    rate, lower, upper, served, candidate = (
        _rounded(column[own])
        for column in (
            before.rate,
            before.lower + before.mean_probability,
            before.upper + before.mean_probability,
            before.mean_probability,
            after.mean_probability,
        )
    )
    judged = {(group.family, group.group): group for group in judged_groups}
    groups = [judged[key] for key in zip(before.family[own].tolist(), before.group[own].tolist(), strict=True)]
    rows = np.array([group.rows for group in groups], dtype=np.float64)
    # Rows by which a group's positives are off what was said, before or after.
    off = _rounded(rows * np.maximum(np.abs(rate - served), np.abs(rate - candidate))).tolist()
    order = sorted(range(len(groups)), key=lambda i: (groups[i].verdict != "harmed", -off[i], groups[i].name))
    lines = tuple(
        GroupLine(
            name=groups[i].name,
            rows=groups[i].rows,
            rate=float(rate[i]),
            rate_lower=float(lower[i]),
            rate_upper=float(upper[i]),
            served=float(served[i]),
            candidate=float(candidate[i]),
            gain=_figure(groups[i].gain),
            gain_error=None if np.isnan(groups[i].error) else _figure(groups[i].error),
            verdict=groups[i].verdict,
        )
        for i in order[:MOST_GROUPS]
    )
    return GroupTableDocument(lines=lines, left_out=max(len(order) - MOST_GROUPS, 0))


def changes_document(traffic: GateTraffic) -> ChangesDocument | None:
    """What the candidate changes for whom; None where no score came."""
    total = int(traffic.events.sum())
    if not total:
        return None
    served, candidate = traffic.served.mean(axis=1), traffic.candidate.mean(axis=1)
    events = traffic.events.astype(np.float64)
    absolute = np.abs(candidate - served)
    names: list[str] = []
    columns: list[NDArray[np.float64]] = []
    for family in traffic.families:
        inside, size = family.group_of >= 0, len(family.names)
        group = family.group_of[inside]
        n, before, after = (
            np.bincount(group, column[inside], size) for column in (events, events * served, events * candidate)
        )
        used = np.flatnonzero(n > 0)
        names += [family.names[i] for i in used.tolist()]
        columns.append(np.stack([n[used], before[used] / n[used], after[used] / n[used]]))
    of_groups, rate_before, rate_after = np.concatenate([np.empty((3, 0)), *columns], axis=1)
    rate_before, rate_after = _rounded(rate_before), _rounded(rate_after)
    shifted = _rounded(of_groups * np.abs(rate_after - rate_before)).tolist()
    order = sorted(range(len(names)), key=lambda i: (-shifted[i], names[i]))
    return ChangesDocument(
        events=total,
        served=_figure(float(np.dot(events, served)) / total),
        candidate=_figure(float(np.dot(events, candidate)) / total),
        mean_absolute_shift=_figure(float(np.dot(events, absolute)) / total),
        moved=tuple(
            MovedShare(more_than=limit, share=_figure(float(events[absolute > limit].sum()) / total))
            for limit in MOVED_BY
        ),
        groups=tuple(
            ShiftLine(
                name=names[i],
                events=int(of_groups[i]),
                served=float(rate_before[i]),
                candidate=float(rate_after[i]),
            )
            for i in order[:MOST_GROUPS]
        ),
        left_out=max(len(order) - MOST_GROUPS, 0),
    )


def _design_effect(cells: GateCells) -> float:
    rows, positives = cells.labelled.astype(np.float64), cells.positives.astype(np.float64)
    return max(cells.weights.design_effect(rows, positives), 1.0)


def _figures(column: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(_rounded(column).tolist())


def _rounded(column: NDArray[np.float64]) -> NDArray[np.float64]:
    return round_significant(column, _DIGITS)


def _figure(value: float) -> float:
    return rounded_figure(value, _DIGITS)
