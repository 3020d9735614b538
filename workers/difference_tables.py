"""What two snapshots differ in, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from stream_calib.snapshot.difference import Difference, GroupChange, GroupShift, TrafficShift
from stream_calib.snapshot.recent_traffic import RecentTraffic
from workers.refit_tables import decision_table
from workers.time_text import utc_of_pane

_GROUPS_SHOWN = 20


def difference_facts(found: Difference, traffic: RecentTraffic, pane_ms: int) -> dict[str, Any]:
    """Plain values; changes and shifts are those from `before` to `after`."""
    facts = asdict(found)
    for name in ("groups", "slopes", "patches"):
        facts[name] = [asdict(group) | {"change": group.change} for group in getattr(found, name)]
    if found.traffic is not None:
        moved = {str(limit): share for limit, share in found.traffic.moved.items()}
        groups = [asdict(group) | {"shift": group.shift} for group in found.traffic.groups]
        everything = asdict(found.traffic.everything) | {"shift": found.traffic.everything.shift}
        facts["traffic"] |= {
            "moved": moved,
            "groups": groups,
            "everything": everything,
            "decisions": [decision.model_dump(mode="json") for decision in found.traffic.decisions],
            "from_ms": traffic.first_pane * pane_ms,
            "until_ms": (traffic.last_pane + 1) * pane_ms,
        }
    return facts


def difference_tables(found: Difference, traffic: RecentTraffic, pane_ms: int) -> list[Table]:
    """Made of, base map, groups, traffic; of long lists the largest changes."""
    tables = [_made_of(found, pane_ms), _curve(found), _groups("Offsets (log-odds)", found.groups)]
    if found.slopes:
        tables.append(_groups("Slopes in the raw log-odds", found.slopes))
    if found.patches:
        tables.append(_groups("Largest patches (probability)", found.patches))
    if found.traffic is not None:
        tables += _traffic(found.traffic, traffic, pane_ms)
    return tables


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="left" if column in ("", "group") else "right", no_wrap=column == "")
    return table


def _made_of(found: Difference, pane_ms: int) -> Table:
    table = _table("Snapshots", "", "before", "after")
    sides = (found.before, found.after)
    table.add_row("version", *(s.version for s in sides))
    table.add_row("structure", *(s.structure for s in sides))
    table.add_row("level (log-odds)", *(f"{s.level:+.4f}" for s in sides))
    table.add_row("fitted from", *(utc_of_pane(s.first_pane, pane_ms) for s in sides))
    table.add_row("until", *(utc_of_pane(s.last_pane + 1, pane_ms) for s in sides))
    table.add_row("labelled rows", *(f"{s.rows:,}" for s in sides))
    table.add_row("positives", *(f"{s.positives:,}" for s in sides))
    table.add_row("scores a pane", *(f"{s.scored_per_pane:,.1f}" for s in sides))
    table.add_row("base map", *(s.rung or "-" for s in sides))
    table.add_row("families off", *(_names(s.families_off) for s in sides))
    table.add_row("slopes", *(_names(s.slopes) for s in sides))
    table.add_row("derived", *(_names(s.derived) for s in sides))
    table.add_row("patched groups", *(f"{s.patched_groups}" for s in sides))
    table.add_row("certified alpha", *("-" if s.certified_alpha is None else f"{s.certified_alpha:.4f}" for s in sides))
    return table


def _curve(found: Difference) -> Table:
    table = _table("Base map (without offsets and level)", "raw score", "before", "after", "change")
    for point in found.curve:
        change = point.after - point.before
        table.add_row(f"{point.score:g}", f"{point.before:.4f}", f"{point.after:.4f}", f"{change:+.4f}")
    return table


def _groups(what: str, groups: Sequence[GroupChange]) -> Table:
    table = _table(f"{what}: {len(groups)} changed" + _largest(len(groups)), "group", "before", "after", "change")
    for group in groups[:_GROUPS_SHOWN]:
        numbers = ("-" if number is None else f"{number:+.4f}" for number in (group.before, group.after))
        table.add_row(group.name, *numbers, f"{group.change:+.4f}")
    return table


def _traffic(shift: TrafficShift, traffic: RecentTraffic, pane_ms: int) -> list[Table]:
    since, until = (utc_of_pane(pane, pane_ms) for pane in (traffic.first_pane, traffic.last_pane + 1))
    whole = _table(f"What it means for the scores of {since} to {until} UTC", "", "")
    whole.add_row("events", f"{shift.everything.events:,}")
    whole.add_row("mean probability", f"{shift.everything.mean_before:.4f} -> {shift.everything.mean_after:.4f}")
    whole.add_row("mean shift", f"{shift.everything.shift:+.4f}")
    whole.add_row("mean absolute shift", f"{shift.mean_absolute_shift:.4f}")
    whole.add_row("largest shift", f"{shift.largest_shift:+.4f}")
    for limit, share in shift.moved.items():
        whole.add_row(f"move by more than {limit:g}", f"{share:.1%}")
    title = f"By group: {len(shift.groups)}" + _largest(len(shift.groups))
    groups = _table(title, "group", "events", "before", "after", "shift")
    for group in shift.groups[:_GROUPS_SHOWN]:
        groups.add_row(*_shift_row(group))
    return [whole, groups, *(decision_table(decision) for decision in shift.decisions)]


def _shift_row(group: GroupShift) -> tuple[str, ...]:
    figures = (f"{group.events:,}", f"{group.mean_before:.4f}", f"{group.mean_after:.4f}", f"{group.shift:+.4f}")
    return f"{group.attribute}={group.value}", *figures


def _largest(count: int) -> str:
    return f"; the {_GROUPS_SHOWN} largest (all with --json)" if count > _GROUPS_SHOWN else ""


def _names(names: Sequence[str] | None) -> str:
    return ", ".join(names or ()) or "-"
