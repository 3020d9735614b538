"""What a policy would have done, and how its probabilities would have fared: the documents that a run makes.

Everything additive is kept by UTC day of event time, so that intervals can be had by drawing days, and two policies be
compared day by day. A document is strict JSON, the same bytes for the same history and policy.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

RELIABILITY_BINS = 20
"""Of equal width in probability."""

AlertState: TypeAlias = Literal["open", "update", "close"]


class Sums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Over labelled winners, by weight (keep rates); `log_loss` clipped at 1e-6."""

    labelled: float
    positives: float
    probability: float
    log_loss: float
    squared_error: float


class DayFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One UTC day."""

    day: int
    """Days since 1970-01-01."""
    scored: int
    """Winners."""
    unlabelled: int
    """Winners of matured panes without a label."""
    identity: int
    """Labelled winners that were served their raw score, because there was no snapshot yet."""
    raw: Sums
    served: Sums
    bins: list[tuple[float, float, float]]
    """RELIABILITY_BINS times labelled, positives, sum of the probability served."""
    raw_bins: list[tuple[float, float, float]]
    staleness_ms: float
    """Sum over the scored winners with a snapshot of the age of its data: end of the pane less end of the snapshot's
    last pane."""
    psi: float | None
    """The largest PSI of all scores over the day's panes; None where there was none to report."""


class GroupFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One group of a family, over the days from `PolicyOutcome.scored_from_day` on."""

    family: str
    """`carrier`, `carrier x origin`; `all` for everybody."""
    group: str
    raw: Sums
    served: Sums
    months: dict[str, tuple[float, float, float]]
    """`2013-04` -> labelled, positives, sum of the probability served."""


class AlarmFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event of an alert that the pane's step or a refit's answer raised."""

    id: str
    kind: str
    state: AlertState
    pane: int
    since_ms: int
    what: str
    """One line: the group, its size, the diagnosis."""
    groups: list[str] = []
    """Cells of residuals, groups of PSI that the event tells of (keys of its evidence's `cells` or `groups`); []: it is
    of none."""


class RefitFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request and its answer."""

    pane: int
    kind: str
    reason: str
    outcome: str
    version: str | None
    codes: list[str]
    """Why it was refused."""
    gain: float | None
    """Mean paired log-loss gain on the gate's rows, and its lower bound."""
    gain_lower: float | None
    level: float | None
    """Of the snapshot that was published, in log-odds."""
    rung: str | None
    """Base map that was chosen."""
    changed: str
    """One line: what it changed."""


class PolicyOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One policy over one history."""

    policy: str
    """Name."""
    overrides: dict[str, str]
    """Dotted configuration key -> value as in the file; {}: the configuration as it is."""
    config_hash: str
    """Of what fits and requests depend on (refit.settings.config_hash)."""
    history_sha256: str
    start: str
    """`exact` or `cold`."""
    scored_from_day: int
    """First day that counts in the figures: those before warm up."""
    days: list[DayFigures]
    """All days, in order."""
    groups: list[GroupFigures]
    alarms: list[AlarmFigures]
    refits: list[RefitFigures]
    worst_group_error_percent: float
    raw_worst_group_error_percent: float
    auc: float
    raw_auc: float
    tip: str | None
    """Hash chain of the decision log, and of the alerts: two runs of the same are the same."""
    outbox_sha256: str
    cpu_seconds: float
    """What the run took; not part of what is compared or hashed."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


def decode_outcome(raw: bytes) -> PolicyOutcome:
    """Raises msgspec.MsgspecError where the bytes are none."""
    return msgspec.json.decode(raw, type=PolicyOutcome)
