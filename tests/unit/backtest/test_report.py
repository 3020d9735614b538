"""The report of a backtest stands alone, says what it was given, stays small, and is the same every time."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from stream_calib.backtest.document import BacktestDocument, Interval, Optimism, decode_document
from stream_calib.backtest.outcome import GroupFigures, Sums
from stream_calib.backtest.report.page import render_report
from stream_calib.backtest.report.policy_table import MOST_POLICIES
from stream_calib.errors import BacktestError
from tests.demo.test_report import Outline
from tests.unit.backtest.made_up_results import document

NASTY = "<script>alert('x')</script> & \"more\""


@pytest.fixture(scope="module")
def result() -> BacktestDocument:
    return document()


@pytest.fixture(scope="module")
def page(result: BacktestDocument) -> str:
    return render_report(result)


def replaced(result: BacktestDocument, **change: object) -> BacktestDocument:
    return msgspec.structs.replace(result, **change)


def charts(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_the_page_refers_to_nothing_outside_itself(page: str) -> None:
    outline = Outline(page)

    assert outline.open == []
    assert not [a for a in outline.attributes if a[0] in ("script", "link", "img", "iframe") or a[1] == "src"]
    links = [value for _, name, value in outline.attributes if name == "href"]
    ids = {value for _, name, value in outline.attributes if name == "id"}
    assert links
    assert {link for link in links if link.removeprefix("#") not in ids} == set()
    assert not re.search(r"https?:|//\w|url\(|@import", page)


def test_charts_are_named_and_tables_have_headers(page: str) -> None:
    assert [chart.get("aria-label", "")[:12] for chart in charts(page)] == [
        "Difference o",
        "Log-loss, wh",
        *["Reliability "] * 3,
    ]
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        assert "<th scope=" in table
    opened = [value for tag, name, value in Outline(page).attributes if name == "role" and value == "region"]
    named = re.findall(r'role="region" aria-label="[^"]+"', page)
    assert len(opened) == len(named) > 4


def test_the_same_document_gives_the_same_bytes(result: BacktestDocument, page: str) -> None:
    assert render_report(decode_document(result.encode())) == page
    slower = [msgspec.structs.replace(one, cpu_seconds=99.0) for one in result.outcomes]
    assert render_report(replaced(result, outcomes=slower)) == page


def test_a_gain_whose_interval_holds_0_may_be_chance(result: BacktestDocument, page: str) -> None:
    assert "which may be chance" not in Outline(page).text.split("Is another policy better?")[0]
    raw = msgspec.structs.replace(result.raw, log_loss_difference=Interval(0.001, -0.002, 0.004))
    text = Outline(render_report(replaced(result, raw=raw))).text
    assert "saved a row, with 95 %: \N{MINUS SIGN}0.00200 to +0.00400, which may be chance)" in text


def test_the_summary_says_what_the_table_says(result: BacktestDocument, page: str) -> None:
    text = Outline(page).text
    table = {line.policy: line for line in result.table}
    current, best = table["current"], min(result.table, key=lambda line: line.log_loss.value)

    assert best.policy == "max_age=12h psi_threshold=.01"
    assert f"lowered the log-loss from {result.raw.log_loss.value:.4f} to {current.log_loss.value:.4f}" in text
    lead = current.log_loss.value - best.log_loss.value
    assert "Is another policy better? Yes, beyond chance:" in text
    assert f"has the lowest log-loss, {lead:.5f} a row less than the current one has" in text
    difference = best.log_loss_difference
    assert difference is not None
    assert difference.low is not None
    assert difference.high is not None
    assert f"; with 95 %: +{-difference.high:.5f} to +{-difference.low:.5f}" in text
    days = sum(day.scored for day in result.outcomes[0].days)
    assert f"{days:,} scores of 1 January 2013 to 2 November 2013 from files scores.parquet" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: replaced(d, table=d.table[:1], outcomes=d.outcomes[:1], optimism=None), "No other was tried."),
        (
            lambda d: replaced(d, table=[d.table[0], d.table[3]], outcomes=d.outcomes, optimism=None),
            "No: of the one other policy, it does not have a lower log-loss.",
        ),
        (
            lambda d: replaced(d, optimism=Optimism(4, d.table[1].policy, 0.5, 0.6, 0.1, None)),
            "Not shown:",
        ),
        (
            lambda d: replaced(d, optimism=Optimism(4, d.table[1].policy, 0.5, 0.5, 0.0, "many were tried", 0.06)),
            "Perhaps:",
        ),
        (
            lambda d: replaced(
                d,
                table=[
                    d.table[0],
                    msgspec.structs.replace(d.table[1], log_loss_difference=Interval(-0.001, -0.003, 0.001)),
                ],
            ),
            "That may be chance: the interval holds 0.",
        ),
        (
            lambda d: replaced(
                d,
                table=[
                    d.table[0],
                    msgspec.structs.replace(d.table[1], log_loss_difference=Interval(-0.001, None, None)),
                ],
            ),
            "There are too few days for an interval.",
        ),
    ],
)
def test_a_better_policy_is_claimed_only_where_it_is_shown(
    result: BacktestDocument, change: Callable[[BacktestDocument], BacktestDocument], said: str
) -> None:
    text = Outline(render_report(change(result))).text

    assert said in text
    assert "Yes, beyond chance" not in text


def test_text_from_outside_cannot_become_markup(result: BacktestDocument) -> None:
    plain = result.outcomes[1]
    group = GroupFigures(NASTY, NASTY, Sums(9e4, 3e4, 1e4, 1, 1), Sums(9e4, 3e4, 1e4, 1, 1), {NASTY: (9e4, 3e4, 1e4)})
    dirty = msgspec.structs.replace(
        plain,
        policy=NASTY,
        overrides={NASTY: NASTY},
        config_hash=NASTY,
        groups=[group],
        alarms=[msgspec.structs.replace(alarm, what=NASTY) for alarm in plain.alarms],
        refits=[
            msgspec.structs.replace(
                refit, kind=NASTY, reason=NASTY, outcome=NASTY, rung=NASTY, changed=NASTY, codes=[NASTY], version=NASTY
            )
            for refit in plain.refits
        ],
        tip=NASTY,
    )
    lines = [
        msgspec.structs.replace(result.table[0], policy="x"),
        msgspec.structs.replace(result.table[1], policy=NASTY),
    ]
    for current in ("x", NASTY):
        page = render_report(
            replaced(
                result,
                model=NASTY,
                source=NASTY,
                counts={NASTY: 1},
                current=current,
                outcomes=[msgspec.structs.replace(result.outcomes[0], policy="x"), dirty],
                table=lines,
                optimism=Optimism(2, NASTY, 0.5, 0.51, 0.0, NASTY),
                detections=[msgspec.structs.replace(result.detections[0], injected=NASTY, noticed_by=NASTY)],
                warnings=[NASTY],
            )
        )

        assert "<script" not in page
        assert page.count("&lt;script&gt;") > 20
        outline = Outline(page)
        assert outline.open == []
        assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
        charts(page)


def test_many_policies_and_days_stay_small(result: BacktestDocument) -> None:
    names = [f"policy {place}" for place in range(200)]
    outcomes = [
        result.outcomes[0],
        *(msgspec.structs.replace(result.outcomes[1 + place % 3], policy=name) for place, name in enumerate(names)),
    ]
    table = [
        result.table[0],
        *(msgspec.structs.replace(result.table[1 + place % 3], policy=name) for place, name in enumerate(names)),
    ]
    months = {f"{2000 + m // 12}-{m % 12 + 1:02d}": (900.0, 300.0, 200.0) for m in range(60)}
    group = result.outcomes[0].groups[1]
    many = [msgspec.structs.replace(group, group="long name " * 20 + str(g), months=months) for g in range(200)]
    refits = result.outcomes[0].refits * 30
    loaded = [msgspec.structs.replace(one, groups=many, refits=refits, alarms=one.alarms * 200) for one in outcomes]

    page = render_report(replaced(result, outcomes=loaded, table=table, warnings=["long " * 1000] * 200))

    assert len(page.encode()) < 1_500_000
    assert page.count('class="name"') < 200
    text = Outline(page).text
    assert f"{201 - MOST_POLICIES} more policies, of higher log-loss, are left out here" in text
    assert "(40 of 200), the last 24 of 60 months" in text
    assert f"{len(refits):,} asked for" in text
    assert "The newest 300 are shown." in text
    assert "170 more warnings" in text


def test_the_best_and_the_current_policy_are_marked_in_the_table(page: str) -> None:
    rows = re.findall(
        r"<tr><th scope=\"row\" class=\"name\">(.*?)</tr>", page.split('class="policies"')[1].split("</table>")[0]
    )

    assert [re.findall(r'class="badge \w+">([^<]+)<', row) for row in rows] == [
        ["lowest log-loss"],
        ["current"],
        [],
        [],
        [],
    ]
    assert "raw score" in rows[-1]
    assert '<small class="better">better</small>' in rows[0]


def test_lines_marks_and_bars_are_at_their_places(result: BacktestDocument, page: str) -> None:
    chart = next(chart for chart in charts(page) if chart.get("aria-label", "").startswith("Log-loss"))
    refits = {"published": 0, "refused": 0}
    places: dict[str, list[float]] = {"published": [], "refused": []}
    for mark in chart.iter():
        outcome = mark.get("class", "").removeprefix("event ")
        if outcome in places and mark.tag.endswith("line"):
            places[outcome].append(float(mark.get("x1", "nan")))
    for answer in refits:
        times = [refit.pane for one in result.outcomes[:2] for refit in one.refits if refit.outcome == answer]
        assert len(places[answer]) == len(times)
        assert np.corrcoef(times, places[answer])[0, 1] == pytest.approx(1, abs=1e-6)
    spans = [mark for mark in chart.iter() if mark.get("class") == "event alarm"]
    assert len(spans) == 8
    assert {"raw", "current", "best"} <= {mark.text for mark in chart.iter() if mark.tag.endswith("text")}


def test_a_short_history_without_anything_is_drawn_too() -> None:
    for days in (1, 2, 9):
        made = document(policies=1, days=days, groups=0)
        bare = msgspec.structs.replace(made.outcomes[0], groups=[], alarms=[], refits=[])

        text = Outline(
            render_report(replaced(made, outcomes=[bare], detections=[], warnings=[], counts={}, optimism=None))
        ).text

        assert "None was opened." in text
        assert "None was asked for." in text
        assert "The result has no groups." in text
        assert "swaps 0" in text


def test_a_history_without_labels_is_refused() -> None:
    made = document(policies=1, days=2, groups=0)
    nothing = Sums(0, 0, 0, 0, 0)
    days = [msgspec.structs.replace(day, raw=nothing, served=nothing) for day in made.outcomes[0].days]

    with pytest.raises(BacktestError, match="no score with a final label"):
        render_report(replaced(made, outcomes=[msgspec.structs.replace(made.outcomes[0], days=days)]))


def test_a_document_without_its_current_policy_is_refused(result: BacktestDocument) -> None:
    with pytest.raises(BacktestError, match="no outcome or no figures of the policy 'gone'"):
        render_report(replaced(result, current="gone"))
    with pytest.raises(BacktestError, match=re.escape(f"of the policy {result.table[3].policy!r}")):
        render_report(replaced(result, outcomes=result.outcomes[:3]))
