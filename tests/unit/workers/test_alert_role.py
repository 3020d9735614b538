"""The alert role: outboxes of all model keys and of the deployment, each under a lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import REGISTRY

from stream_calib import metrics
from stream_calib.alerts.model import Alert, AlertState, make_alert
from stream_calib.config import Config
from stream_calib.errors import TransportError
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import TopicPartition
from stream_calib.windows.state_store import Commit, StateStore
from tests.unit.alerts.receivers import Receiver
from workers import alert as alert_module
from workers.alert import AlertDelivery
from workers.deployment import connect_state, open_board, open_deployment_store, open_gaps, open_registry, state_of
from workers.input_gaps import Gap

pytestmark = pytest.mark.services
A, B = ModelKey("m", "1"), ModelKey("m", "2")
_WITHIN_S = 20.0


class Delivery:
    def __init__(self, redis_url: str) -> None:
        self.now_ms = 1_000_000
        self.config = Config.model_validate(
            {
                "model": {"name_path": "m"},
                "redis": {"url": redis_url},
                "windows": {"horizon": "2h"},
                "alerts": {"hooks": [{"name": "ops", "kind": "command", "command": ["x"], "gather": "0s"}]},
            }
        )
        self.client = connect_state(self.config)
        self.log = MemoryLog()
        self.log_is_away = False
        self.receiver = Receiver("ops")
        self.log.create_topic("alerts", 1)
        self.roles: list[AlertDelivery] = []

    def start(self) -> AlertDelivery:
        role = AlertDelivery(self.config, lambda: self.now_ms)
        role.open()
        self.roles.append(role)
        return role

    def open_log(self, config: Config) -> MemoryLog:
        if self.log_is_away:
            raise TransportError("the brokers do not answer")
        return self.log

    def store(self, key: ModelKey) -> StateStore:
        return state_of(self.client, self.config, key).store

    def raise_alert(self, key: ModelKey, pane: int, state: AlertState = "open") -> Alert:
        made = make_alert(key, "g", "psi", state, pane=pane, since_ms=pane, diagnosis="drift")
        self.store(key).commit(Commit(appends={"outbox": [made.encode()]}))
        return made

    def until(self, role: AlertDelivery, condition: Callable[[], bool]) -> None:
        """Steps until it holds: receivers have threads of their own."""
        give_up = time.monotonic() + _WITHIN_S
        while not condition():
            assert time.monotonic() < give_up
            role.step()

    def delivers(self, role: AlertDelivery, number: int) -> None:
        """Steps until so many events are in the topic, and are on record as such."""
        self.until(role, lambda: len(self.delivered()) >= number)
        self.until(role, lambda: not role.step())

    def delivered(self) -> list[Alert]:
        records = self.log.read(TopicPartition("alerts", 0), 0, 100)
        return [Alert.decode(record.value or b"") for record in records]


@pytest.fixture
def delivery(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Delivery]:
    made = Delivery(redis_url)
    monkeypatch.setattr(alert_module, "open_log", made.open_log)
    monkeypatch.setattr(alert_module, "hooks_of", lambda alerts: [made.receiver])
    yield made
    made.receiver.goes_on.set()
    for role in made.roles:
        role.close()
    made.client.close()


def test_alerts_of_all_keys_and_of_the_deployment_are_delivered(delivery: Delivery) -> None:
    registry = open_registry(delivery.client, delivery.config)
    registry.add(A)
    first = delivery.raise_alert(A, 1)
    role = delivery.start()
    delivery.delivers(role, 1)
    assert delivery.delivered() == [first]
    registry.add(B)
    second = delivery.raise_alert(B, 2)
    open_gaps(delivery.client, delivery.config).record(Gap("monitor", "blocks", 0, "id", 5, 9, 1))
    delivery.now_ms += 1_000
    delivery.delivers(role, 3)
    assert [alert.kind for alert in delivery.delivered()] == ["psi", "input_gap", "psi"]
    assert delivery.delivered()[2] == second
    delivery.now_ms += 1_000
    assert not role.step()


def test_only_the_holder_of_the_lease_delivers_and_tells_what_is_open(delivery: Delivery) -> None:
    open_registry(delivery.client, delivery.config).add(A)
    delivery.raise_alert(A, 1)
    labels = {"model": str(A), "kind": "psi"}
    first, second = delivery.start(), delivery.start()
    delivery.delivers(first, 1)
    assert REGISTRY.get_sample_value("stream_calib_alerts_open", labels) == 1
    delivery.raise_alert(A, 2, "close")
    assert not second.step()
    delivery.delivers(first, 2)
    assert REGISTRY.get_sample_value("stream_calib_alerts_open", labels) == 0
    delivery.roles.remove(first)
    first.close()
    third = delivery.raise_alert(A, 3)
    delivery.delivers(second, 3)
    assert delivery.delivered()[-1] == third
    assert REGISTRY.get_sample_value("stream_calib_alerts_open", labels) == 1


def test_people_are_told_that_the_log_is_away(delivery: Delivery) -> None:
    open_registry(delivery.client, delivery.config).add(A)
    delivery.log_is_away = True
    made = delivery.raise_alert(A, 1)
    role = delivery.start()
    delivery.until(role, lambda: bool(delivery.receiver.got))
    assert list(delivery.receiver.got[0].alerts) == [made]
    delivery.until(role, lambda: role.ready() == "waits: the brokers do not answer")
    assert delivery.delivered() == []
    delivery.log_is_away = False
    delivery.now_ms += 5_000
    delivery.delivers(role, 1)
    assert role.ready() is None
    assert len(delivery.receiver.got) == 1


def test_what_is_on_its_way_at_the_end_is_waited_for_and_not_told_again(delivery: Delivery) -> None:
    open_registry(delivery.client, delivery.config).add(A)
    delivery.raise_alert(A, 1)
    first = delivery.start()
    delivery.receiver.hangs.set()
    delivery.delivers(first, 1)
    delivery.receiver.goes_on.set()
    delivery.roles.remove(first)
    first.close()
    assert delivery.receiver.is_closed.wait(_WITHIN_S)
    second = delivery.start()
    delivery.raise_alert(A, 2, "close")
    delivery.until(second, lambda: len(delivery.receiver.got) == 2)
    assert [[alert.pane for alert in message.alerts] for message in delivery.receiver.got] == [[1], [2]]
    (status,) = [s for s in open_board(delivery.client, delivery.config).all(0) if s.member == second._member]
    assert set(status.facts["hooks"]["ops"]) == {"waiting", "failures", "says"}


def test_an_outbox_that_cannot_be_read_does_not_stop_the_others(delivery: Delivery) -> None:
    registry = open_registry(delivery.client, delivery.config)
    registry.add(A)
    registry.add(B)
    delivery.store(A).commit(Commit(appends={"outbox": [b"no alert"]}))
    good = delivery.raise_alert(B, 1)
    delivery.delivers(delivery.start(), 1)
    assert delivery.delivered() == [good]
    assert open_deployment_store(delivery.client, delivery.config).read(("outbox_sent",)) == {"outbox_sent": None}


def test_the_outbox_of_a_retired_key_is_left(delivery: Delivery) -> None:
    registry = open_registry(delivery.client, delivery.config)
    registry.add(A)
    delivery.raise_alert(A, 1)
    role = delivery.start()
    delivery.delivers(role, 1)
    registry.retire(A, {}, 0)
    delivery.raise_alert(A, 2, "close")
    delivery.now_ms += 1_000
    assert not role.step()
    assert REGISTRY.get_sample_value("stream_calib_alerts_open", {"model": str(A), "kind": "psi"}) is None
    assert delivery.store(A).acquire_lease("alert", "another", 1_000) is not None
    registry.add(A)
    delivery.store(A).release_lease("alert", "another")
    delivery.now_ms += 1_000
    delivery.delivers(role, 2)
    assert [alert.state for alert in delivery.delivered()] == ["open", "close"]


def test_refused_records_are_counted_from_the_start(delivery: Delivery) -> None:
    metrics.ALERT_RECORDS_REFUSED.clear()
    delivery.start()
    counts = {
        record: REGISTRY.get_sample_value("stream_calib_alert_records_refused_total", {"record": record})
        for record in ("silence", "acknowledgement", "outbox", "hook", "given_up")
    }
    assert set(counts.values()) == {0}
