"""What of the configuration names models, and generations of stored state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from stream_calib.calibration.grid import GRID_VERSION
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.events.identity import UNIT_BUCKETS


def configured_keys(config: Config) -> tuple[ModelKey, ...]:
    """The model keys that are constants of the configuration; the others, named by the records, are found in them."""
    fused = config.fused()
    return scored_keys(config) if fused is None else (*scored_keys(config), fused.key)


def scored_keys(config: Config) -> tuple[ModelKey, ...]:
    """Those among them whose scores are in the records; the fused one is made of these."""
    return tuple(model.key for model in config.score_models() if model.key is not None)


def semantic_content(config: Config) -> dict[str, Any]:
    """What decides how records are counted, as plain JSON values; state made under another one is refused, because its
    counts could not be compared.

    In it: whatever changes how the same records are cut into cells, joined or made final: grid, number of unit buckets,
    pane, horizon, both latenesses (a larger one would take events into panes that are final), shards, the attribute
    names in their order (a signature is the tuple of their values), the unit, missing_label, the granularity of label
    times, whether labels name a model, the clock of labels, the sample rate, whether events have a keep rate. Not in
    it: intersections, predicates and derived attributes (functions of
    signature and pane), where and in which scale or unit the users' fields stand (they follow the users' schema, which
    may move while the meaning stays), the skew limit and everything that only decides when something is done. What
    changes fits and requests has a hash of its own, kept with each request.
    """
    scores, labels, windows = config.scores, config.labels, config.windows
    content: dict[str, Any] = {
        "attributes": list(scores.attributes),
        "grid": GRID_VERSION,
        "horizon_ms": windows.horizon_ms,
        "label_lateness_ms": windows.label_lateness_ms,
        "label_time_granularity_ms": labels.time_granularity_ms,
        "missing_label": windows.missing_label,
        "pane_ms": windows.pane_ms,
        "score_lateness_ms": windows.score_lateness_ms,
        "shards": windows.shards,
        "unit": scores.unit,
        "unit_buckets": UNIT_BUCKETS,
    }
    # Named only where they are not the default, so that state which was made before they existed keeps its hash.
    if labels.model is not None:
        content["labels_name_models"] = True
    if labels.clock != "event":
        content["label_clock"] = labels.clock
    if scores.sample_rate != 1.0:
        content["sample_rate"] = scores.sample_rate
    if scores.keep_rate is not None:
        content["keep_rate"] = True
    return content


PACKED_INTO_BLOCKS = ("attributes", "keep_rate", "sample_rate", "unit", "unit_buckets")
"""What of the semantic content is in `blocks` already: whoever writes there must agree on it with the state."""


def semantic_hash(config: Config) -> str:
    """16 hexadecimal digits that stand for the semantic content."""
    return content_hash(semantic_content(config))


def content_hash(content: Mapping[str, Any]) -> str:
    """Of a semantic content."""
    return hashlib.sha256(canonical_content(content).encode()).hexdigest()[:16]


def canonical_content(content: Mapping[str, Any]) -> str:
    """The JSON that is hashed, and stored with the state."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two semantic contents, as `horizon_ms: 1 -> 2`."""
    names = sorted(stored.keys() | wanted.keys())
    changed = [(name, stored.get(name), wanted.get(name)) for name in names if stored.get(name) != wanted.get(name)]
    return [f"{name}: {_shown(before)} -> {_shown(after)}" for name, before, after in changed]


def _shown(value: Any) -> str:
    return "the default" if value is None else json.dumps(value, ensure_ascii=False)
