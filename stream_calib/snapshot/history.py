"""The history of the snapshot pointer, and of what people did about it, as it is kept in the state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from stream_calib.errors import StateError
from stream_calib.windows.state_store import StateStore

_HISTORY = "history"


def pointer_moves(state: StateStore) -> list[dict[str, Any]]:
    """Every move of the pointer (publish, rollback), and what else people did (pin, unpin, reject, shadow, unshadow),
    oldest first. Raises StateError where one cannot be read, StateUnavailableError."""
    try:
        return [json.loads(raw) for raw in state.entries(_HISTORY, 0)]
    except ValueError as error:
        raise StateError(
            f"an entry of the list `{_HISTORY}` cannot be read ({error}); the model key's state is damaged: put a"
            " backup back"
        ) from error


def is_publication(move: Mapping[str, Any]) -> bool:
    """Whether another version was served from the move on."""
    return move["what"] in ("publish", "rollback")


def versions_named(moves: Iterable[Mapping[str, Any]]) -> set[str]:
    """The versions that the moves served, and those that these are levels of."""
    return {move[name] for move in moves for name in ("version", "structure") if name in move}
