from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from stream_calib.calibration.grid import locate
from stream_calib.errors import SnapshotError
from stream_calib.events.identity import signature_hash
from stream_calib.snapshot.difference import CURVE_SCORES, difference
from stream_calib.snapshot.fit_documents import DerivedDocument
from stream_calib.snapshot.map_documents import (
    BaseMapDocument,
    FamilyDocument,
    OffsetDocument,
    PatchDocument,
    PatchRoundDocument,
    PredicateDocument,
)
from stream_calib.snapshot.model import ResolvedSnapshot, StructureSnapshot
from stream_calib.snapshot.recent_traffic import NO_TRAFFIC, RecentTraffic, recent_traffic
from stream_calib.windows.cells import ScoredCells
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.documents import choices, structure

IDENTITY = tuple(np.linspace(-10, 10, 401).tolist())
"""Knots of the map that leaves the grid's edges as they are."""
VALUES = [("north", "phone"), ("north", "web"), ("south", "phone")]
SIGNATURES: dict[int, tuple[str, ...]] = {signature_hash(values): values for values in VALUES}
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


def traffic_of(*rows: tuple[int, float, int], pane: int = 7) -> RecentTraffic:
    found = cells(*rows)
    return RecentTraffic(found, np.full(len(found.n), pane), SIGNATURES, pane, pane)


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
        NO_TRAFFIC,
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
    found = difference(before, after, NO_TRAFFIC)
    assert [point.score for point in found.curve] == list(CURVE_SCORES)
    assert [point.before for point in found.curve] == pytest.approx(CURVE_SCORES, abs=2e-4)
    assert [point.after for point in found.curve] == pytest.approx([0.3] * len(CURVE_SCORES))
    assert (found.before.level, found.after.level) == (1.0, 0.25)


def test_what_changes_for_the_traffic_by_group() -> None:
    """In log-odds, north goes up by .4 and everything by .1."""
    traffic = traffic_of((NORTH_PHONE, 0.5, 30), (NORTH_WEB, 0.5, 10), (SOUTH_PHONE, 0.2, 60))
    before, after = resolved("a", {"north": 0.2}), resolved("b", {"north": 0.6}, level=0.1)
    found = difference(before, after, traffic).traffic
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
    traffic = traffic_of((NORTH_PHONE, 0.5, 30), (SOUTH_PHONE, 0.2, 60))
    a, b = resolved("a", {"north": 0.2}), resolved("b", {"north": 0.6}, level=0.1)
    there, back = difference(a, b, traffic), difference(b, a, traffic)
    assert [g.change for g in there.groups] == [-g.change for g in back.groups]
    assert there.traffic is not None
    assert back.traffic is not None
    assert there.traffic.everything.shift == -back.traffic.everything.shift
    assert there.traffic.largest_shift == -back.traffic.largest_shift


def test_a_snapshot_does_not_differ_from_itself() -> None:
    one = resolved("a", {"north": 0.2})
    found = difference(one, one, traffic_of((NORTH_PHONE, 0.5, 30)))
    assert found.groups == ()
    assert found.traffic is not None
    assert (found.traffic.everything.shift, found.traffic.mean_absolute_shift) == (0.0, 0.0)


def test_other_attributes_cannot_be_compared() -> None:
    other = _resolved("b", structure(attributes=("region",)), 0.0)
    with pytest.raises(SnapshotError, match="a is over the attributes region, device, b over region"):
        difference(resolved("a", {}), other, NO_TRAFFIC)


def test_slopes_patches_and_what_was_chosen_are_compared() -> None:
    plain = resolved("a", {"north": 0.2})
    richer = plain.structure.model_copy(
        update={
            "families": (
                FamilyDocument(
                    attributes=("region",),
                    offsets=(
                        OffsetDocument(values=("north",), offset=0.2, slope=-0.3),
                        OffsetDocument(values=("south",), offset=0.0, slope=0.1),
                    ),
                ),
                FamilyDocument(
                    attributes=("region",),
                    offsets=(OffsetDocument(values=("north",), offset=0.7),),
                    predicate=PredicateDocument(name="north", admitted=(("north",),)),
                ),
            ),
            "rounds": (
                PatchRoundDocument(
                    attributes=("device",),
                    edges=(0.0, 0.5, 1.0),
                    patches=(PatchDocument(values=("web",), shifts=(0.01, -0.04)),),
                ),
                PatchRoundDocument(
                    attributes=("device",), edges=(0.0, 1.0), patches=(PatchDocument(values=("web",), shifts=(0.02,)),)
                ),
            ),
            "choices": choices(families_off=("device",), slopes=("region",)),
        }
    )
    found = difference(plain, _resolved("b", richer, 0.0), NO_TRAFFIC)
    assert [(g.name, g.change) for g in found.groups] == [("north", 0.7)]
    assert [(g.name, g.before, g.after) for g in found.slopes] == [
        ("region=north", None, -0.3),
        ("region=south", None, 0.1),
    ]
    assert [(g.name, g.after) for g in found.patches] == [("device=web", -0.04)]
    assert (found.before.rung, found.before.patched_groups) == (None, 0)
    assert (found.after.rung, found.after.families_off, found.after.slopes) == ("platt", ("device",), ("region",))
    assert found.after.patched_groups == 2


def test_attributes_derived_from_time_are_those_of_each_pane() -> None:
    plain = resolved("a", {})
    nightly = plain.structure.model_copy(
        update={
            "pane_ms": 3_600_000,
            "derived": DerivedDocument(names=("hour_of_day",), zone="UTC"),
            "families": (
                FamilyDocument(attributes=("hour_of_day",), offsets=(OffsetDocument(values=("03",), offset=1.0),)),
            ),
        }
    )
    other = _resolved("b", nightly, 0.0)
    moved = [difference(plain, other, traffic_of((NORTH_WEB, 0.5, 1), pane=pane)).traffic for pane in (2, 3, 27)]
    shifts = [found.everything.shift for found in moved if found is not None]
    assert shifts == pytest.approx([0.0, expit(1.025) - expit(0.025), expit(1.025) - expit(0.025)], abs=1e-3)


# --- the traffic of now


def test_recent_traffic_is_that_of_the_newest_closed_panes() -> None:
    state = MemoryState()
    state.put_signatures(SIGNATURES, 0)
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
