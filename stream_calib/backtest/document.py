"""The result of a backtest as one document: what `--json` writes and the report shows."""

from __future__ import annotations

import msgspec

from stream_calib.backtest.outcome import PolicyOutcome


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure with a 95 % interval by drawing days."""

    value: float
    low: float | None
    high: float | None
    """None with fewer than two blocks of days."""


class PolicyFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the policy table; days from `scored_from_day` on."""

    policy: str
    log_loss: Interval
    brier: Interval
    debiased_ece: Interval
    """Square root of the debiased squared ECE (0 where that is negative)."""
    worst_group_error_percent: float
    alarms: int
    """Alerts opened that somebody is told of (warning, critical): each refit has one of its own for the record."""
    refits: int
    """Requests."""
    published: int
    staleness_hours: float
    """Mean age of the snapshot's data, weighed by scores."""
    coverage: float
    """Labelled / matured winners."""
    log_loss_difference: Interval | None
    """Paired with the current policy, day by day: below 0 is better; None for the current policy itself."""
    brier_difference: Interval | None


class Optimism(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much better the best of many policies looks than it is, by nested forward evaluation: at each day the policy
    with the least loss up to the day before is followed."""

    policies: int
    best: str
    best_log_loss: float
    followed_log_loss: float
    """Of always following the best so far."""
    optimism: float
    """followed - best, on the same days."""
    warning: str | None
    by_chance: float | None = None
    """Share of the cases in which the best would lead the current policy by as much if none were better (reality check
    of White, 2000); 1 where it does not lead, None with fewer than two blocks of days."""


class Detection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an injected fault led to."""

    injected: str
    """The fault in words."""
    from_ms: int
    noticed_ms: int | None
    """Event time of the step at which the first alert opened, or took in a group, that the untouched history does not
    have: end of its pane, with the horizon and lateness of labels behind it; None: never."""
    noticed_by: str | None
    """Kind of that alert and what it said."""
    refit_ms: int | None
    """The same of the first publication behind the fault that the untouched history does not have."""
    log_loss_untouched: float | None
    log_loss: float | None
    """Of the whole days from the fault on that have labels with it and without it; None where there is none."""
    notes: list[str] = []
    """What the fault came to, where that is not what its settings say."""


class BacktestDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a backtest found."""

    model: str
    model_version: str
    source: str
    start: str
    """`exact` or `cold`."""
    pane_ms: int
    first_pane: int
    last_pane: int
    counts: dict[str, int]
    """Outcome classes and rejects by reason."""
    current: str
    """Name of the policy that the others are compared with."""
    outcomes: list[PolicyOutcome]
    table: list[PolicyFigures]
    raw: PolicyFigures
    """The raw score, in the same figures; no alarms, no refits."""
    optimism: Optimism | None
    detections: list[Detection]
    warnings: list[str]

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


def decode_document(raw: bytes) -> BacktestDocument:
    """Raises msgspec.MsgspecError where the bytes are none."""
    return msgspec.json.decode(raw, type=BacktestDocument)
