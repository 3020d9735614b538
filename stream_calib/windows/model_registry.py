"""The model keys of a deployment, in the order in which they were first seen: what monitor, refit, alert and the
command line work over.

They are kept in one field of the deployment's own state, so a Redis Cluster needs one slot for them.
"""

from __future__ import annotations

import msgspec

from stream_calib.errors import StateError, TooManyModelsError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.state_store import Commit, StateStore

_FIELD = "models"
_ATTEMPTS = 1_000


def deployment_scope(group_prefix: str) -> ModelKey:
    """Names what belongs to a deployment and to none of its model keys; no model can have this name."""
    return ModelKey("*", group_prefix)


class ModelRegistry:
    """Safe to use from several processes. Raises StateUnavailableError when the store is away."""

    def __init__(self, state: StateStore, limit: int) -> None:
        """`state`: of the deployment (see `deployment_scope`). `limit`: most model keys that it may have."""
        self._state = state
        self._limit = limit

    def known(self) -> list[ModelKey]:
        """All keys, in order of registration."""
        return _decoded(self._state.read((_FIELD,))[_FIELD])

    def add(self, key: ModelKey) -> bool:
        """Registers the key; False where it was known.

        Raises TooManyModelsError where the deployment has `limit` others.
        """
        for _ in range(_ATTEMPTS):
            found = self._state.read((_FIELD,))[_FIELD]
            known = _decoded(found)
            if key in known:
                return False
            if len(known) >= self._limit:
                raise TooManyModelsError(
                    f"the deployment has {len(known)} model keys (the last is {known[-1]}), {key} would be one more;"
                    " raise model.max_keys, or look whether the path of the model or version is the right one"
                )
            if self._state.commit(Commit(expect={_FIELD: found}, fields={_FIELD: _encoded([*known, key])})):
                return True
        raise StateError(
            f"the model key {key} could not be registered in {_ATTEMPTS} attempts; is the store being wiped?"
        )


def _encoded(keys: list[ModelKey]) -> str:
    return msgspec.json.encode(keys).decode()


def _decoded(text: str | None) -> list[ModelKey]:
    if text is None:
        return []
    try:
        return [ModelKey(*pair) for pair in msgspec.json.decode(text, type=list[tuple[str, str]])]
    except msgspec.MsgspecError as error:
        raise StateError(f"the list of model keys cannot be read: {error}; restore the state from a backup") from error
