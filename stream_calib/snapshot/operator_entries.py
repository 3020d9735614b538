"""Entries of the decision log that people make: each says who, why and when."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from stream_calib.snapshot.canonical import canonical_json


class LogEntry(BaseModel):
    """What every entry of the decision log is."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    pane: int
    """The pane at which the entry takes effect; of a request: the pane that was decided with it."""

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


class _Act(LogEntry):
    actor: str
    reason: str
    time_ms: int
    """Wall time, epoch milliseconds."""


class Manual(_Act):
    """Somebody asks for a structure refit."""

    type: Literal["manual"] = "manual"
    action: Literal["refit"] = "refit"


class Rollback(_Act):
    """Somebody moves the pointer back to a version that was published before."""

    type: Literal["rollback"] = "rollback"
    version: str
    left: str
    """The version that was current before."""


class Pin(_Act):
    """Somebody keeps the current version: no refit is published until somebody unpins it."""

    type: Literal["pin"] = "pin"
    version: str
    """Current at this entry; where another one was, a rollback stands before it."""


class Unpin(_Act):
    """Refits are published again."""

    type: Literal["unpin"] = "unpin"
    version: str
    """The version that was pinned."""


class Approve(_Act):
    """Somebody publishes a candidate that was held."""

    type: Literal["approve"] = "approve"
    version: str
    left: str | None
    """The version that was current before: the candidate's parent."""


class Reject(_Act):
    """Somebody drops a candidate that was held."""

    type: Literal["reject"] = "reject"
    version: str


class Shadow(_Act):
    """Somebody has a version evaluated beside what is served, in place of the one that was before."""

    type: Literal["shadow"] = "shadow"
    version: str
    structure: str | None
    """The version that it is a level of; None: it is a structure itself."""


class Unshadow(_Act):
    """Nothing is evaluated beside what is served any more."""

    type: Literal["unshadow"] = "unshadow"
    version: str
    """The version that was."""
