"""What is committed with the decisions of panes, and where a request expires: live and in a backtest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stream_calib.snapshot.decision_log import Expired, Request, chain
from stream_calib.windows.state_store import Commit

Expectations = Mapping[str, str | None]
"""As in Commit."""


def decided_commit(
    expect: Expectations,
    tip: str | None,
    log_length: int,
    *,
    decided: int,
    detector: str | None,
    open_request: str,
    decisions: Sequence[bytes],
    outbox: Sequence[bytes],
) -> Commit:
    """Up to pane `decided`, on a decision log of `log_length` entries that leads to `tip`. `detector`: the carried
    state; None: there is none yet. The rest as in PaneDecision, of all the panes."""
    fields = {"decided": str(decided), "open_request": open_request}
    if detector is not None:
        fields["detector"] = detector
    if decisions:
        fields |= _log_fields(tip, log_length, decisions)
    return Commit(expect, fields, _appends(decisions, outbox))


def expired_commit(
    expect: Expectations, tip: str | None, log_length: int, *, request: Request, pane: int, outbox: Sequence[bytes]
) -> Commit:
    """The request has no answer by `pane`, which is decided next."""
    entry = Expired(pane=pane, request_id=request.id).encode()
    return Commit(expect, {"open_request": "", **_log_fields(tip, log_length, [entry])}, _appends([entry], outbox))


def _log_fields(tip: str | None, log_length: int, entries: Sequence[bytes]) -> dict[str, str]:
    return {"tip": str(chain(tip, entries)), "log_length": str(log_length + len(entries))}


def _appends(decisions: Sequence[bytes], outbox: Sequence[bytes]) -> dict[str, Sequence[bytes]]:
    return {name: entries for name, entries in (("decisions", decisions), ("outbox", outbox)) if entries}
