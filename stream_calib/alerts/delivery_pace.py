"""How fast a receiver is called: how long to wait after a failure, and how many messages it gets."""

from __future__ import annotations

import random

_FIRST_MS = 1_000
_MOST_ASKED_MS = 86_400_000
"""A receiver that asks for more is tried again all the same."""


class Backoff:
    """Exponential, with full jitter: after the n-th failure in a row a time drawn evenly from zero to
    min(most_ms, 1 s x 2^(n - 1)), so that many senders do not come back at once (M. Brooker, "Exponential backoff and
    jitter", 2015)."""

    def __init__(self, random_: random.Random, most_ms: int) -> None:
        self._random, self._most_ms = random_, most_ms
        self.failures = 0
        """In a row."""
        self._since_ms = self._wait_ms = 0

    def failed(self, now_ms: int, retry_after_s: float | None) -> None:
        """`retry_after_s`: what the receiver asked for; the next attempt is not before."""
        # The bound holds long before the tenth; larger powers would only overflow in the end.
        bound_ms = min(self._most_ms, _FIRST_MS * 2 ** min(self.failures, 10))
        self.failures += 1
        asked_ms = min(_MOST_ASKED_MS, 1_000 * (retry_after_s or 0.0))
        self._since_ms, self._wait_ms = now_ms, round(max(self._random.uniform(0, bound_ms), asked_ms))

    def went_well(self) -> None:
        self.failures = self._wait_ms = 0

    def is_over(self, now_ms: int) -> bool:
        """Whether the next attempt may be made. A clock that was set back ends the wait, and does not lengthen it."""
        return not 0 <= now_ms - self._since_ms < self._wait_ms


class TokenBucket:
    """`messages` at once, and then one in each `per_ms` / `messages`."""

    def __init__(self, messages: int, per_ms: int) -> None:
        self._messages, self._refill_ms = messages, per_ms / messages
        self._tokens = float(messages)
        self._at_ms = 0

    def has_one(self, now_ms: int) -> bool:
        """Whether a message may be sent."""
        self._tokens = min(self._messages, self._tokens + max(0, now_ms - self._at_ms) / self._refill_ms)
        self._at_ms = now_ms
        return self._tokens >= 1 - 1e-9  # what sums of parts of a token may be short of one by rounding

    def take(self) -> None:
        """A message is sent."""
        self._tokens -= 1

    def give_back(self) -> None:
        """It was not delivered."""
        self._tokens += 1
