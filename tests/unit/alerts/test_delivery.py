"""Delivery to hooks: at least once, each at its own pace, what waits is told together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from stream_calib.alerts.acknowledgement import acknowledge, acknowledged
from stream_calib.alerts.delivery import fields_of, take_over
from stream_calib.alerts.delivery_record import given_up_of, owed_of
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import take_place
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.alerts.receivers import (
    BUSY,
    DELIVERED,
    HOUR_MS,
    KEY,
    MINUTE_MS,
    OTHER,
    REFUSED,
    Told,
    event,
)

Make = Callable[..., Told]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Told] = []

    def of(*hooks: dict[str, Any], **alerts: Any) -> Told:
        made.append(Told(hooks or ({"name": "a"},), **alerts))
        return made[-1]

    yield of
    for one in made:
        one.close()


def test_what_is_new_is_told_once_in_order(make: Make) -> None:
    told = make()
    told.append(event("open"))
    told.settle()
    told.append(event("update", number=1))
    told.append(event("close", number=2))
    told.settle()
    a = told.receivers["a"]
    assert a.told == [["psi open"], ["psi update", "psi close"]]
    assert [alert.pane for message in a.got for alert in message.alerts] == [0, 1, 2]
    assert owed_of(told.stores[KEY], "a") == []
    assert not told.step()


def test_one_that_hangs_or_fails_does_not_delay_others(make: Make) -> None:
    told = make({"name": "hangs"}, {"name": "fails"}, {"name": "well"})
    told.receivers["hangs"].hangs.set()
    told.receivers["fails"].answer = lambda _: BUSY
    for number in range(20):
        told.append(event("close" if number % 2 else "open", number=number))
        told.settle()
    assert [alert.pane for message in told.receivers["well"].got for alert in message.alerts] == list(range(20))
    assert told.receivers["hangs"].got == []
    told.receivers["hangs"].goes_on.set()
    told.receivers["hangs"].hangs.clear()
    told.settle()
    assert [alert.pane for message in told.receivers["hangs"].got for alert in message.alerts] == list(range(20))


def test_what_opened_and_closed_while_a_hook_was_away_is_told_as_both_at_once(make: Make) -> None:
    told = make()
    a = told.receivers["a"]
    a.answer = lambda _: BUSY
    told.append(event("open"))
    told.settle()
    told.append(event("close", number=1), event("open", "label_outage", number=2))
    told.settle()
    a.answer = lambda _: DELIVERED
    a.got.clear()
    for _ in range(3):
        told.after(MINUTE_MS)
    assert sorted(a.events) == ["label_outage open", "psi close", "psi open"]
    assert ["psi open", "psi close"] in [[t for t in one if "psi" in t] for one in a.told]


def test_a_process_that_dies_before_a_confirmation_tells_again(make: Make) -> None:
    told = make()
    told.receivers["a"].hangs.set()
    told.append(event("open"))
    told.settle()
    told.append(event("update", number=1))
    told.settle()
    assert [owed.alert.state for owed in owed_of(told.stores[KEY], "a")] == ["open", "update"]
    told.receivers["a"].hangs.clear()
    told.start()
    told.settle()
    assert told.receivers["a"].told == [["psi open", "psi update"]]
    told.receivers["a"].goes_on.set()


def test_two_processes_at_once_lose_nothing(make: Make) -> None:
    told = make()
    told.append(event("open"))
    told.settle()
    first = told.hooks
    told.start()
    told.append(event("update", number=1))
    told.settle()
    told.hooks, second = first, told.hooks
    told.append(event("close", number=2))
    told.settle()
    told.hooks = second
    told.settle()
    assert [alert.pane for message in told.receivers["a"].got for alert in message.alerts] == [0, 1, 2]


def test_a_new_hook_is_told_of_what_is_open_and_of_what_comes(make: Make) -> None:
    told = make()
    told.append(event("open"), event("open", "label_outage", number=1), event("close", "label_outage", number=2))
    told.sent_to_topic()
    told.settle()
    assert told.receivers["a"].told == [["psi open"]]
    told.append(event("close", number=3))
    told.settle()
    assert told.receivers["a"].told == [["psi open"], ["psi close"]]


def test_a_new_hook_is_not_told_of_what_is_open_where_no_route_asks_for_it(make: Make) -> None:
    told = make(routes=[{"hooks": ["a"], "severity": "critical"}])
    told.append(event("open"), event("open", "label_outage", number=1))
    told.sent_to_topic()
    told.settle()
    assert told.receivers["a"].told == [["label_outage open"]]
    told.append(event("close", number=2))
    told.settle()
    assert told.receivers["a"].told == [["label_outage open"]]


def test_times_that_are_over_are_not_told(make: Make) -> None:
    told = make()
    told.append(event("open"))
    told.settle()
    told.append(event("close", number=1), event("open", "label_outage", number=2))
    before = MemoryState()
    before.commit(
        Commit(appends={"outbox": [event("open", kind).encode() for kind in ("label_outage", "late_labels")]})
    )
    take_place(told.stores[KEY], before, ["a"])
    told.settle()
    assert told.receivers["a"].told == [["psi open"], ["label_outage open", "late_labels close"]]


def test_an_end_that_could_not_be_told_before_times_were_over_is_told(make: Make) -> None:
    told = make()
    told.append(event("open"), event("open", "late_labels", number=1))
    told.settle()
    told.sent_to_topic()
    told.receivers["a"].answer = lambda _: BUSY
    told.append(event("close", number=2))
    told.settle()
    told.sent_to_topic()
    told.append(event("close", "late_labels", number=3))
    after = MemoryState()
    take_place(after, told.stores[KEY], ["a"])
    ends = [Alert.decode(entry) for entry in after.entries("outbox", 0)]
    assert [f"{end.kind} {end.state}" for end in ends] == ["late_labels close", "psi close"]


# --- failures


def test_it_waits_longer_after_each_failure_and_as_long_as_it_is_asked_to(make: Make) -> None:
    told = make()
    a = told.receivers["a"]
    a.answer = lambda _: BUSY
    told.append(event("open"))
    told.settle()
    attempts = [len(a.got)]
    for _ in range(30):
        told.after(MINUTE_MS)
        attempts.append(len(a.got))
    assert 25 < attempts[-1] <= 62, "about one in half a minute, by the longest wait of a minute"
    a.answer = lambda _: Delivery("retry", "429", retry_after_s=1_800)
    told.after(MINUTE_MS)
    before = len(a.got)
    told.after(29 * MINUTE_MS)
    assert len(a.got) == before
    told.after(MINUTE_MS)
    assert len(a.got) == before + 1


def test_a_message_that_cannot_be_taken_does_not_hold_up_the_next(make: Make) -> None:
    told = make()
    a = told.receivers["a"]
    a.answer = lambda m: BUSY if any(alert.kind == "psi" for alert in m.alerts) else DELIVERED
    told.append(event("open"), event("open", "label_outage"), event("open", "late_labels"))
    for _ in range(8):
        told.after(MINUTE_MS)
    delivered = [one for one in a.told if not any("psi" in text for text in one)]
    assert sorted(text for one in delivered for text in one) == ["label_outage open", "late_labels open"]
    assert [owed.alert.kind for owed in owed_of(told.stores[KEY], "a")] == ["psi"]


def test_what_is_rejected_together_is_tried_alone_and_only_what_is_bad_is_given_up(make: Make) -> None:
    told = make()
    a = told.receivers["a"]
    a.answer = lambda m: REFUSED if any(alert.kind == "psi" for alert in m.alerts) else DELIVERED
    before = REGISTRY.get_sample_value("stream_calib_alerts_given_up_total", {"hook": "a", "reason": "rejected"}) or 0
    told.append(event("open"), event("open", "label_outage"), event("open", "late_labels"))
    told.settle()
    assert len(a.got) == 4
    assert owed_of(told.stores[KEY], "a") == []
    number, (given_up,) = given_up_of(told.stores[KEY])
    assert (number, given_up.hook, given_up.reason, given_up.detail) == (1, "a", "rejected", "404")
    assert given_up.alert["kind"] == "psi"
    after = REGISTRY.get_sample_value("stream_calib_alerts_given_up_total", {"hook": "a", "reason": "rejected"})
    assert after == before + 1


def test_what_failed_for_too_long_is_given_up_but_never_the_end_of_an_alert(make: Make) -> None:
    told = make(give_up_after="2h")
    a = told.receivers["a"]
    told.append(event("open", "late_labels"))
    told.settle()
    a.answer = lambda _: BUSY
    told.append(event("open"), event("close", "late_labels", number=1))
    for _ in range(119):
        told.after(MINUTE_MS)
    assert len(owed_of(told.stores[KEY], "a")) == 2
    for _ in range(6):
        told.after(MINUTE_MS)
    assert [(o.alert.kind, o.alert.state) for o in owed_of(told.stores[KEY], "a")] == [("late_labels", "close")]
    assert [(g.reason, g.alert["kind"]) for g in given_up_of(told.stores[KEY])[1]] == [("too_old", "psi")]
    # The receiver may have it all the same: no answer is not a no. So its end is told.
    a.got.clear()
    a.answer = lambda _: DELIVERED
    told.append(event("close", number=2))
    for _ in range(2):
        told.after(MINUTE_MS)
    assert sorted(a.events) == ["late_labels close", "psi close"]


def test_what_a_hook_is_owed_is_bounded_and_the_last_event_of_each_alert_stays(make: Make) -> None:
    told = make()
    a = told.receivers["a"]
    a.hangs.set()
    told.append(event("open"))
    told.settle()
    told.append(*(event("update", "label_outage", number=number) for number in range(1, 500)))
    told.settle()
    assert len(owed_of(told.stores[KEY], "a")) == 500
    for number in range(500, 503):
        told.append(event("update", "label_outage", number=number))
        told.settle()
    owed = owed_of(told.stores[KEY], "a")
    assert [(o.alert.kind, o.alert.pane) for o in owed][:2] == [("psi", 0), ("label_outage", 500)]
    assert given_up_of(told.stores[KEY])[0] == 499
    assert len(given_up_of(told.stores[KEY])[1]) == 200
    a.hangs.clear()
    a.goes_on.set()
    told.settle()
    assert a.told[-1] == ["label_outage update"] * 3


def test_a_fault_of_a_hook_is_contained_and_says_nothing_secret(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    told = make({"name": "broken"}, {"name": "well"})

    address = "https://hooks.example.com/T0/secret"

    def broken(_: Message) -> Delivery:
        raise ValueError(address)

    told.receivers["broken"].answer = broken
    told.append(event("open"))
    told.settle()
    assert told.receivers["well"].told == [["psi open"]]
    assert "ValueError" in caplog.text
    assert "in broken" in caplog.text
    assert "secret" not in caplog.text
    assert [o.failed_ms for o in owed_of(told.stores[KEY], "broken")] == [told.now_ms]


# --- pace, grouping, routing


def test_alerts_of_all_models_that_come_within_the_time_are_told_together(make: Make) -> None:
    told = make({"name": "a", "gather": "30s"})
    told.append(event("open"))
    told.settle()
    told.after(20_000)
    told.append(event("open", key=OTHER), key=OTHER)
    told.settle()
    assert told.receivers["a"].got == []
    told.after(10_000)
    assert told.receivers["a"].told == [["psi open", "psi open"]]


def test_a_flood_is_a_few_messages_and_then_summaries(make: Make) -> None:
    told = make({"name": "a", "max_messages": 3, "max_messages_per": "30m"})
    a = told.receivers["a"]
    for number in range(60):
        told.append(event("open", number=number, subject=f"s{number}"))
        told.settle()
    assert [len(one) for one in a.told] == [1, 1, 1]
    told.after(10 * MINUTE_MS)
    assert [len(one) for one in a.told] == [1, 1, 1, 57]
    told.after(HOUR_MS)
    assert len(a.got) == 4


def test_a_message_is_bounded(make: Make) -> None:
    told = make({"name": "a", "gather": "1s"})
    told.append(*(event("open", number=number, subject=f"s{number}") for number in range(250)))
    told.settle()
    told.after(1_000)
    assert [len(one) for one in told.receivers["a"].told] == [100, 100, 50]


def test_hooks_are_told_what_any_of_their_routes_asks_for(make: Make) -> None:
    told = make(
        {"name": "all"},
        {"name": "pager"},
        {"name": "team"},
        routes=[
            {"hooks": ["all"], "severity": "info"},
            {"hooks": ["pager"], "severity": "critical"},
            {"hooks": ["pager", "team"], "models": ["n"], "kinds": ["psi"]},
        ],
    )
    told.append(event("open"), event("open", "label_outage"), event("open", "refit_refused"))
    told.append(event("open", key=OTHER), event("open", "late_labels", key=OTHER), key=OTHER)
    told.settle()
    assert sorted(told.receivers["all"].events) == [
        *("label_outage open", "late_labels open", "psi open", "psi open", "refit_refused open")
    ]
    assert sorted(told.receivers["pager"].events) == ["label_outage open", "psi open"]
    assert told.receivers["team"].events == ["psi open"]
    told.append(event("close", "late_labels", number=1, key=OTHER), key=OTHER)
    told.settle()
    assert told.receivers["team"].events == ["psi open"]


# --- quiet hours, silences, acknowledgements


NIGHT = {"start": "14:00", "end": "18:00"}
"""It is 15:06 UTC."""


def test_quiet_hours_hold_what_is_not_the_worst_and_tell_it_together_at_their_end(make: Make) -> None:
    told = make({"name": "a", "quiet_hours": [NIGHT]})
    told.append(event("open"), event("open", "late_labels", number=1), event("open", "label_outage", number=2))
    told.settle()
    a = told.receivers["a"]
    assert a.told == [["label_outage open"]]
    told.append(event("close", number=3))
    told.after(HOUR_MS)
    told.after(HOUR_MS)
    assert len(a.got) == 1
    told.after(HOUR_MS)
    assert a.told[1:] == [["psi open", "psi close", "late_labels open"]]
    assert given_up_of(told.stores[KEY]) == (0, [])


def test_a_silence_holds_what_it_covers_and_ends_by_itself(make: Make) -> None:
    told = make()
    told.silences.add("m", None, told.now_ms + HOUR_MS, "ann", "maintenance", told.now_ms)
    told.append(event("open"), event("open", "late_labels", number=1))
    told.append(event("open", key=OTHER), key=OTHER)
    told.settle()
    a = told.receivers["a"]
    assert [message.alerts[0].model for message in a.got] == ["n"]
    told.append(event("close", number=2))
    told.settle()
    assert len(a.got) == 1, "opened and closed unheard"
    told.after(HOUR_MS)
    assert a.told[1:] == [["late_labels open"]]


def test_the_end_of_what_a_hook_knows_to_be_open_is_told_through_a_silence(make: Make) -> None:
    told = make()
    told.append(event("open"))
    told.settle()
    told.silences.add(None, "psi", told.now_ms + HOUR_MS, "ann", "known", told.now_ms)
    told.append(event("update", number=1))
    told.settle()
    a = told.receivers["a"]
    assert a.told == [["psi open"]]
    told.append(event("close", number=2))
    told.settle()
    assert a.told == [["psi open"], ["psi update", "psi close"]]


def test_an_acknowledged_alert_brings_no_news_until_it_closes_or_gets_worse(make: Make) -> None:
    told = make()
    store, a = told.stores[KEY], told.receivers["a"]
    told.append(event("open"))
    told.settle()
    acknowledge(store, event("open"), store.length("outbox"), "ann", "on it", told.now_ms)
    told.settle()
    assert [message.acknowledged_by for message in a.got] == ["", "ann"]
    told.append(event("update", number=1))
    told.settle()
    assert len(a.got) == 2
    told.append(event("update", number=2, severity="critical"))
    told.settle()
    assert [message.alerts[-1].pane for message in a.got] == [0, 0, 2]
    told.append(event("close", number=3))
    told.settle()
    assert acknowledged(store) == {}
    told.append(event("open", number=4), event("update", number=5))
    told.settle()
    assert [alert.pane for message in a.got[3:] for alert in message.alerts] == [3, 4, 5]


def test_without_hooks_an_acknowledgement_ends_with_its_alert_too() -> None:
    store = MemoryState()
    store.commit(Commit(appends={"outbox": [event("open").encode()]}))
    acknowledge(store, event("open"), store.length("outbox"), "ann", "on it", 1)
    assert not take_over([], KEY, store, store.read(fields_of([])), 2)
    assert list(acknowledged(store)) == ["m/1:psi"]
    events = [event("close", number=1), event("open", number=2)]
    store.commit(Commit(appends={"outbox": [alert.encode() for alert in events]}))
    take_over([], KEY, store, store.read(fields_of([])), 3)
    assert acknowledged(store) == {}


def test_an_acknowledgement_is_told_once_also_after_a_crash_and_only_where_the_alert_was(make: Make) -> None:
    told = make({"name": "a"}, {"name": "b"}, routes=[{"hooks": ["a"]}])
    store, a = told.stores[KEY], told.receivers["a"]
    told.append(event("open"))
    told.settle()
    a.answer = lambda _: BUSY
    acknowledge(store, event("open"), store.length("outbox"), "ann", "on it", told.now_ms)
    told.settle()
    a.answer = lambda _: DELIVERED
    told.start()
    told.after(MINUTE_MS)
    told.start()
    told.after(MINUTE_MS)
    assert [message.acknowledged_by for message in a.got] == ["", "ann", "ann"]
    assert len({message.id for message in a.got}) == 2
    assert told.receivers["b"].got == []
