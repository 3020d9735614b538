"""Snapshots stored before slopes, patches and the rest existed, and maps that have all of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stream_calib.calibration.grid import N_BINS, locate
from stream_calib.calibration.groups import family_rule, predicate_rule
from stream_calib.calibration.maps.base_map import STRICT_SLOPE, BaseMap
from stream_calib.calibration.maps.parts import FamilyShift, MapParts, PatchRound
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.errors import DamagedSnapshotError
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.snapshot.compiled import compile_snapshot, map_document, map_parts, time_attributes
from stream_calib.snapshot.fit_documents import (
    ChoicesDocument,
    DerivedDocument,
    FigureDocument,
)
from stream_calib.snapshot.map_documents import MapDocument
from stream_calib.snapshot.model import StructureSnapshot, decode_snapshot, resolve, version_of
from tests.unit.snapshot.documents import CERTIFICATE, structure

HERE = Path(__file__).parent
STORED_STRUCTURE, STORED_LEVEL = "000012-9c38c94e4fe0", "000013-8551259bdeb8"

ATTRIBUTES = ("carrier", "origin", "hour_of_day")
PARTS = MapParts(
    BaseMap(np.array([-4.0, -1.0, 0.0, 2.0]), np.array([0.02, 0.2, 0.2, 0.7]), 1e-6, STRICT_SLOPE),
    (
        FamilyShift(family_rule(["carrier"], ATTRIBUTES), {("UA",): 0.3, ("VX",): -0.8}, {("UA",): -0.2, ("B6",): 0.1}),
        FamilyShift(family_rule(["carrier", "hour_of_day"], ATTRIBUTES), {("UA", "07"): 0.1}),
        FamilyShift(predicate_rule("coast", {"origin": ["EWR", "JFK"]}, ATTRIBUTES), {("coast",): 0.25}),
    ),
    0.05,
    1e-5,
    -1.25,
    (
        PatchRound(family_rule(["origin"], ATTRIBUTES), (0.0, 0.1, 0.5, 1.0), {("EWR",): (0.01, -0.05, 0.1)}),
        PatchRound(
            predicate_rule("UA from the coast", {"carrier": ["UA"], "origin": ["EWR"]}, ATTRIBUTES),
            (0.0, 1.0),
            {("UA from the coast",): (-0.02,)},
        ),
    ),
    np.linspace(1.0, 9.0, N_BINS),
)
SIGNATURES = [("UA", "EWR", "07"), ("VX", "LGA", "08"), ("B6", "JFK", "23"), ("new", "new", "00")]


def stored(name: str) -> bytes:
    return (HERE / name).read_bytes()


def test_a_stored_snapshot_of_before_keeps_its_bytes_its_version_and_what_it_serves() -> None:
    encoded = stored("stored_structure.json")
    snapshot = decode_snapshot(STORED_STRUCTURE, encoded)
    assert snapshot.encode() == encoded
    assert snapshot == structure(sequence=12)
    served = compile_snapshot(resolve(STORED_STRUCTURE, snapshot, None))
    p = served.apply(
        np.array([0.0, 0.01, 0.3, 0.5, 0.97, 1.0]), np.array([0, 1] * 3), [("São Paulo", "x"), ("elsewhere", "x")]
    )
    expected = [
        "0x1.4ab7a0b6c33d7p-3",
        "0x1.ff68cc74aea00p-4",
        "0x1.8966f6d0f3e9cp-2",
        "0x1.c914412c2cb65p-2",
        "0x1.bf75b35064b93p-1",
        "0x1.ac8f62a920e76p-1",
    ]
    np.testing.assert_allclose(p, [float.fromhex(value) for value in expected], rtol=1e-14)


def test_a_stored_level_snapshot_of_before_fits_its_structure() -> None:
    level = decode_snapshot(STORED_LEVEL, stored("stored_level.json"))
    below = decode_snapshot(STORED_STRUCTURE, stored("stored_structure.json"))
    assert level.encode() == stored("stored_level.json")
    assert resolve(STORED_LEVEL, level, below).level == -0.5


def everything() -> StructureSnapshot:
    return structure(
        **dict(map_document(PARTS)),
        level=PARTS.level,
        attributes=ATTRIBUTES[:2],
        derived=DerivedDocument(names=("hour_of_day",), zone="America/New_York"),
        choices=ChoicesDocument(
            rung="platt",
            families_off=("origin",),
            slopes=("carrier",),
            patches=True,
            days=28,
            rows=12_700,
            evidence_sha256="ef",
            figures=(FigureDocument(name="slopes carrier", on=True, difference=-0.002, standard_error=0.001),),
        ),
        certificate=CERTIFICATE,
    )


def test_a_map_with_everything_comes_back_from_its_bytes_bit_for_bit() -> None:
    encoded = everything().encode()
    snapshot = decode_snapshot(version_of(1, encoded), encoded)
    assert snapshot == everything()
    resolved = resolve(version_of(1, encoded), snapshot, None)
    score, index = np.random.default_rng(3).random(2_000), np.arange(2_000) % 4
    p = compile_snapshot(resolved).apply(score, index, SIGNATURES)
    assert p.tobytes() == ServedMap(PARTS).apply(score, index, SIGNATURES).tobytes()


def test_the_document_of_the_parts_of_a_document_is_the_same() -> None:
    document = map_document(PARTS)
    assert map_document(map_parts(ATTRIBUTES, document, 0.0)) == document


def test_what_a_map_does_not_have_is_not_in_its_bytes() -> None:
    plain = map_document(MapParts(PARTS.base, (FamilyShift(PARTS.families[0].rule, {("UA",): 0.3}),)))
    written = json.loads(plain.encode())
    assert written.keys() == {"base", "families", "p_min"}
    assert written["families"] == [{"attributes": ["carrier"], "offsets": [{"offset": 0.3, "values": ["UA"]}]}]


@pytest.mark.parametrize("name", ["rounds", "slope_centre", "derived", "choices", "certificate"])
def test_an_unused_part_that_is_written_out_is_not_canonical(name: str) -> None:
    unused = {"rounds": [], "slope_centre": 0.0}.get(name)
    encoded = canonical_json(json.loads(structure().encode()) | {name: unused})
    with pytest.raises(DamagedSnapshotError, match="canonical"):
        decode_snapshot(version_of(1, encoded), encoded)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bin_weight": (1.0,) * 401}, "402"),
        ({"bin_weight": (0.0,) * 402}, "above 0"),
    ],
)
def test_parts_that_make_no_map_are_damage(change: dict[str, object], message: str) -> None:
    document: MapDocument = map_document(PARTS).model_copy(update=change)
    with pytest.raises(DamagedSnapshotError, match=message):
        map_parts(ATTRIBUTES, document, 0.0)


def test_derived_attributes_that_are_not_known_are_damage() -> None:
    for derived in (
        DerivedDocument(names=("month",), zone="UTC"),
        DerivedDocument(names=("hour_of_day",), zone="Mars"),
    ):
        with pytest.raises(DamagedSnapshotError, match="derived attributes of snapshot 000001"):
            time_attributes(structure(derived=derived))
    assert time_attributes(structure()) is None
    assert everything().map_attributes == ATTRIBUTES


def test_golden_vectors() -> None:
    """For other runtimes: a map with everything in it, and what it serves, worked out in plain Python one number at a
    time (tests/unit/calibration/maps/map_reference.py)."""
    golden = json.loads(stored("golden_map.json"))
    document = MapDocument.model_validate_json(json.dumps(golden["map"]))
    a_map = ServedMap(map_parts(golden["attributes"], document, golden["level"]))
    vectors = golden["vectors"]
    signatures = [tuple(vector["signature"]) for vector in vectors]
    score = np.array([vector["score"] for vector in vectors])
    assert locate(score)[0].tolist() == [vector["grid_bin"] for vector in vectors]
    p = a_map.apply(score, np.arange(len(vectors)), signatures)
    np.testing.assert_allclose(p, [vector["probability"] for vector in vectors], rtol=0, atol=1e-12)
