"""The cells of a model key out of a file that `stream-calib state export` wrote, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.registration import check_format
from stream_calib.windows.state_dump import HashFrame, ModelFrame, StringFrame, read_dump
from stream_calib.windows.state_store import SIGNATURE_EPOCH_MS, Commit

_FIELDS = ("first_pane", "closed", "matured", KEPT)
_CELLS = (b"b:scored:", b"b:matured:")


def keys_of_dump(path: Path) -> list[ModelKey]:
    """The model keys that the file holds. Raises StateError where it cannot be read or is damaged."""
    return [_key(path, frame) for frame in read_dump(path) if isinstance(frame, ModelFrame)]


def state_of_dump(path: Path, key: ModelKey) -> tuple[MemoryState, str]:
    """A state in memory with the cells, cursors and signatures of the model key, and the hash of the semantic
    configuration that it was made under.

    Raises StateError where the file cannot be read or is damaged, HistoryError where the key is not in it.
    """
    state = MemoryState()
    generation, mine = None, False
    for frame in read_dump(path):
        if isinstance(frame, ModelFrame):
            mine = _key(path, frame) == key
            if mine:
                check_format(str(frame.state_format))
                generation = frame.generation
        elif not mine or frame.shard is not None:
            continue
        elif isinstance(frame, HashFrame) and frame.name == b"f":
            fields = {name.decode(): value.decode() for name, value in frame.fields if name.decode() in _FIELDS}
            state.commit(Commit(fields=fields))
        elif isinstance(frame, HashFrame) and frame.name.startswith(b"d"):
            epoch = int(frame.name[1:].partition(b":")[0])
            state.put_signatures(_signatures(frame.fields), epoch * SIGNATURE_EPOCH_MS)
        elif isinstance(frame, StringFrame) and frame.name.startswith(_CELLS):
            state.commit(Commit(blobs={frame.name[2:].decode(): frame.value}))
    if generation is None:
        there = ", ".join(map(str, keys_of_dump(path))) or "none"
        raise HistoryError(f"{path}: {key} is not in the file; there are: {there}")
    return state, generation


def _signatures(fields: Sequence[tuple[bytes, bytes]]) -> dict[int, tuple[str, ...]]:
    return {int(signature): tuple(msgspec.json.decode(values, type=list[str])) for signature, values in fields}


def _key(path: Path, frame: ModelFrame) -> ModelKey:
    try:
        return ModelKey.of(frame.model, frame.version)
    except ValueError as error:
        raise HistoryError(f"{path}: it names a model key that there cannot be: {error}") from error
