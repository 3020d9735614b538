"""Which settings name the generation of stored state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.events.contracts import ModelKey


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
        {"labels": {"model": "model"}},
    ],
)
def test_state_made_under_another_meaning_has_another_hash(change: dict[str, Any]) -> None:
    assert hash_of(**change) != hash_of()


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"name": "other"}},
        {"scores": {"intersections": [["a", "b"]]}},
        {"scores": {"predicates": {"x": {"a": ["1"]}}, "derived": ["hour_of_day"], "zone": "Europe/Berlin"}},
        {"scores": {"attributes": {"a": "moved.a", "b": "b"}}},
        {"scores": {"score": "p", "scale": "percent"}},
        {"windows": {"max_clock_skew": "off", "idle_timeout": "off", "keep_panes": 3}},
        {"refit": {"max_age": "2d"}},
        {"redis": {"url": "redis://elsewhere:1/0"}},
    ],
)
def test_what_leaves_counts_comparable_leaves_the_hash(change: dict[str, Any]) -> None:
    assert hash_of(**change) == hash_of()


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"model": {"name": "m"}}, (ModelKey("m", "1"),)),
        ({"model": {"name": "m", "version": "7"}}, (ModelKey("m", "7"),)),
        ({"model": {"name": "m", "version_path": "v"}}, ()),
        ({"model": {"name_path": "n"}}, ()),
        (
            {
                "models": [
                    {"name": "b", "score": "x"},
                    {"name": "c", "score": "y", "version_path": "v"},
                    {"name": "a", "score": "z"},
                ]
            },
            (ModelKey("b", "1"), ModelKey("a", "1")),
        ),
        (
            {
                "models": [{"name": "b", "score": "x"}, {"name": "a", "score": "z"}],
                "fusion": {"name": "f", "version": "2"},
            },
            (ModelKey("b", "1"), ModelKey("a", "1"), ModelKey("f", "2")),
        ),
    ],
)
def test_model_keys_of_the_configuration_are_its_constants(
    sections: dict[str, Any], expected: tuple[ModelKey, ...]
) -> None:
    assert configured_keys(Config.model_validate({"windows": {"horizon": "1d"}, **sections})) == expected


def test_where_labels_name_their_model_leaves_the_hash() -> None:
    assert hash_of(labels={"model": "model"}) == hash_of(labels={"model": "scored.by"})


def test_the_hash_is_the_same_on_every_machine() -> None:
    assert hash_of() == "4023a4a86d7cff21"
    assert re.fullmatch("[0-9a-f]{16}", hash_of())
