"""docs/snapshot-format: the schema is the program's, and its page's reader gives the golden values."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from stream_calib.snapshot.compiled import compile_snapshot, time_attributes
from stream_calib.snapshot.model import StructureSnapshot, decode_snapshot, resolve
from stream_calib.snapshot.schema import json_schema

DOCS = Path(__file__).parents[3] / "docs"
GOLDEN: list[dict[str, Any]] = json.loads((DOCS / "snapshot-format/golden.json").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads((DOCS / "snapshot-format/snapshot.schema.json").read_text(encoding="utf-8"))

VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

every_case = pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])


def bytes_of(document: dict[str, Any]) -> bytes:
    """As the page says."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_the_schema_is_that_of_the_program() -> None:
    assert json_schema() == SCHEMA, "python -m stream_calib.snapshot.schema > FILE"
    VALIDATOR.check_schema(SCHEMA)


@every_case
def test_golden_snapshots_are_of_the_schema(case: dict[str, Any]) -> None:
    VALIDATOR.validate(case["snapshot"])
    for change in ({"unknown": 1}, {"format": 2}, {"kind": "other"}, {"level": "0.1"}):
        assert not VALIDATOR.is_valid(case["snapshot"] | change), change


@every_case
def test_golden_versions_are_those_of_their_bytes(case: dict[str, Any]) -> None:
    encoded = bytes_of(case["snapshot"])
    assert case["version"] == f"{case['snapshot']['sequence']:06d}-{hashlib.sha256(encoded).hexdigest()[:12]}"
    assert decode_snapshot(case["version"], encoded).encode() == encoded


@every_case
def test_the_program_serves_the_golden_values(case: dict[str, Any]) -> None:
    snapshot = decode_snapshot(case["version"], bytes_of(case["snapshot"]))
    structure = StructureSnapshot.model_validate_json(json.dumps(case["structure"])) if "structure" in case else None
    resolved = resolve(case["version"], snapshot, structure)
    served, derived = compile_snapshot(resolved), time_attributes(resolved.structure)
    for vector in case["vectors"]:
        values = tuple(vector["attributes"].values())
        if derived is not None:
            values += derived.of_pane(vector["event_time_ms"] // resolved.structure.pane_ms)
        found = served.apply(np.array([vector["score"]]), np.zeros(1, np.intp), [values])
        assert found[0] == pytest.approx(vector["expected"], rel=0, abs=1e-15), vector


def test_the_readers_of_the_page_give_the_golden_values() -> None:
    """The page's program knows nothing of this one."""
    (program,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "snapshot-format.md").read_text(), re.DOTALL | re.M)
    assert "stream_calib" not in program
    reader: dict[str, Any] = {}
    exec(program, reader)
    vectors = 0
    for case in GOLDEN:
        for vector in case["vectors"]:
            structure = case.get("structure", case["snapshot"])
            found = reader["calibrated"](
                case["snapshot"], structure, vector["score"], vector["attributes"], vector["event_time_ms"]
            )
            assert found == pytest.approx(vector["expected"], rel=0, abs=1e-12), (case["name"], vector)
            vectors += 1
    assert vectors > 400
