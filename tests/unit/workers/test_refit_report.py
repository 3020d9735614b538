"""The report of a refit for people: a page that holds everything, and tables of a terminal's width."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from stream_calib.calibration.groups import CellGroups
from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from stream_calib.refit.decisions import decision_impacts
from stream_calib.refit.gate import judge_candidate
from stream_calib.refit.gate_groups import judge_groups
from stream_calib.refit.gate_rows import GateLosses, GateTraffic
from stream_calib.refit.report_parts import (
    changes_document,
    group_table_document,
    reliability_document,
    role_rows,
)
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.report_documents import AskedDocument
from tests.demo.test_report import Outline
from tests.unit.refit.test_decisions import evidence_of
from tests.unit.refit.test_gate import CONFIG, Data, window
from tests.unit.snapshot.documents import CERTIFICATE, choices
from tests.unit.snapshot.documents import report as bare_report
from workers.cli_refits import chosen_report
from workers.refit_page import refit_page
from workers.refit_tables import report_tables

KEY = ModelKey("flights", "2")
PANE_MS = 3_600_000
NASTY = "<script>alert('x')</script> & more"


def whole_report(**change: Any) -> RefitReport:
    """Everything that there may be: one group is harmed, one decision changes for many."""
    data = Data(8_000)
    data.names[2] = f"plan={NASTY}"
    served = np.where(data.group == 2, data.truth, data.moved(1.0))
    candidate = np.where(data.group == 2, data.moved(1.5), data.truth)
    cells = data.cells(served, candidate)
    edges, moved = (np.stack([p, p], axis=1) for p in (served, candidate))
    groups = [CellGroups(data.names, data.group)]
    traffic = GateTraffic(data.day, data.bucket, np.ones(8_000, np.int64), edges, moved, groups)
    refit = CONFIG.model_copy(update={"max_decision_shift": 0.05})
    impacts = decision_impacts(traffic, {"decline": 0.4}, 0.05)
    gate = judge_candidate(cells, window(baseline="000011-0123456789ab"), refit, impacts)
    report = RefitReport(
        request_id="0a1b2c3d4e5f6071",
        kind="structure",
        reason="manual",
        pane=480_000,
        outcome="refused",
        detail="; ".join(reason.detail for reason in gate.reasons),
        choices=choices(families_off=("origin",)),
        certificate=CERTIFICATE,
        gate=gate,
        asked=AskedDocument(
            first_pane=479_000,
            last_pane=480_000,
            parent="000011-0123456789ab",
            cells_sha256="ab" * 32,
            config_hash="cd" * 32,
            evidence_sha256="ef" * 32,
            asked_by=("ann: new fares",),
        ),
        roles=role_rows(evidence_of((100, 20))),
        reliability=reliability_document(cells),
        groups=group_table_document(cells, judge_groups(cells, GateLosses.of(cells))),
        changes=changes_document(traffic),
    )
    return report.model_copy(update=change)


@pytest.fixture(scope="module")
def report() -> RefitReport:
    return whole_report()


@pytest.fixture(scope="module")
def page(report: RefitReport) -> str:
    return refit_page(report, KEY, PANE_MS)


def test_the_page_refers_to_nothing_outside_itself(page: str) -> None:
    attributes = Outline(page).attributes
    assert attributes
    assert not [a for a in attributes if a[0] in ("script", "link", "img", "iframe") or a[1] in ("src", "href")]
    assert not re.search(r"https?:|//\w|url\(|@import", page)


def test_the_page_is_well_formed_and_its_charts_have_names(page: str) -> None:
    assert Outline(page).open == []
    charts = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert [chart.get("aria-label", "").partition(" of ")[0] for chart in charts] == [
        "Reliability diagram",
        "Mean residual by group, served and candidate",
    ]
    scrolled = [line for line in page.splitlines() if 'class="scroll"' in line or 'class="sideways"' in line]
    assert scrolled
    assert all('tabindex="0"' in line and "aria-label" in line for line in scrolled)


def test_text_from_outside_cannot_become_markup(page: str) -> None:
    assert "<script" not in page
    assert NASTY in Outline(page).text


def test_the_page_says_what_was_asked_and_why_it_was_refused(page: str, report: RefitReport) -> None:
    text = Outline(page).text
    assert "Refit of flights/2: refused" in text
    assert "asked by ann: new fares" in text
    assert "served then 000011-0123456789ab" in text
    assert report.gate is not None
    for reason in report.gate.reasons:
        assert " ".join(reason.detail.split()) in text
    assert "the decision decline (at 0.4) changes for" in text
    assert f"{report.gate.loss_served:.5f} {report.gate.loss_candidate:.5f}" in text
    assert "fit 0-11 2024-10-04 00:00 100 50" in text
    assert "No unit bucket has two roles." in text
    assert "not certified: 9,000 fresh rows do not suffice" in text
    assert "ab" * 32 in text


def test_the_page_names_each_group_with_its_verdict(page: str, report: RefitReport) -> None:
    text = Outline(page).text
    assert report.groups is not None
    for line in report.groups.lines:
        assert re.search(rf"{re.escape(line.name)} {line.rows:,} {line.rate:.4f} .* (harmed|better)", text)


def test_a_report_without_anything_is_a_page_and_a_table_too() -> None:
    bare = bare_report("r1", "failed")
    text = Outline(refit_page(bare, KEY, PANE_MS)).text
    assert "Refit of flights/2: failed" in text
    assert "because as it went" in text
    assert "Reliability" not in text
    assert ["because", "as", "it", "went"] in [line.split() for line in shown(bare)]


def test_a_candidate_that_is_held_says_what_it_waits_for() -> None:
    held = bare_report("r1", "held").model_copy(update={"version": "000012-89abcdef0123"})
    assert "waits for `stream-calib snapshot approve 000012-89abcdef0123`" in " ".join(" ".join(shown(held)).split())
    approved = refit_page(held, KEY, PANE_MS, "approved by ann: checked")
    assert "then approved by ann: checked" in Outline(approved).text
    assert "waits for" not in approved


def shown(report: RefitReport) -> list[str]:
    output = StringIO()
    Console(file=output, width=80).print(*report_tables(report, PANE_MS), sep="\n")
    return output.getvalue().splitlines()


def test_tables_fit_into_80_columns_and_say_the_same(report: RefitReport) -> None:
    lines = shown(report)
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "group_harmed" not in text
    assert "What changes for whom, of 8,000 scores" in text
    assert re.search(r"Decision decline \(at 0.4\): \d+\.\d\d% of 8,000 events come to it", text)
    assert re.search(r"gate 16-19 2024-10-04 00:00 100 50", text)


def test_the_newest_report_of_a_request_or_version_is_chosen() -> None:
    reports = [bare_report(name, "published").model_copy(update={"version": f"{name}v"}) for name in ("a", "b", "a")]
    assert chosen_report(reports, None, KEY) is reports[2]
    assert chosen_report(reports, "a", KEY) is reports[2]
    assert chosen_report(reports, "bv", KEY) is reports[1]


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ([], "no refit of flights/2 has ended yet"),
        ([bare_report("a")], "r9 is neither a request nor a version among the 1 kept reports of flights/2"),
    ],
)
def test_a_report_that_is_not_there_is_said(reports: list[RefitReport], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        chosen_report(reports, "r9", KEY)


def test_reports_of_before_keep_their_bytes() -> None:
    old = bare_report("r1").encode()
    assert set(re.findall(rb'"(\w+)":', old)) == {
        *(b"request_id kind reason pane outcome detail version rows positives choices certificate gate".split()),
        *(b"coverage uncovered".split()),
    }
    assert RefitReport.decode(old).encode() == old
    whole = whole_report()
    assert RefitReport.decode(whole.encode()) == whole
