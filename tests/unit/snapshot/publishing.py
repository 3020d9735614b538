"""Putting a small snapshot where followers find it, without a closer and a refit."""

from __future__ import annotations

from typing import Any

from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.model import sequence_of, version_of
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_store import Commit
from tests.unit.snapshot.documents import structure


def publish(state: MemoryState, key: ModelKey, **change: Any) -> str:
    """The version of a new current snapshot of the model key, over the attributes region and device;
    `change`: fields of its document."""
    parent = MemoryState.read(state, ["current"])["current"]
    sequence = 1 + (sequence_of(parent) if parent else 0)
    fields = {"attributes": ("region", "device"), "families": (), "sequence": sequence} | change
    snapshot = structure("r", parent, model=key.model, model_version=key.version, **fields)
    encoded = snapshot.encode()
    version = version_of(sequence, encoded)
    state.commit(Commit(fields={"current": version}, blobs={f"snapshot:{version}": encoded}))
    return version
