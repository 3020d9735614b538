"""Receivers that do what they are told to, and a delivery to them whose clock stands still until it is moved."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from stream_calib.alerts.delivery import HookDelivery, fields_of, take_over
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.model import SEVERITY, Alert, AlertKind, AlertState, Severity, alert_of
from stream_calib.alerts.routing import Routing
from stream_calib.alerts.silence import Silences
from stream_calib.config_alerts import AlertsSection
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit

KEY, OTHER = ModelKey("m", "1"), ModelKey("n", "1")
NOW_MS = 1_750_000_000_000
"""Sunday, 15 June 2025, 15:06:40 UTC."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
_WITHIN_S = 20.0

DELIVERED = Delivery("delivered", "200")
BUSY = Delivery("retry", "503")
REFUSED = Delivery("rejected", "404")


def event(
    state: AlertState = "open",
    kind: AlertKind = "psi",
    number: int = 0,
    key: ModelKey = KEY,
    subject: str = "",
    severity: Severity | None = None,
) -> Alert:
    made = alert_of(
        key, kind, state, (kind, state, subject, number), subject=subject, pane=number, since_ms=0, diagnosis="moved"
    )
    return made.model_copy(update={"severity": severity or SEVERITY[kind]})


class Receiver:
    """A hook. What it answers is `answer`, by the message; while `hangs` is set it does not answer."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.answer: Callable[[Message], Delivery] = lambda _: DELIVERED
        self.got: list[Message] = []
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.is_closed = threading.Event()

    @property
    def name(self) -> str:
        return self._name

    def send(self, message: Message) -> Delivery:
        if self.hangs.is_set():
            assert self.goes_on.wait(_WITHIN_S)
        self.got.append(message)
        return self.answer(message)

    def close(self) -> None:
        self.is_closed.set()

    @property
    def told(self) -> list[list[str]]:
        """The states of each message's events, with their kinds."""
        return [[f"{alert.kind} {alert.state}" for alert in message.alerts] for message in self.got]

    @property
    def events(self) -> list[str]:
        """The same of all messages."""
        return [text for one in self.told for text in one]


class Told:
    """Outboxes in memory, and hooks that are told of them."""

    def __init__(self, hooks: Sequence[dict[str, Any]] = ({"name": "a"},), **alerts: Any) -> None:
        """`hooks`: settings, as in the configuration. Alerts are told at once where nothing else is said."""
        tables = [{"kind": "command", "command": ["x"], "gather": "0s", **hook} for hook in hooks]
        self.section = AlertsSection.model_validate({"hooks": tables, **alerts})
        self.now_ms = NOW_MS
        self.stores = {KEY: MemoryState(), OTHER: MemoryState()}
        self.silences = Silences(MemoryState())
        self.receivers = {hook.name: Receiver(hook.name) for hook in self.section.hooks}
        self.hooks: list[HookDelivery] = []
        self.start()

    def start(self) -> None:
        """As another process would, after the first has died."""
        self._done = threading.Event()
        for receiver in self.receivers.values():
            receiver.is_closed.clear()
        self.hooks = [
            HookDelivery(
                self.receivers[section.name],
                section,
                Routing(self.section),
                self.section.give_up_after_ms,
                random.Random(7),
                self._done,
            )
            for section in self.section.hooks
        ]

    def append(self, *alerts: Alert, key: ModelKey = KEY) -> None:
        self.stores[key].commit(Commit(appends={"outbox": [alert.encode() for alert in alerts]}))

    def sent_to_topic(self, key: ModelKey = KEY) -> None:
        """The topic has all."""
        self.stores[key].commit(Commit(fields={"outbox_sent": str(self.stores[key].length("outbox"))}))

    def step(self) -> bool:
        """One round of the role."""
        silent = self.silences.at(self.now_ms)
        worked = False
        for key, store in self.stores.items():
            worked |= take_over(self.hooks, key, store, store.read(fields_of(self.hooks)), self.now_ms)
        for hook in self.hooks:
            worked |= hook.step(silent, self.now_ms)
        return worked

    def settle(self) -> None:
        """Until there is nothing to do at this time, and what is on its way (but to one that hangs) has come."""
        give_up = time.monotonic() + _WITHIN_S
        while self.step() or any(hook.is_busy and not self.receivers[hook.name].hangs.is_set() for hook in self.hooks):
            assert time.monotonic() < give_up
            self._done.wait(0.01)
            self._done.clear()

    def after(self, milliseconds: int) -> None:
        """Time passes, in one go, and then all that can happen does."""
        self.now_ms += milliseconds
        self.settle()

    def close(self) -> None:
        """What is on its way comes, or it would come behind what another process tells."""
        for receiver in self.receivers.values():
            receiver.goes_on.set()
        for hook in self.hooks:
            hook.close()
        for receiver in self.receivers.values():
            assert receiver.is_closed.wait(_WITHIN_S)
