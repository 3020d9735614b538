"""The parts of a refit's report: what was asked, the data of each role, and the candidate against what is served.

Lists of groups hold the ones that say most, and how many were left out; so a report is at most some tens of kilobytes,
however many groups there are.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from stream_calib.snapshot.document import Document, ExtendedDocument

MOST_GROUPS = 30
"""Groups in each list of a report."""
MOST_DECISION_GROUPS = 10
"""Groups of each decision; they stand in the snapshot too."""


class AskedDocument(Document):
    """The request, as the decision log has it."""

    first_pane: int
    last_pane: int
    parent: str | None
    """Version that was current; None: nothing was published yet."""
    cells_sha256: str
    """Chain hash of the matured cells up to `last_pane`."""
    config_hash: str
    evidence_sha256: str | None = None
    """Hash of the record of forward evidence that the candidate was chosen by; None where none was read."""
    asked_by: tuple[str, ...] = ()
    """Of a manual request: who, and why."""


class RoleRows(Document):
    """What one role was given."""

    role: Literal["fit", "audit", "certificate", "gate"]
    unit_buckets: tuple[int, ...]
    first_pane: int
    last_pane: int
    incomplete_panes: int | None
    """Panes among these that miss labels, and so gave no rows; None: not counted (of the fit, whose panes go back to
    the first one)."""
    rows: int
    """Labelled rows, neither weighted nor decayed."""
    positives: int


class GroupCrossings(Document):
    """Shares of one group's events that a candidate moves over a threshold."""

    name: str
    events: int
    up: float
    """From below the threshold to it or above."""
    down: float
    """From the threshold or above to below it."""
    lower: float | None = None
    """Simultaneous lower bound on up + down; None where there are too few events, or days, for one."""


class DecisionImpact(ExtendedDocument):
    """What a candidate does to those who decide by `probability >= threshold`."""

    later = frozenset({"beyond_limit", "groups_left_out"})

    name: str
    threshold: float
    events: int
    at_or_above: float
    """Share of the events that are at the threshold or above it by what is served."""
    up: float
    down: float
    groups: tuple[GroupCrossings, ...]
    """Those of which most events cross; those beyond the limit first."""
    beyond_limit: int = 0
    """Groups whose lower bound is above `refit.max_decision_shift`, where one is set."""
    groups_left_out: int = 0
    """Groups of ten events or more in which some cross, and which are not in `groups`."""

    @property
    def share(self) -> float:
        """Of the events that cross, in either direction."""
        return self.up + self.down

    def in_short(self) -> dict[str, Any]:
        """For an alert: shares of all events, and of the groups of which most cross."""
        groups = [{"name": g.name, "events": g.events, "up": g.up, "down": g.down} for g in self.groups[:3]]
        return {"name": self.name, "threshold": self.threshold, "up": self.up, "down": self.down, "groups": groups}


class ReliabilityColumns(Document):
    """A reliability diagram of b bins of about equal weight; columns (b,), in order of probability."""

    probability: tuple[float, ...]
    """Mean."""
    rate: tuple[float, ...]
    """Share of positives."""
    rows: tuple[float, ...]
    """By weight."""
    lower: tuple[float, ...]
    """Bounds on the true rates that hold for all bins at once with 95 %, for independent rows; so the next."""
    upper: tuple[float, ...]


class ReliabilityDocument(Document):
    """On the gate's labelled rows."""

    served: ReliabilityColumns
    candidate: ReliabilityColumns


Verdict: TypeAlias = Literal["harmed", "better", "not_harmed", "underpowered"]
"""Of a group: worse beyond tolerance and doubt; better beyond doubt; harm beyond the tolerance would have been seen,
and was not; it could not have been seen."""


class GroupLine(Document):
    """One group of the gate's labelled rows, before and after; means by weight."""

    name: str
    rows: int
    rate: float
    """Share of positives."""
    rate_lower: float
    """Bounds on the true rate that hold for all groups at once with 95 %, for independent rows; so the next."""
    rate_upper: float
    served: float
    """Mean probability; the residual is the rate less it. So the next."""
    candidate: float
    gain: float
    """Mean log-loss that the candidate saves a row."""
    gain_error: float | None
    """Its standard error, the larger of days, unit buckets, and the labels' own; None where there is none."""
    verdict: Verdict


class GroupTableDocument(ExtendedDocument):
    """Harmed groups first, then those of which most events are off, before or after."""

    later = frozenset({"left_out"})

    lines: tuple[GroupLine, ...]
    left_out: int = 0


class ShiftLine(Document):
    """What changes for the events of a group."""

    name: str
    events: int
    served: float
    """Mean probability; so the next."""
    candidate: float


class MovedShare(Document):
    more_than: float
    """In probability."""
    share: float
    """Of the events."""


class ChangesDocument(ExtendedDocument):
    """What changes for whom: all scores of the gate's unit buckets in the gate's window, labelled or not."""

    later = frozenset({"left_out"})

    events: int
    served: float
    """Mean probability; so the next."""
    candidate: float
    mean_absolute_shift: float
    moved: tuple[MovedShare, ...]
    groups: tuple[ShiftLine, ...]
    """Those first of which most is moved (events x mean shift)."""
    left_out: int = 0
