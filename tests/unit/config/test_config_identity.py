"""Which settings name the generation of stored state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.config_identity import semantic_hash


def hash_of(**sections: dict[str, Any]) -> str:
    base: dict[str, Any] = {
        "model": {"name": "m"},
        "scores": {"attributes": {"a": "a", "b": "b"}, "time": {"path": "ts"}},
        "labels": {"time": {"path": "ts"}},
        "windows": {"horizon": "24h"},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return semantic_hash(Config.model_validate(base))


@pytest.mark.parametrize(
    "change",
    [
        {"windows": {"horizon": "25h"}},
        {"windows": {"pane": "30m"}},
        {"windows": {"shards": 17}},
        {"windows": {"score_lateness": "6m"}},
        {"windows": {"label_lateness": "6m"}},
        {"windows": {"missing_label": "negative_at_horizon"}},
        {"scores": {"attributes": {"a": "a"}}},
        {"scores": {"attributes": {"b": "b", "a": "a"}}},
        {"scores": {"unit": "customer"}},
        {"labels": {"time_granularity": "1d"}},
    ],
)
def test_state_made_under_another_meaning_has_another_hash(change: dict[str, Any]) -> None:
    assert hash_of(**change) != hash_of()


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"name": "other"}},
        {"scores": {"intersections": [["a", "b"]]}},
        {"scores": {"attributes": {"a": "moved.a", "b": "b"}}},
        {"scores": {"score": "p", "scale": "percent"}},
        {"windows": {"max_clock_skew": "off", "idle_timeout": "off", "keep_panes": 3}},
        {"refit": {"max_age": "2d"}},
        {"redis": {"url": "redis://elsewhere:1/0"}},
    ],
)
def test_what_leaves_counts_comparable_leaves_the_hash(change: dict[str, Any]) -> None:
    assert hash_of(**change) == hash_of()


def test_the_hash_is_the_same_on_every_machine() -> None:
    assert hash_of() == "4023a4a86d7cff21"
    assert re.fullmatch("[0-9a-f]{16}", hash_of())
