"""What became of a candidate that was held, as the decision log tells it."""

from __future__ import annotations

from stream_calib.snapshot.decision_log import DecisionLog, Settled
from stream_calib.snapshot.operator_entries import Approve, Reject


def fate(log: DecisionLog, version: str) -> str | None:
    """`held`, or how it ended, in words; None where the log does not know of a candidate of this version."""
    if version in log.held:
        return "held"
    known = False
    for entry in log.entries:
        if isinstance(entry, Settled) and entry.version is not None:
            if entry.outcome == "held":
                known |= entry.version == version
            elif known:
                return f"superseded when {entry.version} was published"
        elif isinstance(entry, Approve):
            if entry.version == version:
                return f"approved by {entry.actor}: {entry.reason}"
            if known:
                return f"superseded when {entry.version} was approved by {entry.actor}"
        elif isinstance(entry, Reject) and entry.version == version:
            return f"rejected by {entry.actor}: {entry.reason}"
    return "superseded by later ones" if known else None


def why_not_held(log: DecisionLog, version: str) -> str:
    """A clause for errors about a version that is not held."""
    found = fate(log, version)
    if found is None:
        return "no candidate of this version is held; see `snapshot held`"
    return f"it was {found}"
