"""The report stands alone, says what it was given, and is the same every time."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from stream_calib.demo.report import render_report
from stream_calib.demo.report_data import PsiSeries, ReportData
from tests.demo.made_up import report_data

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Outline(HTMLParser):
    """Text, attributes, and whether every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def data() -> ReportData:
    return report_data()


@pytest.fixture(scope="module")
def page(data: ReportData) -> str:
    return render_report(data)


def test_the_page_refers_to_nothing_outside_itself(page: str) -> None:
    attributes = Outline(page).attributes

    assert attributes
    assert not [a for a in attributes if a[0] in ("script", "link", "img", "iframe") or a[1] in ("src", "href")]
    assert not re.search(r"https?:|//\w|url\(|@import", page)


def test_the_page_is_well_formed_and_each_chart_is_xml_with_a_name(page: str) -> None:
    assert Outline(page).open == []
    charts = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert [c.get("aria-label", "")[:11] for c in charts] == [
        "Reliability",
        "Reliability",
        "Mean residu",
        "Daily log-l",
    ]


def test_the_same_data_give_the_same_bytes(data: ReportData, page: str) -> None:
    assert render_report(data) == page
    assert render_report(report_data()) == page


def test_the_headline_and_the_counts_are_those_given(data: ReportData, page: str) -> None:
    text = Outline(page).text

    assert "Log-loss 0.5239 0.5037 \u22123.9 %" in text
    assert "Worst group error 13.1 % 2.0 % \u221284.7 %" in text
    assert "AUC 0.6712 0.6899 +2.8 %" in text
    f = data.figures.refits
    assert f"{f.requested:,} asked for, {f.published:,} published, {f.refused:,} refused" in text
    assert "joined 277,337" in text
    assert "still open" in text


def test_every_refit_and_alert_is_on_the_time_line_at_its_time(data: ReportData, page: str) -> None:
    svg = ElementTree.fromstring(re.findall(r"<svg.*?</svg>", page, re.DOTALL)[-1])
    marks = [(e.get("class", ""), e) for e in svg.iter() if e.get("class", "").startswith("event ")]

    assert len(marks) == len(data.refits) + len(data.alerts)
    at = {"published": [], "refused": []}  # type: dict[str, list[float]]
    for css, mark in marks:
        if not css.startswith("event alert"):
            at[css.removeprefix("event ")].append(float(mark.get("x1", "nan")))
    for outcome, places in at.items():
        times = [r.time_ms for r in data.refits if r.outcome == outcome]
        assert np.corrcoef(times, places)[0, 1] == pytest.approx(1, abs=1e-6)


def test_alerts_are_grouped_by_kind_the_most_severe_first(data: ReportData, page: str) -> None:
    text = Outline(page).text

    heads = ["critical label outage once", "warning psi 3 times, open ", "info refit refused once"]
    places = [text.index(head) for head in heads]
    assert places == sorted(places)
    assert page.count("<details") == 3
    days = (data.last_ms - data.first_ms) / 86_400_000
    open_days = 3 + 9 + (data.last_ms - data.alerts[-1].opened_ms) / 86_400_000
    assert f"3 times, open {100 * open_days / days:.0f} % of the time, still open" in text.replace("\xa0", " ")


def test_a_refusal_names_its_reasons_and_they_are_counted(data: ReportData, page: str) -> None:
    text = Outline(page).text

    refused = [r for r in data.refits if r.outcome == "refused"]
    both = sum("auc_drop" in r.refused_for for r in refused)
    assert f"no gain {len(refused)} AUC drop {both}" in text
    assert f"{refused[0].gain:+.4f}".replace("-", "\u2212") in text


def test_text_from_outside_cannot_become_markup() -> None:
    page = render_report(report_data(alert_message='<script>alert("x")</script> & more'))

    assert "<script" not in page
    assert 'alert("x") & more' in Outline(page).text.replace("<script>", "").replace("</script>", "")
    assert Outline(page).open == []


def test_a_short_run_without_refits_alerts_or_psi_is_drawn_too(data: ReportData) -> None:
    nothing = np.empty(0)
    empty = PsiSeries(np.empty(0, np.int64), nothing, nothing)

    text = Outline(render_report(replace(data, refits=[], alerts=[], psi=empty))).text

    assert "None was opened." in text
    assert "refits published 0" in text
