"""The JSON schema of a snapshot, as it stands in docs: `python -m stream_calib.snapshot.schema`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from stream_calib.snapshot.model import Snapshot


def json_schema() -> dict[str, Any]:
    """Of a snapshot's document, as draft 2020-12; what is optional there is left out while it has its default."""
    found = TypeAdapter[Snapshot](Snapshot).json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Snapshot of stream-calib, format 1",
        **found,
    }


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1, sort_keys=True, ensure_ascii=False))
