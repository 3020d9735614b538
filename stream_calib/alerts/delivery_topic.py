"""Delivery to the topic `alerts`: every event of every outbox, in order, never given up.

As a hook is, the log is called by a thread of its own: alerts about a log that is away must reach people.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence

from stream_calib import fault_points
from stream_calib.alerts.delivery_pace import Backoff
from stream_calib.alerts.delivery_sender import Sender
from stream_calib.alerts.hooks.port import Delivery
from stream_calib.alerts.outbox import Unsent
from stream_calib.errors import TransportError
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.port import Log, Outgoing

_LOG = logging.getLogger(__name__)

_LONGEST_WAIT_MS = 5_000


class TopicDelivery:
    """What the outboxes offer is sent at once, then they confirm it. Not thread-safe."""

    def __init__(self, open_log: Callable[[], Log], topic: str, random_: random.Random, done: threading.Event) -> None:
        """`open_log`: opens the log, in the sender's thread. `done`: set when there is a result."""
        self._topic = topic
        producer = _Producer(open_log)
        self._sender = Sender[Sequence[Outgoing]](f"topic {topic}", producer.send, producer.close, done)
        self._backoff = Backoff(random_, _LONGEST_WAIT_MS)
        self._sent: dict[ModelKey, Unsent] = {}
        """What is offered, or on its way, by outbox."""
        self._delivered: dict[ModelKey, Unsent] = {}
        self.failure: str | None = None
        """Why the log takes nothing; None while it does."""

    def settle(self, now_ms: int, within_s: float = 0.0) -> None:
        """To be called before outboxes ask what was delivered."""
        self._delivered.clear()
        if not self._sender.is_busy or (result := self._sender.result(within_s)) is None:
            return
        sent, self._sent = self._sent, {}
        if result.outcome == "delivered":
            if self.failure is not None:
                _LOG.info("alerts reach the topic %s again", self._topic)
            self._delivered, self.failure = sent, None
            self._backoff.went_well()
        else:
            if result.detail != self.failure:
                _LOG.warning("alerts do not reach the topic %s: %s", self._topic, result.detail)
            self.failure = result.detail
            self._backoff.failed(now_ms, None)

    def delivered(self, key: ModelKey) -> Unsent | None:
        """What the log has of the outbox since it was last asked."""
        return self._delivered.pop(key, None)

    @property
    def is_busy(self) -> bool:
        """Whether something is on its way."""
        return self._sender.is_busy

    def takes(self, now_ms: int) -> bool:
        """Whether something can be offered now."""
        return not self._sender.is_busy and self._backoff.is_over(now_ms)

    def offer(self, key: ModelKey, unsent: Unsent) -> None:
        """It goes with the next `send`."""
        self._sent[key] = unsent

    def send(self) -> None:
        """Sends what was offered."""
        if self._sent and not self._sender.is_busy:
            self._sender.send(
                [
                    Outgoing(self._topic, alert.dedup_key.encode(), entry)
                    for unsent in self._sent.values()
                    for alert, entry in zip(unsent.alerts, unsent.entries, strict=True)
                ]
            )

    def forget(self, key: ModelKey) -> None:
        """The outbox is no longer this process's."""
        self._sent.pop(key, None)
        self._delivered.pop(key, None)

    def close(self) -> None:
        self._sender.close()


class _Producer:
    """The log, as a receiver. Of the sender's thread alone."""

    def __init__(self, open_log: Callable[[], Log]) -> None:
        self._open_log = open_log
        self._log: Log | None = None

    def send(self, records: Sequence[Outgoing]) -> Delivery:
        try:
            if self._log is None:
                self._log = self._open_log()
            fault_points.before("alerts.send")
            self._log.produce(records)
            fault_points.after("alerts.send")
        except TransportError as error:
            return Delivery("retry", str(error))
        return Delivery("delivered", f"{len(records)} records")

    def close(self) -> None:
        try:
            if self._log is not None:
                self._log.close()
        except TransportError as error:
            _LOG.warning("the log was left without a word to it: %s", error)
