"""A state with snapshots for tests of calibration in the request path, without the roles that make them."""

from __future__ import annotations

from typing import Any

import redis

from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.compiled import compile_snapshot
from stream_calib.snapshot.map_documents import FamilyDocument, OffsetDocument
from stream_calib.snapshot.model import StructureSnapshot, decode_snapshot, resolve, sequence_of, version_of
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.documents import structure

KEY = ModelKey("m", "1")
ATTRIBUTES = ("region", "device")
FAMILIES = (
    FamilyDocument(
        attributes=("region",),
        offsets=(OffsetDocument(values=("eu",), offset=0.3), OffsetDocument(values=("us",), offset=-0.7)),
    ),
    FamilyDocument(attributes=("region", "device"), offsets=(OffsetDocument(values=("eu", "phone"), offset=0.11),)),
)


def config_of(redis_url: str, **sections: Any) -> Config:
    base: dict[str, Any] = {
        "model": {"name": "m"},
        "redis": {"url": redis_url, "retries": 0, "socket_timeout": "500ms"},
        "scores": {"attributes": {name: name for name in ATTRIBUTES}},
        "serving": {"snapshot_poll": "50ms"},
        "windows": {"horizon": "2h"},
    }
    return Config.model_validate({**base, **sections})


def publish(client: redis.Redis, level: float = 0.25, key: ModelKey = KEY, **change: Any) -> str:
    """The version of a new current snapshot."""
    state = RedisState(client, key)
    parent = state.read(["current"])["current"]
    sequence = 1 + (sequence_of(parent) if parent else 0)
    fields = {
        "attributes": ATTRIBUTES,
        "families": FAMILIES,
        "sequence": sequence,
        "level": level,
        "model": key.model,
        "model_version": key.version,
    }
    encoded = structure("r", parent, **(fields | change)).encode()
    version = version_of(sequence, encoded)
    state.commit(Commit(fields={"current": version}, blobs={f"snapshot:{version}": encoded}))
    return version


def map_of(client: redis.Redis, version: str, key: ModelKey = KEY) -> ServedMap:
    """What the version serves by."""
    (encoded,) = RedisState(client, key).blobs([f"snapshot:{version}"])
    snapshot = decode_snapshot(version, encoded or b"")
    assert isinstance(snapshot, StructureSnapshot)
    return compile_snapshot(resolve(version, snapshot, None))
