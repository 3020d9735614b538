"""Delivery to one hook, over all outboxes: what is due is told in one message, one message at a time.

Not thread-safe; only the sender's thread waits for the receiver.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from stream_calib import fault_points, metrics
from stream_calib.alerts.acknowledgement import FIELD as ACKNOWLEDGED
from stream_calib.alerts.acknowledgement import Acknowledged
from stream_calib.alerts.delivery_choice import Acknowledgement, Choice, News, acknowledgements, choose, together
from stream_calib.alerts.delivery_ledger import Ledger
from stream_calib.alerts.delivery_pace import Backoff, TokenBucket
from stream_calib.alerts.delivery_record import GivenUpReason, field_of
from stream_calib.alerts.delivery_sender import Sender
from stream_calib.alerts.hooks.port import Delivery, Hook, Message
from stream_calib.alerts.model import Alert
from stream_calib.alerts.outbox import DROPPED, LIST, PASSED, SENT
from stream_calib.alerts.position import position_of
from stream_calib.alerts.refusal import alerts_of
from stream_calib.alerts.routing import Routing
from stream_calib.alerts.silence import Silence
from stream_calib.config_alerts import HookSection
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.state_store import Commit, StateStore

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
        self._acknowledged: dict[ModelKey, Acknowledged] = {}
        self._sent: list[News] | Acknowledgement = []
        """What is on its way."""
        self._alone: set[str] = set()
        """Deduplication keys of alerts that were rejected together with others: each is tried by itself."""
        self._tried: dict[str, int] = {}
        """Deduplication key -> number of the attempt for it alone, since the receiver last took something."""
        for reason in get_args(GivenUpReason):
            metrics.ALERTS_GIVEN_UP.labels(self.name, reason)  # there from the start, so that the first one is seen
        self._failure = ""
        """What the receiver said last, while it takes nothing."""

    # --- outboxes

    def positions(self) -> Mapping[ModelKey, int]:
        """Up to where each outbox was taken over."""
        return {key: ledger.position for key, ledger in self._ledgers.items()}

    def refresh(self, key: ModelKey, store: StateStore, fields: Mapping[str, str | None], now_ms: int) -> None:
        """See Ledger.refresh."""
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(store, self.name, lambda alert: self._routing.tells(self.name, alert))
        self._ledgers[key].refresh(fields, now_ms)

    def take(
        self, key: ModelKey, start: int, alerts: Sequence[Alert | None], acknowledged: Acknowledged, now_ms: int
    ) -> bool:
        """Takes over what it has not of the outbox's entries, the first of which is number `start` (None: one that was
        refused); whether there is something to be told among them."""
        ledger, self._acknowledged[key] = self._ledgers[key], acknowledged
        new = alerts[ledger.position - start :]
        return ledger.take(new, acknowledged, now_ms)

    def forget(self, key: ModelKey) -> None:
        """The outbox is no longer this process's."""
        self._ledgers.pop(key, None)
        self._acknowledged.pop(key, None)
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
        if settled or self._sender.is_busy or not self._backoff.is_over(now_ms):
            return settled
        if choice.due:
            return not self._gathers(choice.due[0], now_ms) and self._send(self._next(choice.due), now_ms)
        known = acknowledgements(self._ledgers, self._acknowledged, self._quiet_hours, now_ms)
        return bool(known) and self._send(known[0], now_ms)

    def _send(self, what: list[News] | Acknowledgement, now_ms: int) -> bool:
        if not self._bucket.has_one(now_ms):
            return False
        if isinstance(what, Acknowledgement):
            message = Message([what.alert], acknowledged_by=what.actor)
        else:
            what = [news for news in what if self._ledgers[news.outbox].telling(news.events)]
            if not what:
                return False  # another process was first; what it left is seen at the next look
            if len(what) == 1:
                self._tried[what[0].dedup_key] = self._backoff.failures + 1
            message = Message([owed.alert for news in what for owed in news.events])
        self._bucket.take()
        self._sent = what
        self._sender.send(message)
        return True

    def _gathers(self, oldest: News, now_ms: int) -> bool:
        """Whether others may come that are told with it. Not for longer where the clock was set back."""
        return 0 <= now_ms - oldest.events[0].taken_ms < self._gather_ms

    def _next(self, due: Sequence[News]) -> list[News]:
        """Everything that is due. But every second attempt in a row of failures is for one alert alone, the one that
        was tried least lately: one message that the receiver cannot take must not keep it from the others."""
        others = [news for news in due if news.dedup_key not in self._alone]
        if others and self._backoff.failures % 2 == 0:
            return together(others)
        return [min(due, key=lambda news: self._tried.get(news.dedup_key, 0))]

    def settle(self, now_ms: int, within_s: float = 0.0) -> bool:
        """Puts on record what has come of the last message, waiting for it so long; whether that is known now."""
        if not self._sender.is_busy or (result := self._sender.result(within_s)) is None:
            return False
        metrics.ALERT_DELIVERIES.labels(self.name, result.outcome).inc()
        if result.outcome == "retry":
            self._say(result.detail)
            self._backoff.failed(now_ms, result.retry_after_s)
        else:
            self._took_it()
        if result.outcome != "delivered":
            self._bucket.give_back()
        sent, self._sent = self._sent, []
        if isinstance(sent, Acknowledgement):
            self._settle_acknowledgement(sent, result)
        else:
            self._settle_news([news for news in sent if news.outbox in self._ledgers], result, now_ms)
        return True

    def _settle_news(self, sent: Sequence[News], result: Delivery, now_ms: int) -> None:
        keys = {news.dedup_key for news in sent}
        if result.outcome == "rejected" and len(sent) > 1:
            self._alone |= keys
            return
        if result.outcome != "retry":
            self._alone -= keys
        for news in sent:
            ledger = self._ledgers[news.outbox]
            if result.outcome == "delivered":
                ledger.delivered(news.events)
            elif result.outcome == "retry":
                ledger.failed(news.events, now_ms - self._give_up_after_ms, result.detail, now_ms)
            else:
                ledger.rejected(news.events, result.detail, now_ms)

    def _settle_acknowledgement(self, sent: Acknowledgement, result: Delivery) -> None:
        if result.outcome == "rejected":
            _LOG.warning("hook %s does not take an acknowledgement: %s", self.name, result.detail)
        if result.outcome != "retry" and sent.outbox in self._ledgers:
            self._ledgers[sent.outbox].told_of_acknowledgement(sent.alert.dedup_key, sent.time_ms)

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


