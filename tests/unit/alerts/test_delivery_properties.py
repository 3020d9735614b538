"""Whatever happens between: a receiver that goes by the last event of each alert ends up with what is open."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_calib.alerts.delivery_record import given_up_of, owed_of
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.model import Alert, AlertState
from stream_calib.alerts.outbox import open_alerts
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


def _play(told: Told, incidents: Incidents, steps: Sequence[tuple[object, ...]]) -> list[Alert]:
    """The events that there were."""
    opened: set[str] = set()
    raised: list[Alert] = []
    for what, *given_ in steps:
        if what == "event":
            raised.append(_next(opened, str(given_[0]), len(raised), bool(given_[1])))
            told.append(raised[-1])
            told.step()
        elif what == "time":
            told.after(int(str(given_[0])))
        elif what == "crash":
            told.close()
            told.start()
        elif what == "silence":
            told.silences.add(None, "psi", told.now_ms + int(str(given_[0])), "ann", "x", told.now_ms)
        else:
            assert isinstance(given_[0], Delivery)
            incidents.answers.append(given_[0])
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
