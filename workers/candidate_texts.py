"""What a structure refit made, in plain words: what is in the map and why, and what its certificate claims."""

from __future__ import annotations

from collections.abc import Sequence

from stream_calib.snapshot.fit_documents import (
    AuditCellDocument,
    CertificateDocument,
    ChoicesDocument,
    FigureDocument,
    PatchesDocument,
)
from stream_calib.snapshot.report import GroupCoverage

_UNCOVERED_SHOWN = 5


def choice_rows(choices: ChoicesDocument) -> list[tuple[str, str]]:
    """What each line is about, and its text. Figures are of log-loss a row, with the thing less without it."""
    figures = {figure.name: figure for figure in choices.figures}
    if figures and all(figure.difference is None for figure in choices.figures):
        evidence = f"{choices.days} days are too few to choose by: all that is configured, on the default base map"
    else:
        evidence = f"losses of the day after each fit, {choices.days} days, {choices.rows:,} rows"
    derived = [name for figure in choices.figures if figure.on and (name := _after("derived ", figure.name))]
    rows = [
        ("chosen by", evidence),
        ("base map", choices.rung),
        ("families off", _listed("family ", choices.families_off, figures) or "none"),
        ("slopes", _listed("slopes ", choices.slopes, figures) or "none"),
    ]
    if any(_after("derived ", name) for name in figures):
        rows.append(("derived", _listed("derived ", derived, figures) or "none"))
    return [*rows, ("patches", patches_text(choices.patches_tried))]


def coverage_rows(coverage: Sequence[GroupCoverage], uncovered: Sequence[GroupCoverage] = ()) -> list[tuple[str, str]]:
    """How many scores have a label, the group that has the fewest, and the groups that are left out for that; nothing
    where that is not known."""
    rows = []
    parts = ("labelled", coverage[:1]), ("least labelled", coverage[1:2]), ("not fitted", uncovered[:_UNCOVERED_SHOWN])
    for about, found in parts:
        for group in found:
            share = "" if group.positive_share is None else f", {group.positive_share:.2%} of these positive"
            text = f"{group.coverage:.1%} of {group.scores:,.0f} scores: {group.labelled:,.0f} rows{share}"
            rows.append((about, text if group.name == "all" else f"{group.name}: {text}"))
    return rows


def patches_text(tried: PatchesDocument | None) -> str:
    """Whether the map has patches, and why or why not."""
    if tried is None:
        return "none: the losses do not ask for them"
    if tried.outcome == "unit_sizes_unknown":
        return "none: scores.unit is set, and without the rows of each unit nothing can be confirmed"
    if tried.outcome == "too_few_rows":
        return f"none: {tried.rows or 0:,} rows to confirm them by; {tried.rows_needed or 0:,} are needed"
    if tried.outcome == "none_due":
        return "none: no group is far enough off"
    if tried.outcome == "not_confirmed":
        return f"none: {tried.rows or 0:,} fresh rows do not confirm that they help"
    return f"confirmed by {tried.rows or 0:,} fresh rows"


def certificate_rows(certificate: CertificateDocument) -> list[tuple[str, str]]:
    """What the certificate claims, and the cell that decides it."""
    rows = f"{certificate.rows:,} fresh rows"
    if certificate.alpha is None:
        why = (
            "there are no fresh rows" if certificate.rows == 0 else "scores.unit is set, and sizes of units are unknown"
        )
        return [("certificate", f"claims nothing: {why}")]
    if certificate.alpha >= 1:
        text = f"claims nothing yet: {rows} do not suffice to know every group's range of probability"
        return [("certificate", text)]
    bound = f"any group's range of probability is off by at most {certificate.alpha:.3f}"
    bound += f" ({1 - certificate.delta:.0%} sure; ranges of at least {certificate.gamma:.1%} of the rows)"
    if certificate.status == "certified":
        text = f"certified on {rows}: {bound}"
    elif certificate.status == "violated":
        text = f"VIOLATED: {rows} show a group beyond its tolerance; {bound}"
    else:
        text = f"not certified: {rows} do not suffice; {bound}; no map could get below "
        text += f"{certificate.smallest_detectable_alpha or 0:.3f}"
    return [("certificate", text), *([("decided by", cell_text(certificate.worst))] if certificate.worst else [])]


def cell_text(cell: AuditCellDocument) -> str:
    """As `carrier=UA from 0.100 to 0.200, 2.0% of rows: true less served +0.030 +- 0.060`."""
    where = f"{cell.group} from {cell.lower:.3f} to {cell.upper:.3f}, {cell.mass:.1%} of rows"
    return f"{where}: true less served {cell.residual:+.3f} +- {cell.half_width:.3f}"


def _listed(kind: str, names: tuple[str, ...] | list[str], figures: dict[str, FigureDocument]) -> str:
    return ", ".join(name + _figure_text(figures.get(kind + name)) for name in names)


def _figure_text(figure: FigureDocument | None) -> str:
    if figure is None or figure.difference is None or figure.standard_error is None:
        return ""
    return f" ({figure.difference:+.5f} +- {figure.standard_error:.5f})"


def _after(start: str, name: str) -> str | None:
    return name[len(start) :] if name.startswith(start) else None
