"""Fusion in calibrate's transform: fused scores in outputs and blocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.calibration.fusion import FusionWeights, fuse
from stream_calib.calibration.maps.base_map import BaseMap
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.events.blocks import BlockRows, served_probability, unpack
from stream_calib.events.contracts import ModelKey
from stream_calib.events.control import is_control
from stream_calib.snapshot.follower import Served
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from workers.calibrate_transform import Transform

TIME_MS = 1_362_132_000_000
MISSING = object()
FUSED = ModelKey("fused", "1")


def snapshot(number: int, shift: float) -> Served:
    """A map that moves log-odds within +-6 by `shift`."""
    knots = np.array([-6.0, 6.0])
    values = 1 / (1 + np.exp(-(knots + shift)))
    return Served(f"{number:06d}-0123456789ab", number, ServedMap(MapParts(BaseMap(knots, values, 1e-6, 1e-6))))


A, B, F = snapshot(1, 0.7), snapshot(2, -0.4), snapshot(3, 0.2)


def config(fusion: dict[str, Any] | None = None, **sections: Any) -> Config:
    return Config.model_validate(
        {
            "models": [
                {"name": "a", "score": "a"},
                {"name": "b", "score": "b"},
                {"name": "c", "score": "c", "version_path": "v"},
            ],
            "fusion": fusion or {"name": "fused", "members": {"b": 1, "a": 3}},
            "scores": {"time": {"path": "ts"}, "attributes": {"carrier": "carrier"}},
            "windows": {"horizon": "24h"},
            **sections,
        }
    )


def record(offset: int, partition: int = 0, **scores: Any) -> Record:
    event = {"event_id": f"e{offset}", "ts": TIME_MS + offset, "carrier": f"C{offset % 3}", "v": "7"}
    event |= {name: value for name, value in scores.items() if value is not MISSING}
    return Record(TopicPartition("scores", partition), offset, b"k", json.dumps(event).encode(), (), TIME_MS)


def by_all(key: ModelKey) -> Serving:
    return Serving({"a": A, "b": B, "c": A, "fused": F}[key.model], "calibrated")


def apply(settings: Config, records: list[Record], serving: Callable[[ModelKey], Serving] = by_all) -> list[Outgoing]:
    transform = Transform(settings)
    decoded, batch = transform.decode(records)
    return transform.encode(records, decoded, transform.calibrate(batch, serving))


def members(outputs: list[Outgoing]) -> list[dict[str, Any]]:
    return [json.loads(o.value or b"")["stream_calib"] for o in outputs if o.topic == "calibrated"]


def rows_of(outputs: list[Outgoing], key: ModelKey, partition: int = 0) -> list[BlockRows]:
    found = [
        unpack(o.value or b"")
        for o in outputs
        if o.topic == "blocks" and o.partition == partition and not is_control(Record(*_as_read(o)))
    ]
    return [block for block in found if block.model_key == key]


def _as_read(out: Outgoing) -> tuple[Any, ...]:
    return TopicPartition("blocks", out.partition or 0), 0, out.key, out.value, out.headers, TIME_MS


def fused_of(*probabilities: float, weights: tuple[float, ...] = (3.0, 1.0)) -> float:
    return float(fuse([list(probabilities)], FusionWeights.given(weights))[0])


def test_the_fused_score_is_made_of_what_is_served_and_calibrated_by_its_own_snapshot() -> None:
    outputs = apply(config(), [record(0, a=0.3, b=0.8)])
    (found,) = members(outputs)
    assert list(found) == ["a", "b", "fused"]
    raw = fused_of(found["a"]["calibrated"], found["b"]["calibrated"])
    assert found["fused"]["raw"] == raw
    assert found["fused"]["calibrated"] == F.apply(np.array([raw]), np.array([0]), [("C0",)], np.array([TIME_MS]))[0]
    assert found["fused"]["snapshot"] == F.version
    assert found["fused"]["status"] == "calibrated"


def test_its_rows_go_on_to_the_monitor_as_those_of_a_model_of_its_own() -> None:
    outputs = apply(config(), [record(0, a=0.3, b=0.8), record(1, 2, a=0.5, b=0.5), record(2, a=0.9, b=0.1)])
    found = members(outputs)
    (first,), (second,) = rows_of(outputs, FUSED), rows_of(outputs, FUSED, partition=2)
    assert first.score.tolist() == [found[0]["fused"]["raw"], found[2]["fused"]["raw"]]
    assert second.score.tolist() == [found[1]["fused"]["raw"]]
    assert served_probability(second.served)[0] == pytest.approx(found[1]["fused"]["calibrated"], abs=2e-10)
    assert first.snapshots == [F.version]
    (of_a,) = rows_of(outputs, ModelKey("a", "1"))
    for column in ("fingerprint", "event_time_ms", "unit_bucket", "signature_hash"):
        assert getattr(first, column).tolist() == getattr(of_a, column).tolist()
    assert [first.signatures[i] for i in first.signature_index.tolist()] == [("C0",), ("C2",)]


def test_without_members_all_models_weigh_the_same() -> None:
    (found,) = members(apply(config({"name": "fused"}), [record(0, a=0.3, b=0.8, c=0.4)]))
    parts = [found[name]["calibrated"] for name in "abc"]
    assert found["fused"]["raw"] == fused_of(*parts, weights=(1.0, 1.0, 1.0))


@pytest.mark.parametrize("bad", [MISSING, "text", 1.5])
def test_a_member_without_a_good_score_leaves_the_mean_to_the_others(bad: Any) -> None:
    outputs = apply(config(), [record(0, a=bad, b=0.8), record(1, a=0.2, b=bad)])
    only_b, only_a = members(outputs)
    assert only_b["fused"]["raw"] == fused_of(only_b["b"]["calibrated"], weights=(1.0,))
    assert only_a["fused"]["raw"] == fused_of(only_a["a"]["calibrated"], weights=(1.0,))
    (rows,) = rows_of(outputs, FUSED)
    assert rows.score.tolist() == [only_b["fused"]["raw"], only_a["fused"]["raw"]]


def test_a_record_of_other_models_alone_has_no_fused_score() -> None:
    outputs = apply(config({"name": "fused", "members": {"a": 1, "b": 0}}), [record(0, b=0.8, c=0.4)])
    (found,) = members(outputs)
    assert list(found) == ["b", "c"]
    assert rows_of(outputs, FUSED) == []


def test_what_is_fused_of_raw_scores_is_served_and_not_counted() -> None:
    def serving(key: ModelKey) -> Serving:
        return by_all(key) if key.model in ("a", "fused") else Serving(None, "identity")

    outputs = apply(config(), [record(0, a=0.3, b=0.8), record(1, a=0.3), record(2, a=0.3, c=0.8)], serving)
    of_both, of_a, beside_c = members(outputs)
    assert of_both["fused"]["raw"] == fused_of(of_both["a"]["calibrated"], 0.8)
    assert of_both["fused"]["status"] == "calibrated"
    (rows,) = rows_of(outputs, FUSED)
    assert rows.score.tolist() == [of_a["fused"]["raw"], beside_c["fused"]["raw"]]
    assert [len(block.score) for block in rows_of(outputs, ModelKey("a", "1"))] == [3]


def test_before_its_first_snapshot_the_fused_score_is_served_and_marked() -> None:
    def serving(key: ModelKey) -> Serving:
        return Serving(None, "identity") if key == FUSED else by_all(key)

    outputs = apply(config(), [record(0, a=0.3, b=0.8)], serving)
    (found,) = members(outputs)
    assert found["fused"]["status"] == "identity"
    assert found["fused"]["calibrated"] == found["fused"]["raw"]
    (rows,) = rows_of(outputs, FUSED)
    assert rows.snapshots == [""]


def test_a_rejected_record_that_is_passed_on_has_the_fused_member_too() -> None:
    settings = config(records={"on_reject": "passthrough"})
    outputs = apply(settings, [record(0, a="text")])
    (found,) = members(outputs)
    empty = {"raw": None, "calibrated": None, "snapshot": None, "status": "passthrough"}
    assert found["fused"] == empty


def test_blocks_of_one_key_make_no_row_of_another_late() -> None:
    """A batch that spans more event time than the lateness (5 minutes), as when history is read."""
    minute_ms = 60_000
    records = [record(i, ts=TIME_MS + i * minute_ms, a=0.3, b=0.8) for i in range(20)]
    outputs = apply(config(windows={"horizon": "24h", "max_clock_skew": "off"}), records)
    clock_ms, keys = 0, []
    for out in outputs:
        if out.topic == "blocks":
            block = unpack(out.value or b"")
            assert block.event_time_ms.min() >= clock_ms - 5 * minute_ms
            clock_ms = max(clock_ms, int(block.event_time_ms.max()))
            keys.append(block.model_key.model)
    assert keys == ["a", "b", "fused"] * 4
    assert sum(len(block.score) for block in rows_of(outputs, FUSED)) == 20


scores = st.one_of(st.just(MISSING), st.floats(0, 1), st.just("bad"))


@given(st.lists(st.tuples(scores, scores, scores, st.integers(0, 2)), min_size=1, max_size=12))
def test_a_record_is_fused_alike_alone_and_in_any_batch(events: list[tuple[Any, Any, Any, int]]) -> None:
    records = [record(i, p, a=a, b=b, c=c) for i, (a, b, c, p) in enumerate(events)]
    together = [o for o in apply(config(), records) if o.topic == "calibrated"]
    alone = [o for one in records for o in apply(config(), [one]) if o.topic == "calibrated"]
    assert together == alone
    for found in members(together):
        used = [name for name in ("a", "b") if name in found and found[name]["status"] == "calibrated"]
        assert ("fused" in found) == bool(used)
