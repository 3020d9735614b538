"""The trigger machine: which refit is asked for at a pane, if any. Pure; time is counted in panes.

Priority: manual > bootstrap > residual > psi > age > level; at most one request a pane. Cooldown and the minimum of new
labels hold for residual and psi only. Age is counted from the last structure request, whatever became of it, so a
refused candidate is tried again after `max_age` and not at once; the same holds for a bootstrap that was refused. A
manual request before there are rows enough for a first snapshot is not counted: asking too early would put that
snapshot off.

An alarm *arms* the machine: of outcomes at once, because what it saw is mature; of scores once the panes that it saw
are. It stays armed until a structure refit is asked for, by whatever trigger, that has those panes. Table of states and
transitions: docs/drift.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["structure", "level"]
Reason: TypeAlias = Literal["manual", "bootstrap", "residual", "psi", "age", "level"]
Phase: TypeAlias = Literal["settled", "maturing", "cooling_down", "waiting_for_labels", "armed"]


@dataclass(frozen=True, slots=True)
class TriggerConfig:
    """Limits; `_panes` are numbers of panes."""

    max_age_panes: int
    level_cadence_panes: int | None
    cooldown_panes: int
    min_new_labels: int
    min_rows: int
    min_positives: int
    triggers: frozenset[str] = frozenset({"residual", "psi", "age"})
    """Those among `residual`, `psi` and `age` that may ask. An alarm of one that may not arms nothing."""


@dataclass(frozen=True, slots=True)
class TriggerState:
    """Carried from pane to pane."""

    fit_rows: int = 0
    """Labelled rows of complete panes in fit buckets since the generation's first pane."""
    fit_positives: int = 0
    new_labels: int = 0
    """Labelled rows of complete panes since the last structure request."""
    last_structure_pane: int | None = None
    last_level_pane: int | None = None
    armed_pane: int | None = None
    """A psi alarm waits for this pane (the newest that it saw) to be mature."""
    residual_pane: int | None = None
    """The pane of the first residual alarm that no structure refit was asked for since."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        document = asdict(self)
        if self.residual_pane is None:  # as it was before there were residual alarms: the same state is the same bytes
            del document["residual_pane"]
        return document


@dataclass(frozen=True, slots=True)
class TriggerFacts:
    pane: int
    labelled: int
    """Labelled rows of the pane; 0 for an incomplete pane, as for the next two."""
    fit_labelled: int
    fit_positives: int
    has_snapshot: bool
    manual: bool
    psi_alarm_pane: int | None
    """Newest closed pane of the PSI window that opened an alarm at this step."""
    residual_alarm: bool = False
    """Outcomes of the pane made an alarm."""


@dataclass(frozen=True, slots=True)
class Asked:
    kind: Kind
    reason: Reason


def trigger(state: TriggerState, facts: TriggerFacts, config: TriggerConfig) -> tuple[TriggerState, Asked | None]:
    """The state after the pane, and the request to be made."""
    psi, residual = "psi" in config.triggers, "residual" in config.triggers
    state = replace(
        state,
        fit_rows=state.fit_rows + facts.fit_labelled,
        fit_positives=state.fit_positives + facts.fit_positives,
        new_labels=state.new_labels + facts.labelled,
        # One refit for all that alarms meanwhile: a further group must not put it off.
        armed_pane=(facts.psi_alarm_pane if state.armed_pane is None else state.armed_pane) if psi else None,
        residual_pane=_first_alarm(state, facts) if residual else None,
    )
    reason = _reason(state, facts, config)
    if reason is None:
        return state, None
    if reason == "level":
        return replace(state, last_level_pane=facts.pane), Asked("level", reason)
    if not facts.has_snapshot and not _enough(state, config):
        return state, Asked("structure", reason)
    still_armed = state.armed_pane is not None and state.armed_pane > facts.pane
    state = replace(
        state,
        new_labels=0,
        last_structure_pane=facts.pane,
        armed_pane=state.armed_pane if still_armed else None,
        residual_pane=None,
    )
    return state, Asked("structure", reason)


def phase(state: TriggerState, pane: int, config: TriggerConfig) -> Phase:
    """What the alarms wait for before the pane after `pane`, no request being open; `settled`: there are none."""
    if state.residual_pane is None:
        if state.armed_pane is None:
            return "settled"
        if state.armed_pane > pane + 1:
            return "maturing"
    if state.last_structure_pane is not None and pane + 1 - state.last_structure_pane < config.cooldown_panes:
        return "cooling_down"
    return "waiting_for_labels" if state.new_labels < config.min_new_labels else "armed"


def _first_alarm(state: TriggerState, facts: TriggerFacts) -> int | None:
    """The pane of the first residual alarm that no structure refit was asked for since."""
    return facts.pane if facts.residual_alarm and state.residual_pane is None else state.residual_pane


def _reason(state: TriggerState, facts: TriggerFacts, config: TriggerConfig) -> Reason | None:
    since = None if state.last_structure_pane is None else facts.pane - state.last_structure_pane
    old = since is None or since >= config.max_age_panes
    if facts.manual:
        return "manual"
    if not facts.has_snapshot:
        return "bootstrap" if old and _enough(state, config) else None
    may_ask = (since is None or since >= config.cooldown_panes) and state.new_labels >= config.min_new_labels
    if may_ask and state.residual_pane is not None:
        return "residual"
    if may_ask and state.armed_pane is not None and facts.pane >= state.armed_pane:
        return "psi"
    if old and "age" in config.triggers:
        return "age"
    if config.level_cadence_panes is not None and since is not None:
        since_level = since if state.last_level_pane is None else min(since, facts.pane - state.last_level_pane)
        if since_level >= config.level_cadence_panes:
            return "level"
    return None


def _enough(state: TriggerState, config: TriggerConfig) -> bool:
    negatives = state.fit_rows - state.fit_positives
    return state.fit_rows >= config.min_rows and min(state.fit_positives, negatives) >= config.min_positives
