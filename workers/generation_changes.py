"""Making another generation live, and deleting one that is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stream_calib.alerts.outbox import take_place
from stream_calib.config import Config
from stream_calib.errors import StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.generations import directory_of, key_part
from stream_calib.windows.redis_removal import delete_generation
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.registration import SEMANTICS, stored_content
from stream_calib.windows.shard_store import Progress
from workers.deployment import State, member_name, state_of
from workers.state_at_rest import LEASES
from workers.time_text import age

_LEASE_MS = 5_000


class Lag(NamedTuple):
    """How far one generation is behind another."""

    records: int
    """On all inputs."""
    time_ms: int
    """Event time, on the input that is furthest behind."""
    missing: list[str]
    """Inputs that it does not know."""


def lag_behind(progress: Sequence[Progress], live: Sequence[Progress]) -> Lag:
    """By the least position and clock over the shards."""
    ours, theirs = _least(progress), _least(live)
    records = sum(max(0, at[0] - ours[i][0]) for i, at in theirs.items() if i in ours)
    behind = [at[1] - (ours[i][1] or 0) for i, at in theirs.items() if i in ours and at[1] is not None]
    return Lag(records, max([0, *behind]), sorted(theirs.keys() - ours.keys()))


def switch_to(client: RedisClient, config: Config, key: ModelKey, number: int) -> int:
    """Makes a generation of this configuration live; which one was before.

    Refused (StateError, with the lag) where it is more than a pane of event time behind the live one, or has no
    snapshot where that has one: outputs would be raw scores again. Its alerts up to here are of times that are over
    and count as delivered; those that only the other one holds to be open, or has closed unheard, are closed.
    """
    live, state = state_of(client, config, key), state_of(client, config, key, number)
    if number == live.number:
        raise StateError(f"generation {number} of {key} is live already; nothing was changed")
    if number not in live.directory.look().kept:
        raise StateError(f"there is no generation {number} of {key}; look at `stream-calib state list`")
    made_under = state.store.read(("generation",))["generation"]
    if made_under != state.generation:
        raise StateError(
            f"generation {number} of {key} was made under {made_under}, this configuration is {state.generation}: name"
            " the file that it was rebuilt with"
        )
    lag = lag_behind(state.shards.progress(), _progress_as_made(live))
    if lag.missing or lag.time_ms > config.windows.pane_ms:
        what = f"{age(lag.time_ms)} of event time and {lag.records:,} records"
        unknown = f", and does not know the inputs {', '.join(lag.missing)}" if lag.missing else ""
        raise StateError(
            f"generation {number} of {key} is {what} behind the live one{unknown}; more than a pane: run"
            " `stream-calib state rebuild` again, it goes on where it stands"
        )
    if live.snapshots.current() is not None and state.snapshots.current() is None:
        raise StateError(
            f"generation {number} of {key} has no snapshot yet, so its raw scores would be served; let `stream-calib"
            " state rebuild` go on until it has one, or lower refit.min_rows"
        )
    take_place(state.store, live.store, [hook.name for hook in config.alerts.hooks])
    live.directory.switch(live.number, number)
    return live.number


def drop_generation(
    client: RedisClient, key: ModelKey, number: int, before_step: Callable[[], None] = lambda: None
) -> int:
    """Deletes a generation that is not live; how many keys of the server that were. One that was interrupted goes on.

    Raises StateError where it is live, worked on (being rebuilt, or by roles that have not ended since a switch), or
    nothing is known of it.
    """
    directory = directory_of(client, key)
    found = directory.look()
    if not 0 <= number <= found.newest:
        raise StateError(f"there never was a generation {number} of {key}; look at `stream-calib state list`")
    if number != found.live:
        _refuse_if_worked_on(RedisState(client, key, key_part(number)), key, number)
    if number in found.kept or number == found.live:
        directory.forget(number)
    return delete_generation(client, key, number, before_step)


def _refuse_if_worked_on(store: RedisState, key: ModelKey, number: int) -> None:
    """What would be written to it after the deletion would stay for ever."""
    me = member_name()
    for lease in LEASES:
        token = store.acquire_lease(lease, me, _LEASE_MS)
        store.release_lease(lease, me)
        if token is None:
            raise StateError(
                f"generation {number} of {key} is worked on, its lease `{lease}` is held: end the rebuild, or the roles"
                " with the old configuration, and try again in half a minute"
            )


def _least(progress: Sequence[Progress]) -> dict[str, tuple[int, int | None]]:
    """Input key -> least position, and the clock there."""
    found: dict[str, tuple[int, int | None]] = {}
    for shard in progress:
        for input_key, mark in shard.marks.items():
            if input_key not in found or mark.next < found[input_key][0]:
                found[input_key] = mark.next, mark.clock_ms
    return found


def _progress_as_made(state: State) -> list[Progress]:
    """Of as many shards as the state was made with, whatever the configuration at hand says."""
    stored = state.store.read((SEMANTICS,))[SEMANTICS]
    count = state.shards.count if stored is None else int(stored_content(stored)["shards"])
    part = key_part(state.number)
    return RedisShards(state.client, state.model_key, count, state.shards.settings, part).progress()
