from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.errors import DamagedSnapshotError
from stream_calib.snapshot.canonical import canonical_json, content_id
from stream_calib.snapshot.compiled import compile_snapshot
from stream_calib.snapshot.model import decode_snapshot, psi_reference, resolve, sequence_of, version_of
from tests.unit.snapshot.documents import level, structure


def test_canonical_json_golden() -> None:
    document = {"b": [1, 1.0, -0.0, 1e-7, True, None], "a": {"é": "x\n", "A": ""}}
    expected = '{"a":{"A":"","é":"x\\n"},"b":[1,1.0,-0.0,1e-07,true,null]}'
    assert canonical_json(document) == expected.encode()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_canonical_json_refuses_what_json_has_not(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json([value])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(json_values.filter(lambda v: "\\ud" not in json.dumps(v)))
def test_canonical_json_round_trips_and_is_stable(value: object) -> None:
    encoded = canonical_json(value)
    assert canonical_json(json.loads(encoded)) == encoded


def test_content_ids_tell_all_parts_apart() -> None:
    parts: list[tuple[str | int | None, ...]] = [("a", "b"), ("ab", ""), ("a", "b", None), ("a", 1), ("a", "1")]
    assert len({content_id(*p) for p in parts}) == 5
    assert content_id("a", "b") == content_id("a", "b")


def test_a_snapshot_round_trips_under_its_version() -> None:
    snapshot = structure(sequence=12)
    encoded = snapshot.encode()
    version = version_of(12, encoded)
    assert version.startswith("000012-")
    assert sequence_of(version) == 12
    assert decode_snapshot(version, encoded) == snapshot


@pytest.mark.parametrize("position", [0, 10, 100, -2])
def test_any_changed_byte_is_refused(position: int) -> None:
    encoded = structure().encode()
    damaged = bytearray(encoded)
    damaged[position] ^= 1
    with pytest.raises(DamagedSnapshotError, match="damaged"):
        decode_snapshot(version_of(1, encoded), bytes(damaged))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"unknown": 1},
        {"level": "0.25"},
        {"level": None},
        {"kind": "patch"},
        {"sequence": 0},
        {"grid": "v2"},
    ],
)
def test_a_schema_that_is_not_known_is_refused_even_with_the_right_hash(change: dict[str, object]) -> None:
    document = json.loads(structure().encode()) | change
    encoded = canonical_json(document)
    with pytest.raises(DamagedSnapshotError):
        decode_snapshot(version_of(1, encoded), encoded)


def test_bytes_that_are_not_canonical_or_of_another_sequence_are_refused() -> None:
    encoded = structure().encode()
    spaced = encoded.replace(b",", b", ")
    for other in (spaced, structure(sequence=2).encode()):
        with pytest.raises(DamagedSnapshotError, match="canonical"):
            decode_snapshot(version_of(1, other), other)


@pytest.mark.parametrize("version", ["", "12", "x-0123456789ab", "000001-0123"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(DamagedSnapshotError, match="version"):
        sequence_of(version)


def test_the_map_is_that_of_the_documents() -> None:
    resolved = resolve("000001-0123456789ab", structure(), None)
    served = compile_snapshot(resolved)
    scores = np.array([0.5, 0.5])
    known, unknown = served.apply(scores, np.array([0, 1]), [("São Paulo", "x"), ("elsewhere", "x")])
    odds = known / (1 - known) / (unknown / (1 - unknown))
    assert np.log(odds) == pytest.approx(0.3, abs=1e-3)


def test_a_level_snapshot_replaces_only_the_level() -> None:
    base = structure()
    resolved = resolve("000002-0123456789ab", level("000001-0123456789ab", "r2", "000001-0123456789ab"), base)
    assert resolved.level == -0.5
    assert resolved.structure_version == "000001-0123456789ab"
    p = compile_snapshot(resolved).apply(np.array([0.5]), np.array([0]), [("elsewhere", "x")])[0]
    q = compile_snapshot(resolve("000001-0123456789ab", base, None)).apply(
        np.array([0.5]), np.array([0]), [("elsewhere", "x")]
    )[0]
    assert np.log(p / (1 - p)) - np.log(q / (1 - q)) == pytest.approx(-0.75, abs=1e-3)


def test_a_level_snapshot_needs_a_structure_snapshot() -> None:
    one = level("000001-0123456789ab", "r2", "p")
    for other in (None, one):
        with pytest.raises(DamagedSnapshotError, match="structure"):
            resolve("000002-0123456789ab", one, other)


def test_a_base_map_that_is_none_is_damage() -> None:
    bad = structure().base.model_copy(update={"log_odds": (2.0, 0.1, -2.0)})
    with pytest.raises(DamagedSnapshotError, match="map"):
        compile_snapshot(resolve("000001-0123456789ab", structure(base=bad), None))


def test_the_psi_reference_is_that_of_the_document() -> None:
    reference = psi_reference(structure())
    assert reference.names == ("all",)
    assert reference.rows_per_pane == 10.0
    assert np.isnan(reference.design_effect[0])
