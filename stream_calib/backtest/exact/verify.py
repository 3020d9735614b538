"""Whether a replay came to what the live run has: cells, pane records, decisions, snapshots and alerts, by their bytes.

Of each kind the first difference is named: pane and cell, entry of the decision log, version, alert event.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from stream_calib.alerts.model import Alert, AlertKind
from stream_calib.alerts.outbox import OTHER_GENERATION
from stream_calib.backtest.exact.given_log import GivenReplay, LiveDecisions
from stream_calib.backtest.exact.verify_cells import CellDifference, PaneCursors, compare_cells
from stream_calib.snapshot.history import pointer_moves, versions_named
from stream_calib.windows.state_store import StateStore

Part: TypeAlias = Literal["cursor", "scored", "matured", "record", "decision", "snapshot", "detector", "alert"]

BY_WALL_CLOCK: frozenset[AlertKind] = frozenset(
    (
        "snapshot_too_old",
        "input_gap",
        "watermark_stalled",
        "no_scores",
        "lag",
        "rejected_rate",
        "redis_writes_lost",
        "late_labels",
    )
)
"""Alerts of what monitors look at every few seconds: when they do is in no log."""
_NOT_REPLAYED = "alerts of what monitors look at by the wall clock: " + ", ".join(sorted(BY_WALL_CLOCK))


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first one of a part."""

    part: Part
    pane: int | None
    where: str
    """The cell, field, entry, version or event."""
    live: str
    replayed: str
    also: int = 0
    """How many more of the part differ."""

    @property
    def text(self) -> str:
        """One line for people."""
        pane = "" if self.pane is None else f" of pane {self.pane}"
        also = f" (and {self.also} more)" if self.also else ""
        return f"{self.part}{pane}: {self.where}: live {self.live}, replayed {self.replayed}{also}"


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was compared, and what differs."""

    first_pane: int
    """The first one that was compared: older ones the live state does not keep."""
    closed: int
    matured: int
    decided: int
    """The last ones that were compared; `first_pane - 1` where none was."""
    entries: int
    """Of the decision log, compared."""
    snapshots: int
    alerts: int
    differences: list[Difference]
    """Empty where the replay is the live run."""
    left_out: list[str]
    """What was not compared, and why."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


def verify(
    live: StateStore,
    replayed: StateStore,
    *,
    at: PaneCursors | None = None,
    decisions: LiveDecisions | None = None,
    given: GivenReplay | None = None,
    left_out: Sequence[str] = (),
) -> Verification:
    """Compares the cells of two states, and what was `given` the live `decisions` and decided again, where it was.
    `at`: how far the live one was when the replay began; None: as far as it is now.

    Raises HistoryError where the live state has no panes, StateError where it is damaged.
    """
    cells = compare_cells(live, replayed, PaneCursors.of_state(live) if at is None else at)
    differences = [_of_cells(one) for one in cells.differences]
    notes = [*left_out, *cells.left_out]
    decided, entries, snapshots, alerts = cells.first_pane - 1, 0, 0, 0
    if decisions is not None and given is not None:
        if given.divergence is not None:
            parted = given.divergence
            differences.append(
                Difference("decision", parted.pane, f"entry {parted.entry}", parted.live, parted.replayed)
            )
            notes.append("what was decided behind that entry")
        elif (found := _behind(decisions, given)) is not None:
            differences.append(found)
        elif decisions.detector != (detector := given.state.read(("detector",))["detector"]):
            differences.append(_of_detector(decisions, detector))
        decided, entries = given.decided, given.same
        snapshots, of_snapshots = _compare_snapshots(live, given.state)
        alerts, of_alerts = _compare_alerts(decisions, given)
        differences += [*of_snapshots, *of_alerts]
        notes.append(_NOT_REPLAYED)
    return Verification(
        cells.first_pane, cells.closed, cells.matured, decided, entries, snapshots, alerts, differences, notes
    )


def _of_cells(found: CellDifference) -> Difference:
    return Difference(found.part, found.pane, found.where, found.live, found.replayed, found.also)


def _behind(decisions: LiveDecisions, given: GivenReplay) -> Difference | None:
    last = decisions.last_pane
    if last is None or given.decided >= last:
        return None
    return Difference("cursor", None, "decided", str(last), str(given.decided))


def _of_detector(decisions: LiveDecisions, replayed: str | None) -> Difference:
    before, after = (json.loads(text or "null") for text in (decisions.detector, replayed))
    path, one, other = _first_path(before, after)
    return Difference("detector", decisions.last_pane, path or "the whole field", _short(one), _short(other))


def _first_path(one: object, other: object, path: str = "") -> tuple[str, object, object]:
    """Where two JSON values differ first, by sorted keys."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                return _first_path(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            if left != right:
                return _first_path(left, right, f"{path}[{i}]")
    return path, one, other


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _compare_snapshots(live: StateStore, replayed: StateStore) -> tuple[int, list[Difference]]:
    """Of every version that the live history names and that is kept."""
    versions = sorted(versions_named(pointer_moves(live)))
    names = [f"snapshot:{version}" for version in versions]
    compared, found = 0, list[Difference]()
    for version, one, other in zip(versions, live.blobs(names), replayed.blobs(names), strict=True):
        if one is None:
            continue  # dropped since
        compared += 1
        if one != other:
            sizes = f"{len(one)} bytes", "none" if other is None else f"{len(other)} bytes"
            found.append(Difference("snapshot", None, version, *sizes))
    return compared, _first_of(found)


def _compare_alerts(decisions: LiveDecisions, given: GivenReplay) -> tuple[int, list[Difference]]:
    live, replayed = _replayable(decisions.outbox), _replayable(given.outbox)
    if not decisions.outbox_is_whole and live:
        if live[0] not in replayed:
            return 0, [_of_alert(live[0], None)]
        replayed = replayed[replayed.index(live[0]) :]
    most = max(len(live), len(replayed))
    if given.divergence is not None:
        most = min(len(live), len(replayed))
    pairs = [(live[i] if i < len(live) else None, replayed[i] if i < len(replayed) else None) for i in range(most)]
    return len(pairs), _first_of([_of_alert(one, other) for one, other in pairs if one != other])


def _replayable(outbox: Sequence[bytes]) -> list[bytes]:
    """Events that panes, refits and people cause."""
    found = []
    for raw in outbox:
        alert = Alert.decode(raw)
        if alert.kind not in BY_WALL_CLOCK and alert.diagnosis != OTHER_GENERATION:
            found.append(raw)
    return found


def _of_alert(live: bytes | None, replayed: bytes | None) -> Difference:
    named = Alert.decode(live or replayed or b"")
    texts = ["none" if raw is None else raw.decode() for raw in (live, replayed)]
    return Difference("alert", named.pane, f"{named.kind} {named.state}", texts[0], texts[1])


def _first_of(found: list[Difference]) -> list[Difference]:
    return [msgspec.structs.replace(found[0], also=len(found) - 1)] if found else []
