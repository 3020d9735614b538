"""Records of alerts that cannot be read are refused, said once and counted, and people hear of all the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from stream_calib.alerts.acknowledgement import FIELD, acknowledge, acknowledged
from stream_calib.alerts.delivery_record import GIVEN_UP, given_up_of, owed_of, refused_blob
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import take_place
from stream_calib.alerts.refusal import REFUSED, refuse
from stream_calib.alerts.silence import Silences
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.alerts.receivers import BUSY, DELIVERED, HOUR_MS, KEY, NOW_MS, Told, event

UNTIL_MS = NOW_MS + HOUR_MS


@pytest.fixture
def told() -> Iterator[Told]:
    REFUSED.clear()
    made = Told()
    yield made
    made.close()


def refused(record: str) -> float:
    return REGISTRY.get_sample_value("stream_calib_alert_records_refused_total", {"record": record}) or 0.0


def changed(state: MemoryState, field: str, key: str, value: object) -> None:
    """One silence, or acknowledgement, of the document in the field has another value."""
    document = json.loads(state.read([field])[field] or "")
    records = document["silences"] if "silences" in document else list(document["by_key"].values())
    records[0][key] = value
    state.commit(Commit(fields={field: json.dumps(document)}))


@pytest.mark.parametrize("damage", ["{", "[]", '{"next_id":"x","silences":[]}'])
def test_silences_that_cannot_be_read_silence_nothing_and_others_can_begin(
    told: Told, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    state, before = told.silences._state, refused("silence")
    told.silences.add(None, None, UNTIL_MS, "ann", "load test", NOW_MS)
    state.commit(Commit(fields={"silences": damage}))
    told.append(event("open"))
    told.settle()
    assert told.receivers["a"].events == ["psi open"]
    assert refused("silence") == before + 1
    assert caplog.text.count("a record of alerts (silence) is refused, the others go on: ") == 1
    assert damage in caplog.text
    again = told.silences.add(None, None, UNTIL_MS, "ann", "again", NOW_MS)
    assert again.reason == "again"
    assert told.silences.end(1, NOW_MS) is None, "the number of the one that is gone ends another one"
    assert [silence.reason for silence in Silences(state).at(NOW_MS)] == ["again"]
    assert told.silences.add(None, None, UNTIL_MS, "ann", "third", NOW_MS).id == again.id + 1


def test_one_silence_that_cannot_be_read_leaves_the_others(told: Told) -> None:
    told.silences.add("m", "psi", UNTIL_MS, "ann", "one", NOW_MS)
    told.silences.add(None, "label_outage", UNTIL_MS, "ann", "two", NOW_MS)
    changed(told.silences._state, "silences", "until_ms", "tomorrow")  # type: ignore[arg-type]  # a memory state
    assert [silence.reason for silence in told.silences.at(NOW_MS)] == ["two"]
    assert told.silences.add(None, None, UNTIL_MS, "ann", "three", NOW_MS).id == 3
    assert [silence.reason for silence in told.silences.at(NOW_MS)] == ["two", "three"]


@pytest.mark.parametrize(("key", "value"), [("severity", "loud"), ("alert", {"kind": "psi"}), ("new", 1)])
def test_an_acknowledgement_that_cannot_be_read_mutes_nothing(told: Told, key: str, value: object) -> None:
    store, before = told.stores[KEY], refused("acknowledgement")
    told.append(event("open"), event("open", "label_outage", number=1))
    told.settle()
    for alert in (event("open"), event("open", "label_outage", number=1)):
        acknowledge(store, alert, 2, "ann", "on it", NOW_MS)
    changed(store, FIELD, key, value)
    assert list(acknowledged(store)) == [event("open", "label_outage").dedup_key]
    told.append(event("update", number=2), event("update", "label_outage", number=3))
    told.settle()
    assert told.receivers["a"].events.count("psi update") == 1
    assert "label_outage update" not in told.receivers["a"].events
    assert refused("acknowledgement") == before + 1


def test_acknowledgements_that_cannot_be_read_at_all_can_be_given_again(told: Told) -> None:
    store = told.stores[KEY]
    store.commit(Commit(fields={FIELD: "no json"}))
    told.append(event("open"))
    told.settle()
    assert told.receivers["a"].events == ["psi open"]
    acknowledge(store, event("open"), 1, "ann", "on it", NOW_MS)
    assert list(acknowledged(store)) == [event("open").dedup_key]


def damaged(store: MemoryState, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The record of the hook `a` after the change."""
    document = json.loads(store.blobs(["hook:a"])[0] or b"")
    change(document)
    store.commit(Commit(blobs={"hook:a": json.dumps(document).encode()}))
    return json.dumps(document).encode()


def goes_on(told: Told) -> list[str]:
    """What is told by a process that begins, to a receiver that is well now."""
    a = told.receivers["a"]
    a.answer = lambda _: DELIVERED
    a.got.clear()
    told.start()
    told.settle()
    return a.events


def waits(told: Told, *alerts: Alert) -> None:
    """The receiver is away."""
    told.receivers["a"].answer = lambda _: BUSY
    told.append(*alerts)
    told.settle()
    told.sent_to_topic()


def test_a_hook_whose_position_cannot_be_read_begins_anew_with_what_is_open(told: Told) -> None:
    store, before = told.stores[KEY], refused("hook")
    told.append(event("open"), event("open", "label_outage", number=1), event("close", "label_outage", number=2))
    told.sent_to_topic()
    told.receivers["a"].answer = lambda _: BUSY
    told.settle()
    store.commit(Commit(fields={"hook:a": "x:y"}))
    assert goes_on(told) == ["psi open"]
    assert refused("hook") == before + 1
    told.append(event("close", number=3))
    told.settle()
    assert told.receivers["a"].events == ["psi open", "psi close"]


