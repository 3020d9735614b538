"""The section that says how long what is done with stays, and the least that windows and refits need."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from stream_calib.config_values import DurationMs, DurationMsOrOff, Section, duration_text

_DAY_MS = 86_400_000
_LEAST_ARCHIVE_MS = 90 * _DAY_MS
REFIT_MS = 31 * _DAY_MS
"""Audits and the record of forward losses look at 28 days, each day by a fit as of the end of the day before."""
PSI_WINDOWS = 29
"""A refit looks at 28 past PSI windows, the first of which may begin in the middle of the one before."""
_MOST_PANES_BETWEEN_CHECKPOINTS = 2_000
_CHECKPOINT_EVERY_MS = 7 * _DAY_MS


class RetentionSection(Section):
    """How long what is done with stays in Redis."""

    archive_ms: DurationMsOrOff = Field(
        default=None,
        alias="archive",
        gt=0,
        description="Matured panes stay at least so long, for replay and for a look back; without one 90 days, or what"
        " windows and refits need, if that is more",
    )
    publications: int = Field(
        default=400,
        ge=20,
        le=4_000,
        description="The newest so many publications stay, with their snapshots and reports; before them nothing can be"
        " rolled back to",
    )
    embedded_log_ms: DurationMs = Field(
        default=7 * _DAY_MS,
        alias="embedded_log",
        gt=0,
        description="Records of the embedded log stay at least so long, and longer where a role, or the rebuilding of a"
        " shard, still needs them; in Kafka the topics have their own",
    )


class KeptPanes(NamedTuple):
    """In panes, back from the last one that was decided."""

    refit: int
    """A refit looks at so many panes itself; older ones it knows as sums."""
    archive: int
    """So many stay whatever else is asked for."""
    between_checkpoints: int


def needed_ms(gate_window_ms: int, psi_window_ms: int) -> int:
    """What a refit looks at, pane by pane."""
    return max(REFIT_MS, gate_window_ms, PSI_WINDOWS * psi_window_ms)


def kept_panes(
    section: RetentionSection,
    pane_ms: int,
    horizon_ms: int,
    keep_panes: int,
    gate_window_ms: int,
    psi_window_ms: int,
) -> KeptPanes:
    """Raises ValueError where the archive is shorter than what windows and refits need."""
    refit = -(-needed_ms(gate_window_ms, psi_window_ms) // pane_ms) + 1
    # A shard that was wiped begins where the panes began whose labels the kept ones need.
    rebuild = keep_panes + 2 * -(-horizon_ms // pane_ms) + 2
    least = max(refit, rebuild)
    if section.archive_ms is not None and section.archive_ms // pane_ms < least:
        raise ValueError(
            f"retention.archive = {duration_text(section.archive_ms)} is less than the {duration_text(least * pane_ms)}"
            " that refits (28 days, refit.gate_window, 29 of drift.psi_window) and the rebuilding of shards (two of"
            " windows.horizon and windows.keep_panes) need; make it longer, or leave it out"
        )
    archive = max(least, -(-(section.archive_ms or _LEAST_ARCHIVE_MS) // pane_ms))
    between = min(_MOST_PANES_BETWEEN_CHECKPOINTS, -(-_CHECKPOINT_EVERY_MS // pane_ms))
    return KeptPanes(refit, archive, between)
