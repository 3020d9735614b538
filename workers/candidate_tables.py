"""`snapshot show` and the last candidate of `snapshot refits`, within 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.snapshot.fit_documents import CertificateDocument, ChoicesDocument, FigureDocument
from stream_calib.snapshot.model import ResolvedSnapshot
from stream_calib.snapshot.report import GroupCoverage
from workers.candidate_texts import certificate_rows, choice_rows, coverage_rows
from workers.time_text import utc_of_pane


def candidate_table(
    choices: ChoicesDocument | None,
    certificate: CertificateDocument | None,
    coverage: Sequence[GroupCoverage] = (),
    uncovered: Sequence[GroupCoverage] = (),
) -> Table:
    """What is in the map and why, what its certificate claims, and how many scores have labels."""
    rows = [] if choices is None else choice_rows(choices)
    rows += [] if certificate is None else certificate_rows(certificate)
    return facts_table([*rows, *coverage_rows(coverage, uncovered)])


def snapshot_tables(snapshot: ResolvedSnapshot, pane_ms: int) -> list[Table]:
    """Data and map of a snapshot, and the figures by which the map was chosen."""
    structure = snapshot.structure
    rows = [
        ("version", snapshot.version),
        ("structure", snapshot.structure_version),
        ("level", f"{snapshot.level:+.4f} in log-odds"),
        (
            "fitted to",
            f"{utc_of_pane(structure.first_pane, pane_ms)} until {utc_of_pane(structure.last_pane + 1, pane_ms)}",
        ),
        ("rows", f"{structure.rows:,} labelled, {structure.positives:,} of them positive"),
    ]
    choices, certificate = structure.choices, structure.certificate
    rows += [] if choices is None else choice_rows(choices)
    rows += [] if certificate is None else certificate_rows(certificate)
    tables = [facts_table(rows, title="Snapshot")]
    if choices is not None and any(figure.difference is not None for figure in choices.figures):
        tables.append(_figures(choices.figures))
    return tables


def facts_table(rows: Iterable[tuple[str, str]], title: str | None = None) -> Table:
    """What each line is about, and its text."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table


def _figures(figures: Iterable[FigureDocument]) -> Table:
    """A rung's figure is against the best rung, all others' against the map without it; below 0 it helps."""
    table = Table(title="Log-loss a row, with it less without it", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("what")
    table.add_column("in the map")
    table.add_column("difference", justify="right")
    table.add_column("standard error", justify="right")
    for figure in figures:
        numbers = (
            "-" if figure.difference is None else f"{figure.difference:+.5f}",
            "-" if figure.standard_error is None else f"{figure.standard_error:.5f}",
        )
        table.add_row(figure.name, "yes" if figure.on else "no", *numbers)
    return table
