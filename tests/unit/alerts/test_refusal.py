"""Records of alerts that cannot be read are refused, said once and counted, and people hear of all the others."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from stream_calib.alerts.acknowledgement import FIELD, acknowledge, acknowledged
from stream_calib.alerts.delivery_record import GIVEN_UP, given_up_of, owed_of
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


@pytest.mark.parametrize("damage", [{"fields": {"hook:a": "x:y"}}, {"blobs": {"hook:a": b'{"owed":1}'}}])
def test_a_hook_whose_record_cannot_be_read_begins_anew_with_what_is_open(
    told: Told, damage: dict[str, dict[str, str | bytes]]
) -> None:
    store, a, before = told.stores[KEY], told.receivers["a"], refused("hook")
    a.answer = lambda _: BUSY
    told.append(event("open"), event("open", "label_outage", number=1), event("close", "label_outage", number=2))
    told.sent_to_topic()
    told.settle()
    store.commit(Commit(**damage))  # type: ignore[arg-type]  # fields or blobs
    if "blobs" in damage:
        assert owed_of(store, "a") == []
    a.answer = lambda _: DELIVERED
    a.got.clear()
    told.start()
    told.settle()
    assert a.events == ["psi open"]
    assert refused("hook") > before
    told.append(event("close", number=3))
    told.settle()
    assert a.events == ["psi open", "psi close"]


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
