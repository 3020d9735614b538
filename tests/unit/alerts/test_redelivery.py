"""What a hook was not told is owed to it again, and ends in the state in which the alert is."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from stream_calib.alerts.delivery_record import GIVEN_UP, GivenUp, given_up_of, owed_of
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.model import Alert
from stream_calib.alerts.redelivery import Redelivered, redeliver
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.alerts.receivers import DELIVERED, KEY, REFUSED, Told, event


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    yield made
    made.close()


def again(told: Told, hook: str = "a") -> Redelivered:
    """The hook's secret was mended, and somebody asks."""
    told.receivers["a"].answer = lambda _: DELIVERED
    told.receivers["a"].got.clear()
    done = redeliver(told.stores[KEY], hook, lambda alert: True, told.now_ms)
    told.settle()
    return done


def refuses(told: Told, *alerts: Alert) -> None:
    told.receivers["a"].answer = lambda _: REFUSED
    for alert in alerts:
        told.append(alert)
        told.settle()


def takes(told: Told, *alerts: Alert) -> None:
    told.receivers["a"].answer = lambda _: DELIVERED
    for alert in alerts:
        told.append(alert)
        told.settle()


def test_what_was_refused_is_told_once_and_is_given_up_no_more(told: Told) -> None:
    refuses(told, event("open"), event("open", "label_outage", number=1))
    assert len(given_up_of(told.stores[KEY])[1]) == 2
    assert again(told) == (2, 0)
    assert sorted(told.receivers["a"].events) == ["label_outage open", "psi open"]
    assert given_up_of(told.stores[KEY]) == (2, [])
    assert again(told) == (0, 0)
    assert told.receivers["a"].got == []
    takes(told, event("close", number=2))
    assert told.receivers["a"].told[-1] == ["psi close"]


def test_what_opened_and_closed_unheard_is_told_as_both(told: Told) -> None:
    refuses(told, event("open"), event("close", number=1))
    assert again(told) == (2, 0)
    assert told.receivers["a"].told == [["psi open", "psi close"]]


def test_behind_it_comes_the_newest_event_of_what_is_open(told: Told) -> None:
    refuses(told, event("open"))
    takes(told, event("update", number=1))
    assert again(told) == (2, 0)
    assert [alert.pane for alert in told.receivers["a"].got[0].alerts] == [0, 1]


def test_the_end_of_what_has_opened_again_is_not_the_last_that_is_told(told: Told) -> None:
    takes(told, event("open"))
    refuses(told, event("close", number=1))
    takes(told, event("open", number=2))
    assert again(told) == (2, 0)
    assert told.receivers["a"].told == [["psi close", "psi open"]]


def test_what_is_over_is_told_with_its_end_though_the_hook_may_know_of_that(told: Told) -> None:
    refuses(told, event("open"))
    takes(told, event("close", number=1))
    assert again(told) == (2, 0)
    assert told.receivers["a"].told == [["psi open", "psi close"]]
    assert given_up_of(told.stores[KEY]) == (1, [])


def test_an_end_under_a_silence_or_that_routes_do_not_tell_of_is_told_with_what_was_refused(told: Told) -> None:
    refuses(told, event("open"), event("open", "label_outage", number=1))
    told.silences.add(None, "psi", told.now_ms + 1, "ann", "test", told.now_ms)
    takes(told, event("close", number=2), event("close", "label_outage", number=3, severity="info"))
    assert told.receivers["a"].told[-1] == ["label_outage open"], "of the ends it was not told"
    told.now_ms += 1
    assert again(told) == (4, 0)
    assert sorted(told.receivers["a"].events) == ["label_outage close", "label_outage open", "psi close", "psi open"]
    assert told.receivers["a"].events.index("psi open") < told.receivers["a"].events.index("psi close")


def test_an_end_is_told_again_through_silences(told: Told) -> None:
    """The receiver took the opening, and refused the end."""
    takes(told, event("open"))
    refuses(told, event("close", number=1))
    told.silences.add(None, None, told.now_ms + 1, "ann", "test", told.now_ms)
    assert again(told) == (1, 0)
    assert told.receivers["a"].told == [["psi close"]]
    assert owed_of(told.stores[KEY], "a") == []


def test_what_is_over_and_whose_end_is_kept_no_more_is_left(told: Told) -> None:
    refuses(told, event("open"))
    takes(told, event("close", number=1), *(event("update", "label_outage", number) for number in range(2, 5)))
    store = told.stores[KEY]
    store.commit(Commit(fields={"outbox_sent": "5"}, trims={"outbox": 2}))
    assert again(told) == (0, 1)
    assert told.receivers["a"].got == []
    assert given_up_of(store) == (1, [])