def fields_of(hooks: Sequence[HookDelivery]) -> list[str]:
    """Names of the fields of an outbox's state that `take_over` needs."""
    return [SENT, DROPPED, PASSED, ACKNOWLEDGED, *(field_of(hook.name) for hook in hooks)]


def take_over(
    hooks: Sequence[HookDelivery], key: ModelKey, store: StateStore, fields: Mapping[str, str | None], now_ms: int
) -> bool:
    """Each hook takes over what it does not have of the outbox; whether any is to be told of it. A hook that is new
    begins before this returns, so before the topic goes on. `fields`: as they were just read.

    Raises StateError where a position cannot be read.
    """
    acknowledged = Acknowledged.decode(fields[ACKNOWLEDGED])
    if not hooks and not acknowledged.by_key:
        return False
    for hook in hooks:
        hook.refresh(key, store, fields, now_ms)
    start = min((hook.positions()[key] for hook in hooks), default=acknowledged.next)
    if acknowledged.by_key:
        start = max(min(start, acknowledged.next), position_of(fields, DROPPED))
    alerts = alerts_of(store.entries(LIST, start))
    if acknowledged.by_key and (left := acknowledged.after(start, alerts)) != acknowledged:
        store.commit(Commit({ACKNOWLEDGED: fields[ACKNOWLEDGED]}, {ACKNOWLEDGED: left.encode()}))
        acknowledged = left
    taken = [hook.take(key, start, alerts, acknowledged, now_ms) for hook in hooks]
    return any(taken)


def _call_of(hook: Hook) -> Callable[[Message], Delivery]:
    def call(message: Message) -> Delivery:
        fault_points.before("hooks.send")
        result = hook.send(message)
        fault_points.after("hooks.send")
        return result

    return call
