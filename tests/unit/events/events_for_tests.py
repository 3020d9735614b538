"""Records and configurations that the tests of events share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stream_calib.config import Config
from stream_calib.transport.port import Record, TopicPartition

T0 = 1_714_557_600_000
"""2024-05-01T10:00:00Z."""


def config(**sections: Any) -> Config:
    """A configuration of model ``m`` with times at ``ts``; sections are merged over that, `models` takes the place of
    ``m``."""
    base: dict[str, Any] = {
        "model": {"name": "m"},
        "windows": {"horizon": "24h"},
        "scores": {"time": {"path": "ts"}},
        "labels": {"time": {"path": "ts"}},
    }
    if {"name_path"} & sections.get("model", {}).keys() or "models" in sections:
        base["model"] = {}
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if isinstance(values, Mapping) else values
    return Config.model_validate(base)


def record(
    value: bytes | Mapping[str, Any] | None,
    offset: int = 0,
    *,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes], ...] = (),
    append_time_ms: int = T0,
) -> Record:
    encoded = json.dumps(value).encode() if isinstance(value, Mapping) else value
    return Record(TopicPartition("scores", 2), offset, key, encoded, headers, append_time_ms)


def score(**fields: Any) -> dict[str, Any]:
    return {"event_id": "e1", "ts": T0, "score": 0.25, **fields}


def label(**fields: Any) -> dict[str, Any]:
    return {"event_id": "e1", "ts": T0, "label": 1, **fields}


def strict_json(text: bytes) -> Any:
    """Parses as a strict reader would: no NaN or Infinity, no duplicate keys, UTF-8 only."""

    def refuse(token: str) -> Any:
        raise AssertionError(f"{token} in {text!r}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), f"duplicate key in {text!r}"
        return dict(pairs)

    return json.loads(text.decode("utf-8", "strict"), parse_constant=refuse, object_pairs_hook=unique)
