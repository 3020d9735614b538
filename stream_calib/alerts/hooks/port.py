"""The port of a hook: what brings one message to people, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from stream_calib.alerts.model import Alert
from stream_calib.snapshot.canonical import content_id


@dataclass(frozen=True, slots=True)
class Message:
    """What is delivered at once: one alert event, or several that were held or came too fast."""

    alerts: Sequence[Alert]
    """Oldest first, at least one. Several of them: a summary."""
    is_test: bool = False
    acknowledged_by: str = ""
    """Who has taken the alerts on, where the message says only that."""

    @property
    def id(self) -> str:
        """The same whenever it is sent again, so that a receiver can tell a repeat, and never that of a message that
        says more: of one alert its id, of several made of all their ids."""
        ids = [alert.id for alert in self.alerts]
        if self.acknowledged_by:
            return content_id("acknowledged", self.acknowledged_by, *ids)
        return ids[0] if len(ids) == 1 else content_id("summary", *ids)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one attempt."""

    outcome: Literal["delivered", "retry", "rejected"]
    """`retry`: the receiver may take it later; `rejected`: it never will."""
    detail: str
    """For people, without secrets: what the receiver said, or what failed."""
    retry_after_s: float | None = None
    """What the receiver asked for."""


class Hook(Protocol):
    """One receiver. `send` is called by one thread at a time, blocks for at most the hook's `timeout`, and raises
    nothing for what a receiver can do wrong."""

    @property
    def name(self) -> str: ...

    def send(self, message: Message) -> Delivery: ...

    def close(self) -> None: ...
