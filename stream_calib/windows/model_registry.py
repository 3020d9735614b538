"""The model keys of a deployment, in the order in which they were first seen: what monitor, refit, alert and the
command line work over; and those that were retired from it.

They are kept in two fields of the deployment's own state, so a Redis Cluster needs one slot for them. Of a key that was
retired it is on record where the log ended then: what lies before, and is read again, is no reason to register it anew;
what comes after is, and then the key reads on from there (or from where the others stand).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from stream_calib.errors import StateError, TooManyModelsError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_store import Commit, StateStore

_KNOWN, _RETIRED = "models", "retired_models"
_ATTEMPTS = 1_000


def deployment_scope(group_prefix: str) -> ModelKey:
    """Names what belongs to a deployment and to none of its model keys; no model can have this name."""
    return ModelKey("*", group_prefix)


class Retirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That a model key was taken out of the deployment."""

    time_ms: int
    """When, wall time."""
    marks: dict[str, Mark]
    """Input key -> where the key reads on from, should it come back. Until it does that is where the log ended."""
    returning: bool = False
    """It is back, and `marks` are final."""
    state_deleted: bool = False


class Registered(NamedTuple):
    """What is on record, at one moment."""

    known: list[ModelKey]
    """In order of registration."""
    retired: dict[ModelKey, Retirement]
    """A key that is known again stays here until a monitor has taken it up."""

    def gone(self, key: ModelKey) -> bool:
        """Whether it was retired, and is not back. One that is only not known may be on record again in a moment: the
        state may have lost writes."""
        return key in self.retired and key not in self.known

    def is_past(self, key: ModelKey, input_key: str, position: int) -> bool:
        """Whether a record of the key at this position was written before the key was retired, and so is no reason to
        register it again."""
        ended = self.retired[key].marks.get(input_key) if self.gone(key) else None
        return ended is not None and position < ended.next


