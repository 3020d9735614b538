from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stream_calib.alerts.model import Alert, AlertKind, AlertState, make_alert
from stream_calib.alerts.outbox import SENT, confirm, drop_read, open_alerts, unsent, waiting
from stream_calib.errors import StateError, TransportError
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.port import Outgoing
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit

KEY = ModelKey("m", "1")


def alert(pane: int) -> Alert:
    return make_alert(KEY, "g", "psi", "open", pane=pane, since_ms=pane * 1000, diagnosis="d", evidence={"x": 1.5})


def drain(
    state: MemoryState, produce: Callable[[Sequence[Outgoing]], None], topic: str, limit: int = 100
) -> list[Alert]:
    """Up to `limit` entries to the topic."""
    found = unsent(state, state.read([SENT])[SENT], limit)
    if found is None:
        return []
    produce([Outgoing(topic, a.dedup_key.encode(), e) for a, e in zip(found.alerts, found.entries, strict=True)])
    confirm(state, found)
    drop_read(state, ())
    return found.alerts


@pytest.fixture
def state() -> MemoryState:
    made = MemoryState()
    made.commit(Commit(appends={"outbox": [alert(p).encode() for p in range(5)]}))
    return made


def test_alerts_are_delivered_in_order_once_where_nothing_fails(state: MemoryState) -> None:
    log: list[Outgoing] = []
    assert [a.pane for a in drain(state, log.extend, "alerts", limit=3)] == [0, 1, 2]
    assert [a.pane for a in drain(state, log.extend, "alerts", limit=3)] == [3, 4]
    assert drain(state, log.extend, "alerts") == []
    assert [Alert.decode(r.value or b"").pane for r in log] == [0, 1, 2, 3, 4]
    assert {(r.topic, r.key) for r in log} == {("alerts", b"m/1:psi")}


def test_what_could_not_be_delivered_stays(state: MemoryState) -> None:
    def fails(_: Sequence[Outgoing]) -> None:
        raise TransportError("no log")

    with pytest.raises(TransportError):
        drain(state, fails, "alerts")
    log: list[Outgoing] = []
    assert len(drain(state, log.extend, "alerts")) == 5


def test_two_drains_at_once_deliver_twice_and_lose_nothing(state: MemoryState) -> None:
    log: list[Outgoing] = []

    def other_first(records: Sequence[Outgoing]) -> None:
        drain(state, log.extend, "alerts", limit=2)
        log.extend(records)

    drain(state, other_first, "alerts", limit=4)
    # The other's position stands; what lies behind it comes again.
    assert state.read(["outbox_sent"])["outbox_sent"] == "2"
    drain(state, log.extend, "alerts")
    assert {Alert.decode(r.value or b"").pane for r in log} == set(range(5))


def test_an_entry_that_is_no_alert_is_passed_over_and_the_next_is_delivered(state: MemoryState) -> None:
    state.commit(Commit(appends={"outbox": [b'{"id":1}', alert(7).encode()]}))
    sent: list[Outgoing] = []
    assert [one.pane for one in drain(state, sent.extend, "alerts")] == [0, 1, 2, 3, 4, 7]
    assert [record.value for record in sent] == [alert(pane).encode() for pane in (0, 1, 2, 3, 4, 7)]
    assert waiting(state) == 0
    assert open_alerts(state)[alert(7).dedup_key] == alert(7)
    state.commit(Commit(appends={"outbox": [b"[]"]}))
    assert drain(state, sent.extend, "alerts") == []
    assert waiting(state) == 0


def test_a_position_that_is_no_number_is_an_error(state: MemoryState) -> None:
    state.commit(Commit(fields={"outbox_sent": "5x"}))
    with pytest.raises(StateError, match="outbox_sent of an alert outbox holds '5x'"):
        drain(state, lambda _: None, "alerts")


def test_open_alerts_are_those_without_a_close_each_by_its_last_event() -> None:
    def event(kind: AlertKind, state: AlertState, pane: int) -> bytes:
        return make_alert(KEY, "g", kind, state, pane=pane, since_ms=0, diagnosis=f"of pane {pane}").encode()

    events = [
        event("psi", "open", 1),
        event("label_outage", "open", 2),
        event("refit_failed", "open", 3),
        event("psi", "update", 4),
        event("label_outage", "close", 5),
    ]
    made = MemoryState()
    made.commit(Commit(appends={"outbox": events}))
    drain(made, lambda _: None, "alerts", limit=2)
    found = open_alerts(made)
    assert [(alert.kind, alert.pane) for alert in found.values()] == [("psi", 4), ("refit_failed", 3)]
    assert [alert.dedup_key for alert in found.values()] == list(found)
    assert waiting(made) == 3


def test_ids_are_content_and_keys_stable() -> None:
    assert alert(1) == alert(1)
    assert alert(1).id != alert(2).id
    assert alert(1).dedup_key == alert(2).dedup_key
    assert Alert.decode(alert(1).encode()) == alert(1)
    closing = make_alert(KEY, "g", "psi", "close", pane=1, since_ms=0, diagnosis="d")
    assert closing.id != alert(1).id
    assert closing.dedup_key == alert(1).dedup_key


def test_delivered_ones_are_dropped_and_open_alerts_stay_known() -> None:
    made, log, whole = MemoryState(), list[Outgoing](), MemoryState()
    kinds: list[AlertKind] = ["psi", "label_outage", "refit_refused"]
    most = 0
    for number in range(4_000):
        # Each kind opens and closes in turn, but for one that opened long ago.
        kind, state = kinds[number % 2], "close" if number % 4 > 1 else "open"
        if number == 100:
            kind, state = kinds[2], "open"
        event = make_alert(KEY, "g", kind, state, pane=number, since_ms=number, diagnosis="d")  # type: ignore[arg-type]  # a literal
        for store in (made, whole):
            store.commit(Commit(appends={"outbox": [event.encode()]}))
        if number % 50 == 0:
            while drain(made, log.extend, "alerts"):
                pass
            most = max(most, len(made.entries("outbox", 0)))
        if number % 333 == 0:
            assert open_alerts(made) == open_alerts(whole)
    assert 1_000 < most < 2_200
    assert waiting(made) == 49
    while drain(made, log.extend, "alerts"):
        pass
    assert [Alert.decode(r.value or b"").pane for r in log] == list(range(4_000))
    assert open_alerts(made) == open_alerts(whole)
    assert "m/1:refit_refused" in open_alerts(made)
