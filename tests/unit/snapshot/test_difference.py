from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from stream_calib.calibration.grid import locate
from stream_calib.errors import SnapshotError
from stream_calib.events.identity import signature_hash
from stream_calib.snapshot.difference import CURVE_SCORES, difference
from stream_calib.snapshot.model import (
    BaseMapDocument,
    FamilyDocument,
    OffsetDocument,
    ResolvedSnapshot,
    StructureSnapshot,
)
from stream_calib.snapshot.recent_traffic import recent_traffic
from stream_calib.windows.cells import EMPTY_SCORED, ScoredCells
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.documents import structure

IDENTITY = tuple(np.linspace(-10, 10, 401).tolist())
"""Knots of the map that leaves the grid's edges as they are."""
VALUES = [("north", "phone"), ("north", "web"), ("south", "phone")]
SIGNATURES = {signature_hash(values): values for values in VALUES}
NORTH_PHONE, NORTH_WEB, SOUTH_PHONE = SIGNATURES


def resolved(version: str, offsets: dict[str, float], level: float = 0.0) -> ResolvedSnapshot:
    return _resolved(
        version,
        structure(
            attributes=("region", "device"),
            base=BaseMapDocument(
                log_odds=IDENTITY, value=tuple(expit(np.array(IDENTITY)).tolist()), p_min=1e-6, strict_slope=0.0
            ),
            families=(
                FamilyDocument(
                    attributes=("region",),
                    offsets=tuple(OffsetDocument(values=(name,), offset=o) for name, o in offsets.items()),
                ),
            ),
            level=level,
        ),
        level,
    )


def _resolved(version: str, document: StructureSnapshot, level: float) -> ResolvedSnapshot:
    return ResolvedSnapshot(version, 1, version, document, level)


def cells(*rows: tuple[int, float, int]) -> ScoredCells:
    """(signature, raw score, events)."""
    grid_bin, _ = locate(np.array([score for _, score, _ in rows]))
    return ScoredCells(
        np.array([s for s, _, _ in rows], dtype=np.uint64), grid_bin, np.array([n for _, _, n in rows], dtype=np.int64)
    )


def test_offsets_that_changed_come_largest_first_and_gone_ones_count_0() -> None:
    found = difference(
        resolved("a", {"north": 0.5, "south": -0.2, "east": 0.1}),
        resolved("b", {"north": 0.4, "west": 0.3, "east": 0.1}),
        EMPTY_SCORED,
        {},
    )
    assert [(g.values, g.before, g.after) for g in found.groups] == [
        (("west",), None, 0.3),
        (("south",), -0.2, None),
        (("north",), 0.5, 0.4),
    ]
    assert found.groups[1].change == pytest.approx(0.2)
    assert found.traffic is None


def test_the_base_maps_are_compared_without_level_and_offsets() -> None:
    flat = BaseMapDocument(log_odds=(0.0,), value=(0.3,), p_min=1e-6, strict_slope=0.0)
    before, after = resolved("a", {"north": 2.0}, level=1.0), _resolved("b", structure(base=flat), 0.25)
    after = ResolvedSnapshot("b", 2, "b", after.structure.model_copy(update={"attributes": ("region", "device")}), 0.25)
    found = difference(before, after, EMPTY_SCORED, {})
    assert [point.score for point in found.curve] == list(CURVE_SCORES)
    assert [point.before for point in found.curve] == pytest.approx(CURVE_SCORES, abs=2e-4)
    assert [point.after for point in found.curve] == pytest.approx([0.3] * len(CURVE_SCORES))
    assert (found.before.level, found.after.level) == (1.0, 0.25)