class ModelRegistry:
    """Safe to use from several processes. Raises StateUnavailableError when the store is away."""

    def __init__(self, state: StateStore, limit: int) -> None:
        """`state`: of the deployment (see `deployment_scope`). `limit`: most model keys that it may have."""
        self._state = state
        self._limit = limit

    def known(self) -> list[ModelKey]:
        """All keys, in order of registration."""
        return self.look().known

    def look(self) -> Registered:
        """The keys, and those that were retired."""
        return _decoded(self._state.read((_KNOWN, _RETIRED)))

    def add(self, key: ModelKey) -> bool:
        """Registers the key; False where it was known.

        Raises TooManyModelsError where the deployment has `limit` others.
        """

        def added(found: Registered) -> Registered | None:
            known = found.known
            if key in known:
                return None
            if len(known) >= self._limit:
                raise TooManyModelsError(
                    f"the deployment has {len(known)} model keys (the last is {known[-1]}), {key} would be one more;"
                    " raise model.max_keys, retire one (`stream-calib models retire`), or look whether the path of the"
                    " model or version is the right one"
                )
            return found._replace(known=[*known, key])

        return self._change(f"{key} could not be registered", added)

    def retire(self, key: ModelKey, marks: Mapping[str, Mark], time_ms: int) -> bool:
        """Takes the key out; False where it was not in. `marks`: where the log ends now; `time_ms`: wall time."""

        def without(found: Registered) -> Registered | None:
            if key not in found.known:
                return None
            retired = {**found.retired, key: Retirement(time_ms, dict(marks))}
            return Registered([other for other in found.known if other != key], retired)

        return self._change(f"{key} could not be retired", without)

    def returning(self, key: ModelKey, starts: Callable[[], Mapping[str, Mark]]) -> Retirement | None:
        """To be asked before a known key is taken up: its retirement, where it had one, from whose marks it reads on.

        `starts`: where a key that is new would begin now. The first process that asks puts on record whatever is later
        of that and of where the log ended; so one that asks again after a crash passes over nothing of the key's own.
        """
        if (found := self.look().retired.get(key)) is None or found.returning:
            return found
        begins = starts()

        def back(found: Registered) -> Registered | None:
            retirement = found.retired.get(key)
            if retirement is None or retirement.returning:
                return None
            marks = retirement.marks | {
                i: mark
                for i, mark in begins.items()
                if i not in retirement.marks or mark.next > retirement.marks[i].next
            }
            fresh = Retirement(retirement.time_ms, marks, returning=True, state_deleted=retirement.state_deleted)
            return found._replace(retired={**found.retired, key: fresh})

        self._change(f"the return of {key} could not be put on record", back)
        return self.look().retired.get(key)

    def returned(self, key: ModelKey) -> None:
        """It is taken up: its shards stand where it reads on from."""

        def forgotten(found: Registered) -> Registered | None:
            retirement = found.retired.get(key)
            return _without(found, {key}) if retirement is not None and retirement.returning else None

        self._change(f"the return of {key} could not be put on record", forgotten)

    def forget_retirement(self, key: ModelKey) -> None:
        """Its state is put back as it once was: from there it reads on, not from where the log ended at its
        retirement."""

        def forgotten(found: Registered) -> Registered | None:
            return _without(found, {key}) if key in found.retired else None

        self._change(f"the retirement of {key} could not be dropped", forgotten)

    def note_state_deleted(self, key: ModelKey) -> None:
        """That nothing is kept of the retired key."""

        def noted(found: Registered) -> Registered | None:
            retirement = found.retired.get(key)
            if retirement is None or retirement.state_deleted:
                return None
            gone = Retirement(retirement.time_ms, retirement.marks, retirement.returning, state_deleted=True)
            return found._replace(retired={**found.retired, key: gone})

        self._change(f"that the state of {key} was deleted could not be put on record", noted)

    def forget_retired(self, begins: Mapping[str, int]) -> None:
        """Drops retirements that nothing can come of any more: of no state, and of no record that the log still has.

        `begins`: input key of each partition of scores -> where what the log holds begins.
        """

        def pruned(found: Registered) -> Registered | None:
            over = {
                key
                for key, retirement in found.retired.items()
                if retirement.state_deleted
                and key not in found.known
                and all(i not in begins or mark.next <= begins[i] for i, mark in retirement.marks.items())
            }
            return _without(found, over) if over else None

        self._change("old retirements could not be dropped", pruned)

    def _change(self, failed: str, change: Callable[[Registered], Registered | None]) -> bool:
        """By compare-and-set; False where `change` has nothing to change (None)."""
        for _ in range(_ATTEMPTS):
            found = self._state.read((_KNOWN, _RETIRED))
            wanted = change(_decoded(found))
            if wanted is None:
                return False
            fields = {name: text for name, text in _encoded(wanted).items() if text != (found[name] or "")}
            if self._state.commit(Commit(expect=found, fields=fields)):
                return True
        raise StateError(f"{failed} in {_ATTEMPTS} attempts; is the store being wiped?")


def _without(found: Registered, keys: set[ModelKey]) -> Registered:
    return found._replace(retired={key: value for key, value in found.retired.items() if key not in keys})


def _encoded(registered: Registered) -> dict[str, str]:
    retired = {str(key): retirement for key, retirement in registered.retired.items()}
    return {
        _KNOWN: msgspec.json.encode(registered.known).decode(),
        _RETIRED: msgspec.json.encode(retired).decode() if retired else "",
    }


def _decoded(fields: Mapping[str, str | None]) -> Registered:
    try:
        known = msgspec.json.decode(fields[_KNOWN] or "[]", type=list[tuple[str, str]])
        retired = msgspec.json.decode(fields[_RETIRED] or "{}", type=dict[str, Retirement])
    except msgspec.MsgspecError as error:
        raise StateError(f"the list of model keys cannot be read: {error}; restore the state from a backup") from error
    parts = {text: text.partition("/") for text in retired}
    return Registered(
        [ModelKey(*pair) for pair in known],
        {ModelKey(name, version): retired[text] for text, (name, _, version) in parts.items()},
    )
