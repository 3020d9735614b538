"""PagerDuty: which events a message becomes, and what is sent again after a failure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from stream_calib.alerts.hooks.addresses import HttpAddress
from stream_calib.alerts.hooks.http_client import HttpClient
from stream_calib.alerts.hooks.http_exchange import Deadline
from stream_calib.alerts.hooks.pagerduty import PagerDutyHook
from stream_calib.alerts.hooks.port import Delivery
from tests.hook_messages import alert, hook, message

RUNBOOK = "https://example.com/runbook"
KEY = "INTEGRATIONKEY0123456789"


class Posts:
    """In place of the client: keeps what is posted, and answers as it is told to."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.addresses: list[HttpAddress] = []
        self.deadlines = 0
        self.answers: list[Delivery] = []

    def deadline(self) -> Deadline:
        self.deadlines += 1
        return Deadline(10)

    def post(
        self,
        address: HttpAddress,
        headers: Mapping[str, str],
        body: bytes,
        deadline: Deadline,
        secrets: Sequence[str],
    ) -> Delivery:
        assert deadline.left_s() > 0
        assert headers == {"Content-Type": "application/json"}
        assert list(secrets) == [KEY]
        self.events.append(json.loads(body))
        self.addresses.append(address)
        return self.answers.pop(0) if self.answers else Delivery("delivered", "202")


@pytest.fixture
def posts() -> Posts:
    return Posts()


@pytest.fixture
def pagerduty(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> PagerDutyHook:
    monkeypatch.setenv("KEY", KEY)
    return PagerDutyHook(hook("pagerduty", secrets=["env:KEY"]), RUNBOOK, cast(HttpClient, posts))


def test_an_incident_is_triggered(pagerduty: PagerDutyHook, posts: Posts) -> None:
    given = alert()
    assert pagerduty.send(message(given)) == Delivery("delivered", "PagerDuty took 1 event")
    assert (posts.addresses[0].host, posts.addresses[0].target) == ("events.pagerduty.com", "/v2/enqueue")
    assert posts.events == [
        {
            "routing_key": KEY,
            "event_action": "trigger",
            "dedup_key": "churn/3:label_outage",
            "client": "stream-calib",
            "links": [{"href": "https://example.com/runbook#label_outage", "text": "What to do"}],
            "payload": {
                "summary": "[critical] churn/3: labels are missing",
                "source": "churn/3",
                "severity": "critical",
                "component": "churn/3",
                "class": "label_outage",
                "custom_details": {
                    "diagnosis": "no labels for three panes",
                    "since": "2013-05-08 08:00 UTC",
                    "what to do": "https://example.com/runbook#label_outage",
                    "alert": given.id,
                    "missing_winners": 1200,
                    "share": 0.98765432,
                },
            },
        }
    ]


def actions(posts: Posts) -> list[tuple[str, str]]:
    return [(event["event_action"], event["dedup_key"]) for event in posts.events]


def test_the_life_of_an_incident(pagerduty: PagerDutyHook, posts: Posts) -> None:
    pagerduty.send(message(alert()))
    pagerduty.send(message(alert(state="update")))
    pagerduty.send(message(alert(), acknowledged_by="ana"))
    pagerduty.send(message(alert(state="close")))
    assert [action for action, _ in actions(posts)] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert len({key for _, key in actions(posts)}) == 1
    assert set(posts.events[2]) == set(posts.events[3]) == {"routing_key", "event_action", "dedup_key"}


def test_of_a_summary_each_incident_is_told_once_as_it_is_by_now(pagerduty: PagerDutyHook, posts: Posts) -> None:
    given = message(alert(), alert("psi"), alert("psi", "update"), alert(state="close"), alert("psi", "close"), alert())
    assert pagerduty.send(given).detail == "PagerDuty took 2 events"
    assert posts.deadlines == 1
    assert actions(posts) == [("trigger", "churn/3:label_outage"), ("resolve", "churn/3:psi")]


def test_a_test_leaves_nothing_open(pagerduty: PagerDutyHook, posts: Posts) -> None:
    assert pagerduty.send(message(is_test=True)).outcome == "delivered"
    assert actions(posts) == [("trigger", "test:churn/3:label_outage"), ("resolve", "test:churn/3:label_outage")]
    assert posts.events[0]["payload"]["summary"].startswith("TEST ")


def test_what_was_taken_is_not_sent_again(pagerduty: PagerDutyHook, posts: Posts) -> None:
    given = message(alert("lag"), alert("psi"), alert())
    failure = Delivery("retry", "429", 7.0)
    posts.answers = [Delivery("delivered", "202"), failure]
    assert pagerduty.send(given) == failure
    assert pagerduty.send(given).outcome == "delivered"
    keys = [key.rpartition(":")[2] for _, key in actions(posts)]
    assert keys == ["lag", "psi", "psi", "label_outage"]
    assert pagerduty.send(message(alert("lag"))).outcome == "delivered"
    assert actions(posts)[-1] == ("trigger", "churn/3:lag")


def test_what_has_come_since_a_failure_is_sent_also_where_the_message_ends_as_before(
    pagerduty: PagerDutyHook, posts: Posts
) -> None:
    posts.answers = [Delivery("delivered", "202"), Delivery("retry", "429")]
    assert pagerduty.send(message(alert("psi"), alert())).outcome == "retry"
    posts.answers = [Delivery("retry", "429")]
    assert pagerduty.send(message(alert())).outcome == "retry"
    assert pagerduty.send(message(alert("psi"), alert("psi", "close"), alert("lag"), alert())).outcome == "delivered"
    assert [f"{action} {key.rpartition(':')[2]}" for action, key in actions(posts)] == [
        "trigger psi",
        *["trigger label_outage"] * 2,
        *["resolve psi", "trigger lag", "trigger label_outage"],
    ]


def test_a_rejection_is_handed_on(pagerduty: PagerDutyHook, posts: Posts) -> None:
    posts.answers = [Delivery("rejected", "events.pagerduty.com answered 400: invalid")]
    assert pagerduty.send(message()).outcome == "rejected"


def test_a_key_that_is_gone_is_said(pagerduty: PagerDutyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY")
    delivery = pagerduty.send(message())
    assert delivery.outcome == "retry"
    assert delivery.detail.startswith("alerts.hooks.ops.secrets = env:KEY: the environment has no variable KEY")


def test_long_keys_and_summaries_are_what_the_api_takes(pagerduty: PagerDutyHook, posts: Posts) -> None:
    long = alert().model_copy(update={"dedup_key": "k" * 300, "model": "m" * 2_000})
    pagerduty.send(message(long))
    assert len(posts.events[0]["dedup_key"]) == 16
    assert len(posts.events[0]["payload"]["summary"]) == 1_024


def test_a_run_book_without_an_address_is_no_link(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", KEY)
    pagerduty = PagerDutyHook(hook("pagerduty", secrets=["env:KEY"]), "docs/operations.md", cast(HttpClient, posts))
    pagerduty.send(message())
    assert posts.events[0]["links"] == []
    assert posts.events[0]["payload"]["custom_details"]["what to do"] == "docs/operations.md#label_outage"