def test_one_that_cannot_be_read_leaves_the_others(told: Told) -> None:
    store = told.stores[KEY]
    refuses(told, event("open"))
    damaged = msgspec.json.encode(GivenUp("a", "rejected", "404", told.now_ms, {"kind": "psi"}))
    store.commit(Commit(appends={GIVEN_UP: [damaged]}))
    assert again(told) == (1, 0)
    assert told.receivers["a"].told == [["psi open"]]
    assert again(told) == (0, 0)


def test_what_is_owed_is_not_owed_twice(told: Told) -> None:
    """The record was damaged, and so what is open is owed."""
    store = told.stores[KEY]
    refuses(told, event("open"), event("open", "label_outage", number=1))
    told.sent_to_topic()
    store.commit(Commit(blobs={"hook:a": b"{"}))
    assert redeliver(store, "a", lambda alert: True, told.now_ms) == (0, 0)
    keys = [owed.key for owed in owed_of(store, "a")]
    assert len(keys) == len(set(keys)) == 2
    assert again(told) == (0, 0)
    assert sorted(told.receivers["a"].events) == ["label_outage open", "psi open"]


def test_what_was_not_taken_over_yet_comes_by_itself(told: Told) -> None:
    store = told.stores[KEY]
    refuses(told, event("open"))
    told.append(event("update", number=1), event("close", number=2))
    assert redeliver(store, "a", lambda alert: True, told.now_ms) == (1, 0)
    told.receivers["a"].got.clear()
    assert again(told) == (0, 0)
    assert told.receivers["a"].told == [["psi open", "psi update", "psi close"]]


def test_what_waits_already_is_told_behind_it(told: Told) -> None:
    refuses(told, event("open"))
    told.silences.add(None, None, told.now_ms + 1, "ann", "test", told.now_ms)
    takes(told, event("update", number=1))
    assert [owed.alert.pane for owed in owed_of(told.stores[KEY], "a")] == [1]
    done = redeliver(told.stores[KEY], "a", lambda alert: True, told.now_ms)
    assert done == (1, 0)
    told.receivers["a"].got.clear()
    told.after(10)
    assert [alert.pane for alert in told.receivers["a"].got[0].alerts] == [0, 1]


def test_what_is_refused_again_is_given_up_again(told: Told) -> None:
    refuses(told, event("open"))
    redeliver(told.stores[KEY], "a", lambda alert: True, told.now_ms)
    told.settle()
    total, records = given_up_of(told.stores[KEY])
    assert (total, [record.alert["state"] for record in records]) == (2, ["open"])
    assert again(told) == (1, 0)
    assert told.receivers["a"].told == [["psi open"]]


def test_of_other_hooks_it_tells_nothing(told: Told) -> None:
    refuses(told, event("open"))
    assert again(told, "another") == (0, 0)
    assert told.receivers["a"].got == []
    assert len(given_up_of(told.stores[KEY])[1]) == 1


def test_the_role_that_delivers_meanwhile_takes_nothing_back(told: Told) -> None:
    """It has a message on its way that it has read before."""
    refuses(told, event("open"))
    a = told.receivers["a"]
    a.answer, a.got = (lambda _: DELIVERED), list[Message]()
    a.hangs.set()
    told.append(event("open", "label_outage", number=1))
    told.step()
    assert redeliver(told.stores[KEY], "a", lambda alert: True, told.now_ms) == (1, 0)
    a.hangs.clear()
    a.goes_on.set()
    told.settle()
    assert {"psi open", "label_outage open"} <= set(a.events)
    assert owed_of(told.stores[KEY], "a") == []


@pytest.mark.parametrize("answer", [DELIVERED, REFUSED])
def test_an_end_that_is_on_its_way_is_told_again_behind_the_opening(told: Told, answer: Delivery) -> None:
    refuses(told, event("open"))
    a = told.receivers["a"]
    a.answer, a.got = (lambda _: answer), list[Message]()
    a.hangs.set()
    told.append(event("close", number=1))
    told.step()
    assert redeliver(told.stores[KEY], "a", lambda alert: True, told.now_ms) == (1, 0)
    told.step()
    a.hangs.clear()
    a.goes_on.set()
    told.settle()
    assert a.told == [["psi close"], ["psi open", "psi close"]]
    given_up = [record.alert["state"] for record in given_up_of(told.stores[KEY])[1]]
    assert given_up == ([] if answer is DELIVERED else ["open", "close"])


def test_of_a_store_that_has_nothing_it_changes_nothing() -> None:
    store = MemoryState()
    store.commit(Commit(fields={"first_pane": "1"}))
    assert redeliver(store, "a", lambda alert: True, 0) == (0, 0)
    assert store.read(["hook:a"]) == {"hook:a": None}
