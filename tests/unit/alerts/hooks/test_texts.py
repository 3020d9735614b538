"""What messages say to people and to programs."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from stream_calib.alerts.hooks.document import message_document, message_type
from stream_calib.alerts.hooks.port import Message
from stream_calib.alerts.hooks.texts import WHAT, as_html, plain, runbook_link, title
from stream_calib.alerts.model import Alert, AlertKind, alert_of
from stream_calib.windows.model_registry import deployment_scope
from tests.hook_messages import alert, message

RUNBOOK = "https://example.com/runbook"
FORMS = pytest.mark.parametrize("form", [plain, as_html], ids=["plain", "html"])


def test_every_kind_has_words() -> None:
    assert set(WHAT) == set(get_args(AlertKind))


def test_every_link_leads_to_a_section_of_the_run_book() -> None:
    page = Path(__file__).parents[4] / "docs/operations.md"
    headings = re.findall(r"^#+ (\S+)$", page.read_text(), re.MULTILINE)
    links = [runbook_link(alert(kind), "docs/operations.md") for kind in get_args(AlertKind)]
    assert [link for link in links if link.partition("#")[2] not in map(str.lower, headings)] == []


def test_an_alert_in_full() -> None:
    given = alert(
        evidence={
            "missing_winners": 1_200,
            "share": 0.98765432,
            "until_ms": 1_371_600_000_000,
            "waited_ms": 90_000,
            "groups": ["carrier=UA", "carrier=AA"],
            "by_carrier": {"UA": 0.5, "AA": 2},
            "known": True,
            "parent": None,
        }
    )
    assert plain(message(given), RUNBOOK).splitlines() == [
        "No labels for three panes",
        "  of: churn/3",
        "  since: 2013-05-08 08:00 UTC (event time)",
        "  missing winners: 1200",
        "  share: 0.9877",
        "  until: 2013-06-19 00:00 UTC",
        "  waited: 90 s",
        "  groups: carrier=UA; carrier=AA",
        "  by carrier: UA 0.5, AA 2",
        "  known: yes",
        "  parent: none",
        f"  alert: churn/3:label_outage ({given.id})",
        "What to do: https://example.com/runbook#label_outage",
    ]


def of_the_deployment() -> Alert:
    scope = deployment_scope("flights")
    return alert_of(scope, "no_scores", "open", ("x",), pane=1, since_ms=1, diagnosis="none came")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (message(), "[critical] churn/3: labels are missing"),
        (message(alert(state="update")), "[critical, update] churn/3: labels are missing"),
        (message(alert(state="close")), "[over] churn/3: labels are missing"),
        (message(is_test=True), "TEST [critical] churn/3: labels are missing"),
        (message(acknowledged_by="ana"), "acknowledged by ana: [critical] churn/3: labels are missing"),
        (message(alert(), alert(state="close")), "[over] churn/3: labels are missing"),
        (message(of_the_deployment()), "[critical] deployment flights: no scores come in"),
        (message(alert("psi"), alert()), "2 alert events of churn/3, up to critical"),
    ],
)
def test_titles(given: Message, expected: str) -> None:
    assert title(given) == expected


@FORMS
def test_a_flood_is_told_in_part(form: object) -> None:
    assert callable(form)
    given = message(*(alert(pane=pane) for pane in range(45)))
    text = form(given, RUNBOOK)
    assert text.count("labels are missing") == 20
    assert "And 25 older ones" in text
    assert given.alerts[-1].id in text
    assert given.alerts[24].id not in text


@FORMS
def test_evidence_is_no_dump(form: object) -> None:
    assert callable(form)
    given = alert(evidence={"long": "x" * 10_000, "many": list(range(1_000))})
    text = form(message(given), RUNBOOK)
    assert len(text) < 2_000
    assert "and 995 more" in text


HOSTILE = "</p><script>alert(1)</script> *bold* [link](http://evil.example) <http://evil.example|link> `code`"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.add(tag)


def test_what_comes_from_data_formats_nothing() -> None:
    given = message(alert(diagnosis=HOSTILE, evidence={HOSTILE: HOSTILE, "groups": {HOSTILE: [HOSTILE]}}))
    tags = Tags()
    tags.feed(as_html(given, RUNBOOK))
    assert tags.found == {"p", "table", "tr", "td", "a"}


def test_a_run_book_that_cannot_be_followed_is_no_link() -> None:
    assert "<a " not in as_html(message(), "docs/operations.md")
    assert "<a " not in as_html(message(), 'javascript:alert("x")')
    assert '<a href="https://example.com/runbook#label_outage">' in as_html(message(), RUNBOOK)


def test_the_document_for_programs() -> None:
    given = message(alert(), alert(state="close"))
    document = json.loads(message_document(given, RUNBOOK))
    assert document["type"] == "alert.summary"
    assert document["data"]["id"] == given.id
    assert document["data"]["text"] == plain(given, RUNBOOK)
    first = dict(document["data"]["alerts"][0])
    assert first.pop("runbook") == "https://example.com/runbook#label_outage"
    assert first == given.alerts[0].model_dump(mode="json")
    assert message_document(given, RUNBOOK) == message_document(given, RUNBOOK)


def test_an_id_is_that_of_a_repeat_and_of_no_message_that_says_more() -> None:
    first, second = alert("psi"), alert()
    assert message(first).id == first.id
    ids = [message(first, second), message(first, alert("psi", "close"), second), message(second)]
    ids += [message(second, acknowledged_by=who) for who in ("ana", "bo")]
    assert len({given.id for given in ids}) == len(ids)
    assert message(first, second).id == ids[0].id


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (message(), "alert.open"),
        (message(alert(state="update")), "alert.update"),
        (message(alert(state="close")), "alert.close"),
        (message(alert(), alert()), "alert.summary"),
        (message(acknowledged_by="ana"), "alert.acknowledged"),
        (message(is_test=True), "alert.test"),
    ],
)
def test_types_of_documents(given: Message, expected: str) -> None:
    assert message_type(given) == expected