def test_what_waits_is_told_though_the_position_cannot_be_read(told: Told) -> None:
    told.append(event("open"))
    told.settle()
    waits(told, event("close", number=1), event("open", "label_outage", number=2))
    told.stores[KEY].commit(Commit(fields={"hook:a": "-1:"}))
    assert goes_on(told) == ["psi close", "label_outage open"]


def test_a_record_of_a_newer_version_is_read_but_for_what_is_new(told: Told) -> None:
    store, before = told.stores[KEY], refused("hook")
    told.append(event("open"))
    told.settle()
    waits(told, event("close", number=1))
    blob = damaged(store, lambda record: record.update(paused=True))
    assert [owed.alert.state for owed in owed_of(store, "a")] == ["close"]
    assert goes_on(told) == ["psi close"]
    assert refused("hook") == before + 1
    assert store.blobs([refused_blob("a")]) == [blob], "as it was, for whoever can read it"


@pytest.mark.parametrize("blob", [b"{", b"[]", b"{}", b'{"owed":1,"told":2}'])
@pytest.mark.parametrize("is_silent", [False, True])
def test_where_no_one_knows_what_a_hook_was_told_it_is_told_the_last_event_of_each_alert(
    told: Told, blob: bytes, is_silent: bool
) -> None:
    store = told.stores[KEY]
    told.append(event("open"), event("open", "label_outage", number=1), event("update", "label_outage", number=2))
    told.settle()
    waits(
        told, event("close", number=3), event("open", "refit_asked", number=4), event("close", "refit_asked", number=5)
    )
    store.commit(Commit(blobs={"hook:a": blob}))
    if is_silent:
        told.silences.add(None, None, UNTIL_MS, "ann", "load test", NOW_MS)
    assert owed_of(store, "a") == []
    assert goes_on(told) == (["psi close"] if is_silent else ["label_outage update", "psi close"])
    assert store.blobs([refused_blob("a")]) == [blob]
    assert given_up_of(store) == (0, [])
    told.append(event("close", "label_outage", number=6), event("open", number=7))
    told.settle()
    assert "label_outage close" in told.receivers["a"].events, "it may have known of it"
    assert ("psi open" in told.receivers["a"].events) == (not is_silent)


@pytest.mark.parametrize("row", [0, [-1], [0, 0, None, {"kind": "psi"}], [1, 0, None, event("close").model_dump(), 1]])
def test_one_event_that_cannot_be_read_leaves_the_others(told: Told, row: object) -> None:
    """And what the hook would be wrong about by it is told from the outbox."""
    store, before = told.stores[KEY], refused("hook")
    told.append(
        event("open"), event("open", "snapshot_too_old", number=1), event("close", "snapshot_too_old", number=2)
    )
    told.settle()
    waits(told, event("close", number=3), event("open", "label_outage", number=4), event("open", "lag", number=5))
    told.append(event("close", "lag", number=6))
    told.settle()
    told.sent_to_topic()

    def change(record: dict[str, Any]) -> None:
        assert len(record["owed"]) == 4
        record["owed"][0] = row  # psi close
        record["owed"][3] = row  # lag close

    damaged(store, change)
    assert [owed.alert.kind for owed in owed_of(store, "a")] == ["label_outage", "lag"]
    assert sorted(goes_on(told)) == ["label_outage open", "lag close", "lag open", "psi close"]
    assert refused("hook") == before + 1, "the same twice"
    assert owed_of(store, "a") == []


def test_one_alert_of_which_is_not_known_what_was_acknowledged_is_known_to_be_told(told: Told) -> None:
    store = told.stores[KEY]
    told.append(event("open"), event("open", "label_outage", number=1))
    told.settle()
    damaged(store, lambda record: record["told"].update({event("open").dedup_key: "no time"}))
    assert goes_on(told) == []
    told.silences.add(None, None, UNTIL_MS, "ann", "load test", NOW_MS)
    told.append(event("close", number=2), event("close", "label_outage", number=3))
    told.settle()
    assert sorted(told.receivers["a"].events) == ["label_outage close", "psi close"]


def test_after_a_switch_the_end_that_a_hook_may_not_know_is_told(told: Told) -> None:
    store = told.stores[KEY]
    told.append(event("open"))
    told.settle()
    waits(told, event("close", number=1))
    store.commit(Commit(blobs={"hook:a": b"{"}))
    after = MemoryState()
    take_place(after, store, ["a"])
    ends = [Alert.decode(entry) for entry in after.entries("outbox", 0)]
    assert [f"{end.kind} {end.state}" for end in ends] == ["psi close"]


def test_entries_that_cannot_be_read_are_passed_over(told: Told) -> None:
    store, before = told.stores[KEY], refused("outbox")
    store.commit(Commit(appends={"outbox": [event("open").encode(), b"no alert", event("update", number=2).encode()]}))
    told.settle()
    assert told.receivers["a"].told == [["psi open", "psi update"]]
    assert refused("outbox") == before + 1


def test_what_was_given_up_and_cannot_be_read_is_left_out(told: Told) -> None:
    store = told.stores[KEY]
    store.commit(Commit(appends={GIVEN_UP: [b'{"hook":"a"}']}))
    assert given_up_of(store) == (1, [])


def test_each_record_is_counted_once_whatever_is_said_of_it(told: Told) -> None:
    before = refused("hook"), refused("outbox")
    for reason in ("damaged", "damaged", "of a newer version"):
        refuse("hook", b"{" * 100_000, reason)
    refuse("hook", b"[", "damaged")
    refuse("outbox", b"[", "damaged")
    assert (refused("hook"), refused("outbox")) == (before[0] + 2, before[1] + 1)
