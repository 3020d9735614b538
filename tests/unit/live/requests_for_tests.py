"""A small deployment, and rows as requests leave them."""

from __future__ import annotations

from typing import Any

from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.live.request_rows import RequestReader
from stream_calib.live.waiting_rows import ServedRows

KEY = ModelKey("m", "1")
NOW_MS = 1_700_000_000_000


def config_of(**sections: Any) -> Config:
    base: dict[str, Any] = {
        "model": {"name": "m"},
        "scores": {"attributes": {"region": "r", "device": "d"}},
        "windows": {"horizon": "2h"},
    }
    return Config.model_validate({**base, **sections})


def rows_of(
    ids: list[str], times: list[int | None] | None = None, *, snapshot: str = "v", key: ModelKey = KEY, region: str = ""
) -> ServedRows:
    """Rows of one request, all of score .25 and served .5."""
    read = RequestReader(config_of()).read(
        "probability", [0.25] * len(ids), [{"region": region}] * len(ids), ids, times, None
    )
    return ServedRows.of(key, snapshot, read, read.score + 0.25)
