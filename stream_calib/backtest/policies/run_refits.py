"""What the refits of a run came to, in one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stream_calib.backtest.outcome import RefitFigures
from stream_calib.snapshot.compiled import rule_of
from stream_calib.snapshot.fit_documents import ChoicesDocument
from stream_calib.snapshot.model import LevelSnapshot, Snapshot, StructureSnapshot
from stream_calib.snapshot.report import RefitReport
from stream_calib.snapshot.store import SnapshotStore

_MOST_MOVES = 3
"""Groups that a line names."""


def refit_figures(
    reports: Sequence[RefitReport], store: SnapshotStore, said: dict[tuple[object, ...], str]
) -> list[RefitFigures]:
    """Of every request, in order. `said`: what was found to have changed between snapshots of the same fits; more is
    put there."""
    return [_figures(report, store, said) for report in reports]


def _figures(report: RefitReport, store: SnapshotStore, said: dict[tuple[object, ...], str]) -> RefitFigures:
    gate, choices = report.gate, report.choices
    published = report.version if report.outcome == "published" else None
    snapshot = None if published is None else store.document(published)
    return RefitFigures(
        pane=report.pane,
        kind=report.kind,
        reason=report.reason,
        outcome=report.outcome,
        version=report.version,
        codes=list(report.refused_for),
        gain=None if gate is None else gate.gain,
        gain_lower=None if gate is None else gate.gain_lower,
        level=None if snapshot is None else snapshot.level,
        rung=None if choices is None else choices.rung,
        changed=report.detail if snapshot is None else _changed_once(snapshot, store, said),
    )


def _changed_once(snapshot: Snapshot, store: SnapshotStore, said: dict[tuple[object, ...], str]) -> str:
    """As `changed`, by what tells maps of the same fits apart."""
    before = None if snapshot.parent is None else store.load(snapshot.parent)
    map_before = None if before is None else (before.structure.last_pane, before.level)
    key = snapshot.kind, snapshot.last_pane, snapshot.level, map_before
    if key not in said:
        said[key] = changed(snapshot, store)
    return said[key]


def changed(snapshot: Snapshot, store: SnapshotStore) -> str:
    """What a snapshot changed of the one before it, in one line: level, what is in the map, the groups that moved."""
    before = None if snapshot.parent is None else store.load(snapshot.parent)
    level = f"level {snapshot.level:+.3f}" + ("" if before is None else f" (was {before.level:+.3f})")
    if isinstance(snapshot, LevelSnapshot):
        return level
    structure = None if before is None else before.structure
    said = [level, *_choices(snapshot.choices, None if structure is None else structure.choices)]
    moves = _moves(snapshot, structure)
    if moves:
        said.append("most moved: " + ", ".join(f"{name} {by:+.3f}" for name, by in moves))
    return "; ".join(said)


def _choices(now: ChoicesDocument | None, before: ChoicesDocument | None) -> Iterator[str]:
    if now is None:
        return
    if before is None or now.rung != before.rung:
        yield f"base map {now.rung}"
    off, were_off = set(now.families_off), set() if before is None else set(before.families_off)
    for what, names in (("off", off - were_off), ("on again", were_off - off)):
        if names:
            yield f"{what}: {', '.join(sorted(names))}"
    slopes, were = set(now.slopes), set() if before is None else set(before.slopes)
    if slopes != were:
        yield f"slopes: {', '.join(sorted(slopes)) or 'none'}"
    if now.patches != (before is not None and before.patches):
        yield "patches" if now.patches else "no patches"


def _moves(now: StructureSnapshot, before: StructureSnapshot | None) -> list[tuple[str, float]]:
    """The groups whose offset moved most, and by how much in log-odds."""
    offsets, were = _offsets(now), {} if before is None else _offsets(before)
    by = {name: offsets.get(name, 0.0) - were.get(name, 0.0) for name in offsets.keys() | were.keys()}
    largest = sorted(by.items(), key=lambda move: (-abs(move[1]), move[0]))[:_MOST_MOVES]
    return [(name, move) for name, move in largest if abs(move) >= 0.0005]


def _offsets(snapshot: StructureSnapshot) -> dict[str, float]:
    found = {}
    for family in snapshot.families:
        rule = rule_of(family, snapshot.map_attributes)
        for group in family.offsets:
            found[rule.group_name(group.values)] = group.offset
    return found