def test_what_changes_for_the_traffic_by_group() -> None:
    """In log-odds, north goes up by .4 and everything by .1."""
    traffic = cells((NORTH_PHONE, 0.5, 30), (NORTH_WEB, 0.5, 10), (SOUTH_PHONE, 0.2, 60))
    before, after = resolved("a", {"north": 0.2}), resolved("b", {"north": 0.6}, level=0.1)
    found = difference(before, after, traffic, SIGNATURES).traffic
    assert found is not None
    edge, far = np.log(0.5 / 0.5) + 0.025, np.log(0.2 / 0.8)  # centres of the bins
    p_north, q_north = expit(edge + 0.2), expit(edge + 0.7)
    p_south, q_south = expit(far), expit(far + 0.1)
    assert found.everything.events == 100
    assert found.everything.mean_before == pytest.approx(0.4 * p_north + 0.6 * p_south, abs=3e-3)
    assert found.everything.shift == pytest.approx(0.4 * (q_north - p_north) + 0.6 * (q_south - p_south), abs=1e-3)
    assert found.largest_shift == pytest.approx(q_north - p_north, abs=1e-3)
    assert found.moved == {0.01: 1.0, 0.05: 0.4, 0.1: 0.4}
    by_name = {(g.attribute, g.value): g for g in found.groups}
    assert by_name["region", "north"].events == 40
    assert by_name["region", "north"].shift == pytest.approx(q_north - p_north, abs=1e-3)
    assert by_name["device", "phone"].events == 90
    assert [abs(g.events * g.shift) for g in found.groups] == sorted(
        (abs(g.events * g.shift) for g in found.groups), reverse=True
    )


def test_the_other_way_round_everything_has_the_other_sign() -> None:
    traffic = cells((NORTH_PHONE, 0.5, 30), (SOUTH_PHONE, 0.2, 60))
    a, b = resolved("a", {"north": 0.2}), resolved("b", {"north": 0.6}, level=0.1)
    there, back = difference(a, b, traffic, SIGNATURES), difference(b, a, traffic, SIGNATURES)
    assert [g.change for g in there.groups] == [-g.change for g in back.groups]
    assert there.traffic is not None
    assert back.traffic is not None
    assert there.traffic.everything.shift == -back.traffic.everything.shift
    assert there.traffic.largest_shift == -back.traffic.largest_shift


def test_a_snapshot_does_not_differ_from_itself() -> None:
    one = resolved("a", {"north": 0.2})
    found = difference(one, one, cells((NORTH_PHONE, 0.5, 30)), SIGNATURES)
    assert found.groups == ()
    assert found.traffic is not None
    assert (found.traffic.everything.shift, found.traffic.mean_absolute_shift) == (0.0, 0.0)


def test_other_attributes_cannot_be_compared() -> None:
    other = _resolved("b", structure(attributes=("region",)), 0.0)
    with pytest.raises(SnapshotError, match="a is over the attributes region, device, b over region"):
        difference(resolved("a", {}), other, EMPTY_SCORED, {})


# --- the traffic of now


def test_recent_traffic_is_that_of_the_newest_closed_panes() -> None:
    state = MemoryState()
    state.put_signatures(SIGNATURES)
    panes = {pane: cells((NORTH_PHONE, 0.5, pane), (SOUTH_PHONE, 0.2, 1)) for pane in (7, 8, 9)}
    blobs = {f"scored:{pane}": found.pack() for pane, found in panes.items()}
    state.commit(Commit(fields={"first_pane": "7", "closed": "9"}, blobs=blobs))
    last_two = recent_traffic(state, 2)
    assert (last_two.first_pane, last_two.last_pane) == (8, 9)
    assert int(last_two.cells.n.sum()) == 8 + 9 + 2
    assert last_two.signatures == {NORTH_PHONE: VALUES[0], SOUTH_PHONE: VALUES[2]}
    everything = recent_traffic(state, 100)
    assert (everything.first_pane, everything.last_pane) == (7, 9)


def test_before_anything_closed_there_is_no_traffic() -> None:
    found = recent_traffic(MemoryState(), 24)
    assert len(found.cells.n) == 0
    assert found.last_pane < found.first_pane
