"""The history of the snapshot pointer, as it is kept in the state."""

from __future__ import annotations

import json
from typing import Any

from stream_calib.errors import StateError
from stream_calib.windows.state_store import StateStore

_HISTORY = "history"


def pointer_moves(state: StateStore) -> list[dict[str, Any]]:
    """Every move, and every pin, oldest first. Raises StateError where one cannot be read, StateUnavailableError."""
    try:
        return [json.loads(raw) for raw in state.entries(_HISTORY, 0)]
    except ValueError as error:
        raise StateError(
            f"an entry of the list `{_HISTORY}` cannot be read ({error}); the model key's state is damaged: put a"
            " backup back"
        ) from error
