"""Delivery to one hook, over all outboxes: what is due is told in one message, one message at a time.

Not thread-safe; only the sender's thread waits for the receiver.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stream_calib import fault_points, metrics
from stream_calib.alerts.acknowledgement import Acknowledged
from stream_calib.alerts.delivery_choice import Choice, News, choose, together
from stream_calib.alerts.delivery_ledger import Ledger
from stream_calib.alerts.delivery_pace import Backoff, TokenBucket
from stream_calib.alerts.delivery_sender import Sender
from stream_calib.alerts.hooks.port import Delivery, Hook, Message
from stream_calib.alerts.model import Alert
from stream_calib.alerts.routing import Routing
from stream_calib.alerts.silence import Silence
from stream_calib.config_alerts import HookSection
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.state_store import StateStore

_LOG = logging.getLogger(__name__)

_LONGEST_WAIT_MS = 60_000


class HookDelivery:
    """Of one hook. What fails goes to the log and to the metrics; it raises only what the stores raise."""

    def __init__(
        self,
        hook: Hook,
        section: HookSection,
        routing: Routing,
        give_up_after_ms: int,
        random_: random.Random,
        done: threading.Event,
    ) -> None:
        """`section`: the hook's. `random_`: draws the waits after failures. `done`: set when there is a result."""
        self.name = hook.name
        self._routing, self._give_up_after_ms = routing, give_up_after_ms
        self._gather_ms = section.gather_ms
        self._quiet_hours = [hours.parsed() for hours in section.quiet_hours]
        self._backoff = Backoff(random_, _LONGEST_WAIT_MS)
        self._bucket = TokenBucket(section.max_messages, section.max_messages_per_ms)
        self._sender = Sender[Message](hook.name, _call_of(hook), hook.close, done)
        self._ledgers: dict[ModelKey, Ledger] = {}
        self._sent: list[News] = []
        """What is on its way."""
        self._alone: set[str] = set()
        """Deduplication keys of alerts that were rejected together with others: each is tried by itself."""
        self._tried: dict[str, int] = {}
        """Deduplication key -> number of the attempt, since the receiver last took something."""
        self._failure = ""
        """What the receiver said last, while it takes nothing."""

    # --- outboxes

    def positions(self) -> Mapping[ModelKey, int]:
        """Up to where each outbox was taken over."""
        return {key: ledger.position for key, ledger in self._ledgers.items()}

    def refresh(self, key: ModelKey, store: StateStore, fields: Mapping[str, str | None], now_ms: int) -> None:
        """See Ledger.refresh."""
        ledger = self._ledgers.setdefault(key, Ledger(store, self.name))
        ledger.refresh(fields, now_ms)

    def take(self, key: ModelKey, start: int, alerts: Sequence[Alert], acknowledged: Acknowledged, now_ms: int) -> bool:
        """Takes over what it has not of the outbox's entries, the first of which is number `start`; whether there is
        something to be told among them."""
        ledger = self._ledgers[key]
        new = alerts[ledger.position - start :]
        return ledger.take(new, lambda alert: self._routing.tells(self.name, alert), acknowledged, now_ms)

    def forget(self, key: ModelKey) -> None:
        """The outbox is no longer this process's."""
        self._ledgers.pop(key, None)
        if not self._ledgers:
            metrics.ALERT_UNDELIVERED_AGE.remove(self.name)

    # --- messages

    @property
    def is_busy(self) -> bool:
        """Whether a message is on its way."""
        return self._sender.is_busy

    def step(self, silences: Sequence[Silence], now_ms: int) -> bool:
        """Settles what has come of the last message, and sends what is due; whether it did anything."""
        settled = self.settle(now_ms)
        choice = choose(self._ledgers, silences, self._quiet_hours, now_ms)
        for news in choice.unwanted:
            self._ledgers[news.outbox].pass_over(news.events)
        self._measure(choice, now_ms)
        if self._sender.is_busy or not choice.due or not self._backoff.is_over(now_ms):
            return settled
        if self._gathers(choice.due[0], now_ms) or not self._bucket.has_one(now_ms):
            return settled
        self._bucket.take()
        self._sent = self._next(choice.due)
        for news in self._sent:
            self._tried[news.dedup_key] = self._backoff.failures + 1
        self._sender.send(Message([owed.alert for news in self._sent for owed in news.events]))
        return True

    def _gathers(self, oldest: News, now_ms: int) -> bool:
        """Whether others may come that are told with it. Not for longer where the clock was set back."""
        return 0 <= now_ms - oldest.events[0].taken_ms < self._gather_ms

    def _next(self, due: Sequence[News]) -> list[News]:
        """Everything that is due. But every second attempt in a row of failures is for one alert alone, the one that
        was tried least lately: one message that the receiver cannot take must not keep it from the others."""
        if alone := [news for news in due if news.dedup_key in self._alone]:
            return alone[:1]
        if self._backoff.failures % 2:
            return [min(due, key=lambda news: self._tried.get(news.dedup_key, 0))]
        return together(due)

    def settle(self, now_ms: int, within_s: float = 0.0) -> bool:
        """Puts on record what has come of the last message, waiting for it so long; whether that is known now."""
        if not self._sender.is_busy or (result := self._sender.result(within_s)) is None:
            return False
        metrics.ALERT_DELIVERIES.labels(self.name, result.outcome).inc()
        sent, self._sent = [n for n in self._sent if n.outbox in self._ledgers], []
        if result.outcome == "delivered":
            self._took_it()
            self._alone -= {news.dedup_key for news in sent}
            for news in sent:
                self._ledgers[news.outbox].delivered(news.events)
            return True
        self._bucket.give_back()
        if result.outcome == "retry":
            self._say(result.detail)
            self._backoff.failed(now_ms, result.retry_after_s)
            for news in sent:
                self._ledgers[news.outbox].failed(news.events, now_ms - self._give_up_after_ms, result.detail, now_ms)
        elif len(sent) > 1:
            self._alone |= {news.dedup_key for news in sent}
        else:
            self._took_it()
            for news in sent:
                self._alone.discard(news.dedup_key)
                self._ledgers[news.outbox].rejected(news.events, result.detail, now_ms)
        return True

    def _took_it(self) -> None:
        """The receiver is there."""
        if self._failure:
            _LOG.info("hook %s answers again, after %d failures", self.name, self._backoff.failures)
        self._failure = ""
        self._backoff.went_well()
        self._tried.clear()

    def _say(self, failure: str) -> None:
        """Once for each thing that a receiver says, not for each attempt."""
        if failure != self._failure:
            _LOG.warning("hook %s was not told, it is tried again: %s", self.name, failure, extra={"hook": self.name})
        self._failure = failure

    def _measure(self, choice: Choice, now_ms: int) -> None:
        oldest = min((news.events[0].taken_ms for news in choice.due), default=now_ms)
        metrics.ALERT_UNDELIVERED_AGE.labels(self.name).set(max(0, now_ms - oldest) / 1000)

    def facts(self) -> dict[str, Any]:
        """For the status board."""
        owed = sum(len(ledger.owed) for ledger in self._ledgers.values())
        return {"waiting": owed, "failures": self._backoff.failures, "says": self._failure}

    def close(self) -> None:
        """Ends the sender, without waiting for it."""
        self._sender.close()


def _call_of(hook: Hook) -> Callable[[Message], Delivery]:
    def call(message: Message) -> Delivery:
        fault_points.before("hooks.send")
        result = hook.send(message)
        fault_points.after("hooks.send")
        return result

    return call
