"""What `snapshot show` and `snapshot refits` say of a candidate."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from stream_calib.snapshot.fit_documents import (
    ChoicesDocument,
    FigureDocument,
    PatchesDocument,
)
from stream_calib.snapshot.model import ResolvedSnapshot
from tests.unit.snapshot.documents import CERTIFICATE, structure
from workers.candidate_tables import candidate_table, snapshot_tables
from workers.candidate_texts import patches_text

CHOICES = ChoicesDocument(
    rung="platt",
    families_off=("origin",),
    slopes=("carrier",),
    patches=False,
    patches_tried=PatchesDocument(outcome="too_few_rows", rows=8_100, rows_needed=220_000),
    days=28,
    rows=127_000,
    figures=(
        FigureDocument(name="rung platt", on=True, difference=0.0001, standard_error=0.0002),
        FigureDocument(name="family origin", on=False, difference=0.0012, standard_error=0.0004),
        FigureDocument(name="slopes carrier", on=True, difference=-0.002, standard_error=0.001),
        FigureDocument(name="derived hour_of_day", on=True, difference=-0.004, standard_error=0.001),
        FigureDocument(name="derived day_of_week", on=False, difference=0.001, standard_error=0.001),
    ),
    evidence_sha256="ef",
)


def lines(*tables: object) -> list[str]:
    """Single spaces; continued lines are joined to their first."""
    output = StringIO()
    Console(file=output, width=80).print(*tables, sep="\n")
    assert max(map(len, output.getvalue().splitlines())) <= 80
    joined: list[str] = []
    for line in output.getvalue().splitlines():
        if line.startswith("  ") and joined and not joined[-1].startswith("Log-loss") and line.strip(" ─"):
            joined[-1] += " " + line
        else:
            joined.append(line)
    return [" ".join(line.split()) for line in joined if line.strip()]


def test_a_candidate_in_plain_words() -> None:
    assert lines(candidate_table(CHOICES, CERTIFICATE)) == [
        "chosen by losses of the day after each fit, 28 days, 127,000 rows",
        "base map platt",
        "families off origin (+0.00120 +- 0.00040)",
        "slopes carrier (-0.00200 +- 0.00100)",
        "derived hour_of_day (-0.00400 +- 0.00100)",
        "patches none: 8,100 rows to confirm them by; 220,000 are needed",
        "certificate not certified: 9,000 fresh rows do not suffice; any group's range of probability is off by at most"
        " 0.090 (95% sure; ranges of at least 1.0% of the rows); no map could get below 0.070",
        "decided by carrier=UA from 0.100 to 0.200, 2.0% of rows: true less served +0.030 +- 0.060",
    ]


@pytest.mark.parametrize(
    ("tried", "text"),
    [
        (None, "none: the losses do not ask for them"),
        (PatchesDocument(outcome="unit_sizes_unknown"), "none: scores.unit is set"),
        (PatchesDocument(outcome="none_due", rows=9, rows_needed=8), "none: no group is far enough off"),
        (PatchesDocument(outcome="not_confirmed", rows=9_000, rows_needed=8), "none: 9,000 fresh rows do not confirm"),
        (PatchesDocument(outcome="confirmed", rows=9_000, rows_needed=8), "confirmed by 9,000 fresh rows"),
    ],
)
def test_patches_have_a_reason(tried: PatchesDocument | None, text: str) -> None:
    assert patches_text(tried).startswith(text)


def test_certificates_that_certify_refute_or_claim_nothing() -> None:
    def first(**change: object) -> str:
        return lines(candidate_table(None, CERTIFICATE.model_copy(update=change)))[0]

    assert first(status="certified").startswith("certificate certified on 9,000 fresh rows: any group's range")
    assert first(status="violated").startswith(
        "certificate VIOLATED: 9,000 fresh rows show a group beyond its tolerance"
    )
    assert first(alpha=None).endswith("claims nothing: scores.unit is set, and sizes of units are unknown")
    assert first(alpha=None, rows=0) == "certificate claims nothing: there are no fresh rows"


def test_a_young_record_decides_nothing_and_says_so() -> None:
    young = tuple(figure.model_copy(update={"difference": None, "standard_error": None}) for figure in CHOICES.figures)
    shown = lines(candidate_table(CHOICES.model_copy(update={"days": 3, "figures": young}), None))
    assert shown[0].startswith("chosen by 3 days are too few to choose by")


def test_a_snapshot_shows_its_data_and_every_figure() -> None:
    document = structure(choices=CHOICES, certificate=CERTIFICATE)
    shown = lines(*snapshot_tables(ResolvedSnapshot("000012-89", 12, "000011-ab", document, -0.25), 3_600_000))
    assert shown[:4] == ["Snapshot", "version 000012-89", "structure 000011-ab", "level -0.2500 in log-odds"]
    assert any(line.startswith("certificate not certified") for line in shown)
    for row in (
        "family origin no +0.00120 0.00040",
        "derived day_of_week no +0.00100 0.00100",
        "rung platt yes +0.00010 0.00020",
    ):
        assert any(row in line for line in shown)


def test_a_snapshot_without_choices_shows_its_data() -> None:
    shown = lines(*snapshot_tables(ResolvedSnapshot("a", 1, "a", structure(), 0.0), 3_600_000))
    assert len(shown) == 6
    assert shown[-1].startswith("rows ")


def test_a_certificate_of_few_rows_claims_nothing() -> None:
    few = CERTIFICATE.model_copy(update={"alpha": 1.0, "rows": 40, "smallest_detectable_alpha": 1.0})
    assert lines(candidate_table(CHOICES, few))[-1] == (
        "certificate claims nothing yet: 40 fresh rows do not suffice to know every group's range of probability"
    )
