"""What stands in docs/snapshot-format/golden.json: `python -m tests.unit.snapshot.golden_vectors > ...`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from stream_calib.calibration.grid import N_BINS
from stream_calib.calibration.groups import FamilyRule, family_rule, predicate_rule
from stream_calib.calibration.maps.base_map import STRICT_SLOPE, BaseMap
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.snapshot.compiled import compile_snapshot, map_document, time_attributes
from stream_calib.snapshot.fit_documents import DerivedDocument
from stream_calib.snapshot.model import LevelSnapshot, StructureSnapshot, resolve, version_of
from tests.unit.snapshot.documents import level, structure

ATTRIBUTES = ("carrier", "origin")
BASE = BaseMap(np.array([-4.0, -1.0, 0.0, 2.0]), np.array([0.02, 0.2, 0.2, 0.7]), 1e-6, STRICT_SLOPE)
SCORES = (0.0, 1e-9, 0.000_05, 0.02, 0.1, 0.25, 0.5, 0.512_497, 0.75, 0.93, 0.999, 0.999_99, 1.0)
VALUES = (
    ("UA", "EWR"),
    ("UA", "LGA"),
    ("VX", "JFK"),
    ("B6", "EWR"),
    ("never seen", "EWR"),
    ("__other__", "never seen"),
)
TIMES_MS = (1_362_139_200_000, 1_362_162_600_000, 1_372_680_000_000)
"""2013-03-01 12:00 and 18:30 UTC, 2013-07-01 12:00 UTC: winter and summer in New York."""

_FAMILIES = (
    FamilyShift(family_rule(["carrier"], ATTRIBUTES), {("UA",): 0.3, ("VX",): -0.8, ("B6",): 0.1}),
    FamilyShift(family_rule(["origin"], ATTRIBUTES), {("EWR",): 0.15, ("JFK",): -0.05}),
    FamilyShift(family_rule(ATTRIBUTES, ATTRIBUTES), {("UA", "EWR"): 0.07}),
    FamilyShift(predicate_rule("coast", {"origin": ["EWR", "JFK"]}, ATTRIBUTES), {("coast",): 0.25}),
)
_TIMED = (*ATTRIBUTES, "hour_of_day")
_EVERYTHING = MapParts(
    BASE,
    (
        FamilyShift(family_rule(["carrier"], _TIMED), {("UA",): 0.3, ("VX",): -0.8}, {("UA",): -0.6, ("B6",): 0.1}),
        FamilyShift(family_rule(["carrier", "hour_of_day"], _TIMED), {("UA", "07"): 0.1, ("VX", "08"): 0.4}),
        FamilyShift(family_rule(["hour_of_day"], _TIMED), {("07",): -0.2, ("13",): 0.2}),
    ),
    0.05,
    1e-5,
    -1.25,
    (
        PatchRound(family_rule(["origin"], _TIMED), (0.0, 0.1, 0.5, 1.0), {("EWR",): (0.01, -0.05, 0.1)}),
        PatchRound(FamilyRule((), (), "everything"), (0.0, 0.3, 1.0), {("everything",): (0.02, -0.1)}),
    ),
    np.linspace(1.0, 9.0, N_BINS),
)


def made(parts: MapParts, **change: Any) -> StructureSnapshot:
    return structure(**dict(map_document(parts)), level=parts.level, attributes=ATTRIBUTES, pane_ms=3_600_000, **change)


def case(name: str, snapshot: StructureSnapshot | LevelSnapshot, of: StructureSnapshot | None = None) -> dict[str, Any]:
    """A snapshot with the probabilities that it serves; `of`: the structure that a level stands on."""
    version = version_of(snapshot.sequence, snapshot.encode())
    resolved = resolve(version, snapshot, of)
    served, derived = compile_snapshot(resolved), time_attributes(resolved.structure)
    times = TIMES_MS if derived is not None else TIMES_MS[:1]
    vectors = []
    for values in VALUES:
        for time_ms in times:
            own = [values if derived is None else (*values, *derived.of_pane(time_ms // 3_600_000))]
            expected = served.apply(np.array(SCORES), np.zeros(len(SCORES), np.intp), own)
            vectors += [
                {
                    "score": score,
                    "attributes": dict(zip(ATTRIBUTES, values, strict=True)),
                    "event_time_ms": time_ms,
                    "expected": probability,
                }
                for score, probability in zip(SCORES, expected.tolist(), strict=True)
            ]
    documents = {"version": version, "snapshot": json.loads(snapshot.encode())}
    if of is not None:
        documents |= {"structure": json.loads(of.encode())}
    return {"name": name, **documents, "vectors": vectors}


def cases() -> list[dict[str, Any]]:
    base, offsets = MapParts(BASE), MapParts(BASE, _FAMILIES, -0.1)
    below = made(offsets)
    timed = made(_EVERYTHING, derived=DerivedDocument(names=("hour_of_day",), zone="America/New_York"))
    return [
        case("a base map alone", made(base)),
        case("offsets of groups, an intersection and a predicate", below),
        case("a level on the structure before it", level(version_of(1, below.encode()), "r2", "p"), below),
        case("slopes, patches and an attribute of time", timed),
    ]


if __name__ == "__main__":
    print(json.dumps(cases(), indent=1, sort_keys=True, ensure_ascii=False))
