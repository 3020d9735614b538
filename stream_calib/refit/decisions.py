"""Decisions that a candidate changes: the users' thresholds on the traffic of the gate.

Looked at are all scores of the gate's unit buckets in the gate's window, labelled or not: who crosses a threshold needs
no label, and where only some are ever labelled (only accepted applications, say) the labelled ones are another
population than those that are decided about.

A group's share is known from some days of a sample of units, so a limit on it is judged at a simultaneous lower bound,
as harm is (`gate_groups.py`): Bonferroni over the groups of all decisions, Student's t of the group's days, and as
error the largest of days, unit buckets, and independent events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.groups import CellGroups
from stream_calib.refit.gate_groups import largest_error, simultaneous_quantile
from stream_calib.refit.gate_rows import GateTraffic, blocks_seen
from stream_calib.snapshot.decision_impact import MIN_GROUP_EVENTS, Crossings, crossings, decision_impact
from stream_calib.snapshot.report_documents import DecisionImpact


def decision_impacts(
    traffic: GateTraffic, thresholds: Mapping[str, float], limit: float | None
) -> tuple[DecisionImpact, ...]:
    """Of each decision, in order of the thresholds. `limit`: `refit.max_decision_shift`."""
    ordered = sorted(thresholds.items(), key=lambda item: (item[1], item[0]))
    comparisons = len(ordered) * sum(_judged(traffic, family) for family in traffic.families)
    found = []
    for name, threshold in ordered:
        crossed = crossings(traffic.events, traffic.served, traffic.candidate, threshold)
        lower = [_lower_bounds(traffic, crossed, family, comparisons) for family in traffic.families]
        found.append(
            decision_impact(name, threshold, traffic.events, crossed, traffic.families, lower=lower, limit=limit)
        )
    return tuple(found)


def shifts_beyond(decisions: Sequence[DecisionImpact], limit: float) -> Iterator[str]:
    """What there is to say of each decision of which more events cross than the limit: of all, or surely of a group."""
    for decision in decisions:
        said = []
        if decision.share > limit:
            said.append(f"{decision.share:.2%} of all events")
        if decision.beyond_limit:
            worst = decision.groups[0]
            others = decision.beyond_limit - 1
            named = f"at least {worst.lower or 0.0:.2%} of the events of {worst.name}"
            said.append(named + (f", and {others} more groups beyond the limit" if others else ""))
        if said:
            yield (
                f"the decision {decision.name} (at {decision.threshold:g}) changes for {' and '.join(said)}; at most"
                f" {limit:.2%} may cross"
            )


def _judged(traffic: GateTraffic, family: CellGroups) -> int:
    """Number of groups that have events enough for a bound."""
    inside = family.group_of >= 0
    events = np.bincount(family.group_of[inside], traffic.events[inside], len(family.names))
    return int((events >= MIN_GROUP_EVENTS).sum())


def _lower_bounds(
    traffic: GateTraffic, crossed: Crossings, family: CellGroups, comparisons: int
) -> NDArray[np.float64]:
    """(G,) bounds on the shares of a family's groups that cross; nan where there are too few events, or one day."""
    inside, size = family.group_of >= 0, len(family.names)
    if not comparisons:
        return np.full(size, np.nan)
    group = family.group_of[inside]
    day, bucket = traffic.day[inside], traffic.unit_bucket[inside]
    events = traffic.events[inside].astype(np.float64)
    moved = (crossed.up + crossed.down)[inside]
    n = np.bincount(group, events, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.bincount(group, moved, size) / n
        independent = np.sqrt(share * (1 - share) / n)
    error = largest_error(day, bucket, group, moved, events, independent)
    days = blocks_seen(day, group, size)
    quantile = np.array(
        [simultaneous_quantile(blocks, comparisons) if blocks > 1 else np.nan for blocks in days.tolist()]
    )
    return np.where(n >= MIN_GROUP_EVENTS, share - quantile * error, np.nan)
