"""Whatever happens between: a receiver that goes by the last event of each alert ends up with what is open."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_calib.alerts.delivery_record import given_up_of, owed_of
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.model import Alert, AlertState
from stream_calib.alerts.outbox import open_alerts
from stream_calib.alerts.redelivery import redeliver
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.alerts.receivers import BUSY, DELIVERED, HOUR_MS, KEY, MINUTE_MS, REFUSED, Told, event

NIGHT = {"start": "14:00", "end": "18:00"}
SUBJECTS = ("x", "y", "z")


class Incidents:
    """As PagerDuty: an incident for each key, triggered and resolved. What it does not answer it may have taken."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.first: list[Alert] = []
        """Events in the order in which each came for the first time."""
        self.answers: list[Delivery] = []
        """Of the next calls; then all go well."""

    def __call__(self, message: Message) -> Delivery:
        answer = self.answers.pop(0) if self.answers else DELIVERED
        if answer is not REFUSED:
            for alert in message.alerts:
                (self.open.discard if alert.state == "close" else self.open.add)(alert.dedup_key)
                if alert not in self.first:
                    self.first.append(alert)
        return answer


def _next(opened: set[str], subject: str, number: int, updates: bool) -> Alert:
    """An event that may come now."""
    state: AlertState = "open" if subject not in opened else ("update" if updates else "close")
    (opened.discard if state == "close" else opened.add)(subject)
    return event(state, number=number, subject=subject)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from(SUBJECTS), st.booleans()),
        st.tuples(st.just("time"), st.sampled_from([1_000, MINUTE_MS, HOUR_MS])),
        st.tuples(st.just("crash")),
        st.tuples(st.just("silence"), st.sampled_from([MINUTE_MS, HOUR_MS])),
        st.tuples(st.just("fail"), st.sampled_from([BUSY, Delivery("retry", "429", 90.0)])),
    ),
    max_size=14,
)


def _play_one(told: Told, incidents: Incidents, what: str, given_: object) -> None:
    if what == "time":
        told.after(int(str(given_)))
    elif what == "silence":
        told.silences.add(None, "psi", told.now_ms + int(str(given_)), "ann", "x", told.now_ms)
    else:
        assert isinstance(given_, Delivery)
        incidents.answers.append(given_)


def _play(told: Told, incidents: Incidents, steps: Sequence[tuple[object, ...]]) -> list[Alert]:
    """The events that there were."""
    opened: set[str] = set()
    raised: list[Alert] = []
    for what, *given_ in steps:
        if what == "event":
            raised.append(_next(opened, str(given_[0]), len(raised), bool(given_[1])))
            told.append(raised[-1])
            told.step()
        elif what == "crash":
            told.close()
            told.start()
        else:
            _play_one(told, incidents, str(what), given_[0])
    for _ in range(20):  # the quiet hours, and an attempt an hour for each failure
        told.after(HOUR_MS)
    return raised


@settings(max_examples=60, deadline=None)
@given(steps=_STEPS, night=st.booleans(), messages=st.integers(1, 3))
# It took the opening and did not say so; the end comes under a silence.
@example(
    steps=[
        ("fail", BUSY),
        ("event", "x", False),
        ("time", 1_000),
        ("silence", HOUR_MS),
        ("event", "x", False),
    ],
    night=False,
    messages=3,
)
def test_a_receiver_ends_up_with_what_is_open(steps: Sequence[tuple[object, ...]], night: bool, messages: int) -> None:
    told = Told([{"name": "a", "max_messages": messages, "quiet_hours": [NIGHT] if night else []}])
    incidents = Incidents()
    told.receivers["a"].answer = incidents
    try:
        raised = _play(told, incidents, steps)
    finally:
        told.close()
    store = told.stores[KEY]
    assert incidents.open == set(open_alerts(store))
    assert owed_of(store, "a") == []
    assert given_up_of(store) == (0, [])
    # Nothing is invented, and the events of each alert come in their order; without a silence all of them come.
    places = [raised.index(alert) for alert in incidents.first]
    for subject in SUBJECTS:
        mine = [place for place in places if raised[place].dedup_key.endswith(f":{subject}")]
        assert mine == sorted(mine)
    if not any(what == "silence" for what, *_ in steps):
        assert sorted(places) == list(range(len(raised)))


_DAMAGE = st.one_of(
    st.tuples(st.just("event"), st.sampled_from(SUBJECTS), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([1_000, MINUTE_MS, HOUR_MS])),
    st.tuples(st.just("silence"), st.sampled_from([MINUTE_MS, HOUR_MS])),
    st.tuples(st.just("fail"), st.sampled_from([BUSY, REFUSED])),
    st.tuples(st.just("topic")),
    st.tuples(st.just("damage"), st.sampled_from(["field", "blob", "told", "owed"])),
    st.tuples(st.just("damage"), st.integers(0, 3)),
    st.tuples(st.just("redeliver")),
)


def _damages(store: MemoryState, what: object) -> None:
    """The hook's position, its record, a part of that, or one event of it."""
    (blob,) = store.blobs(["hook:a"])
    if what == "field":
        store.commit(Commit(fields={"hook:a": "?"}))
    if blob is None or what == "field":
        return
    document = json.loads(blob)
    if isinstance(what, int):
        document["owed"][what : what + 1] = ["?"]
    elif what != "blob":
        document[str(what)] = "?"
    store.commit(Commit(blobs={"hook:a": b"?" if what == "blob" else json.dumps(document).encode()}))


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(_DAMAGE, max_size=14))
def test_it_ends_up_with_that_when_all_is_told_again_though_records_were_damaged(
    steps: Sequence[tuple[object, ...]],
) -> None:
    told, incidents = Told(), Incidents()
    told.receivers["a"].answer = incidents
    store = told.stores[KEY]
    opened: set[str] = set()
    try:
        for number, (what, *given_) in enumerate(steps):
            if what == "topic":
                told.sent_to_topic()
            elif what == "redeliver":
                redeliver(store, "a", lambda alert: True, told.now_ms)
            elif what == "damage":
                _damages(store, given_[0])
                told.close()
                told.start()
                told.step()
            elif what == "event":
                told.append(_next(opened, str(given_[0]), number, bool(given_[1])))
                told.step()
            else:
                _play_one(told, incidents, str(what), given_[0])
        told.after(2 * HOUR_MS)  # the silences end, and it is tried again
        incidents.answers.clear()
        told.after(2 * HOUR_MS)
        redeliver(store, "a", lambda alert: True, told.now_ms)
        told.after(HOUR_MS)
    finally:
        told.close()
    assert incidents.open == set(open_alerts(store))
    assert owed_of(store, "a") == []
    assert given_up_of(store)[1] == []
