"""Whole states into a file and back: `state export`, `state import`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.redis_dump import dumped, moving_parts, restore
from stream_calib.windows.redis_removal import delete_generation
from stream_calib.windows.registration import FORMAT, SEMANTICS, STATE_FORMAT, check_format, check_generation
from stream_calib.windows.state_dump import Content, Frame, ModelFrame, read_dump, write_dump
from workers.deployment import State, member_name, open_registry, state_of
from workers.role import wall_clock_ms
from workers.state_at_rest import AtRest


class Transferred(NamedTuple):
    """Of one model key."""

    key: ModelKey
    generation: str
    """Hash of its semantic configuration."""
    frames: int


def export_states(
    client: RedisClient,
    config: Config,
    keys: Sequence[ModelKey],
    path: Path,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> tuple[list[Transferred], str]:
    """The live generation of each key into the file; what was written, and the SHA-256 of the content.

    Raises StateError, with no file written, where a key has no state, a role is at work on it, or it changed meanwhile.
    """
    counts: dict[ModelKey, Transferred] = {}
    member = member_name()

    def frames() -> Iterator[Frame]:
        for key in keys:
            state = state_of(client, config, key)
            fields = state.store.read(("generation", FORMAT))
            made_under = fields["generation"]
            check_format(fields[FORMAT])
            if made_under is None:
                raise StateError(f"{key} has no state yet, so there is nothing to export of it; leave it out")
            with AtRest(state, member, clock_ms) as rest:
                before = moving_parts(client, key, state.number)
                n = 0
                yield ModelFrame(key.model, key.version, made_under, STATE_FORMAT)
                for frame in dumped(client, key, state.number, rest.keep):
                    yield frame
                    n += 1
                if moving_parts(client, key, state.number) != before or state.directory.look().live != state.number:
                    raise StateError(
                        f"the state of {key} changed while it was exported, so the file would not be of one moment;"
                        " stop the roles, and export again"
                    )
            counts[key] = Transferred(key, made_under, n)

    digest = write_dump(path, frames())
    return list(counts.values()), digest


def import_states(
    client: RedisClient,
    config: Config,
    path: Path,
    said: Callable[[str], None] = lambda what: None,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> list[Transferred]:
    """What the file holds becomes the live generation of its model keys. `said`: hears what is being done.

    Nothing is written before the whole file was read and found sound, every key was found to be empty here, and its
    state to be of this configuration. Each key is written beside what is live, and made live at the end, so one that
    was interrupted is never worked on: it is left as a generation that `state drop` deletes. Raises StateError and
    GenerationMismatchError.
    """
    said(f"checking {path}")
    found = _checked(client, config, path)
    registry, member = open_registry(client, config), member_name()
    for key, content in _by_model(read_dump(path)):
        live = state_of(client, config, key)
        with AtRest(live, member, clock_ms) as rest:
            number = live.directory.begin()
            said(f"{key}: writing generation {number}")
            restore(client, key, number, content, rest.keep)
            written = state_of(client, config, key, number)
            fields = written.store.read(("generation", SEMANTICS))
            check_generation(fields[SEMANTICS], fields["generation"], written.semantics)
            _must_be_empty(client, live)
            registry.forget_retirement(key)
            live.directory.switch(live.number, number)
        live.directory.forget(live.number)
        delete_generation(client, key, live.number, lambda: None)
        registry.add(key)
    return found


def _checked(client: RedisClient, config: Config, path: Path) -> list[Transferred]:
    """What the file holds, once all of it was read."""
    found: list[Transferred] = []
    for frame in read_dump(path):
        if isinstance(frame, ModelFrame):
            check_format(str(frame.state_format))
            found.append(Transferred(_key(frame), frame.generation, 0))
        else:
            found[-1] = found[-1]._replace(frames=found[-1].frames + 1)
    keys = [one.key for one in found]
    for one in found:
        if keys.count(one.key) > 1:
            raise StateError(f"{path}: {one.key} is there twice; it was not written by `stream-calib state export`")
        live = state_of(client, config, one.key)
        check_generation(None, one.generation, live.semantics)
        _must_be_empty(client, live)
    known = open_registry(client, config).known()
    if len({*known, *keys}) > config.model.max_keys:
        raise ConfigurationError(
            f"{path} has {len(keys)} model keys, with those that are known more than model.max_keys ="
            f" {config.model.max_keys}; raise it"
        )
    return found


def _must_be_empty(client: RedisClient, live: State) -> None:
    fields = live.store.read(("generation", "inputs", "first_pane"))
    if any(value is not None for value in fields.values()) or any(found.marks for found in live.shards.progress()):
        raise StateError(
            f"{live.model_key} has a state here (generation {live.number}), and nothing is written over it: import into"
            " an empty Redis, or another database of it; the state of a model key that the configuration does not name"
            " can be deleted first (`stream-calib models retire NAME VERSION --delete-state`)"
        )


def _by_model(frames: Iterable[Frame]) -> Iterator[tuple[ModelKey, Iterator[Content]]]:
    """Each key with its content, which is to be read before the next key is."""
    key: ModelKey | None = None

    def of(frame: Frame) -> ModelKey | None:
        nonlocal key
        key = _key(frame) if isinstance(frame, ModelFrame) else key
        return key

    for one, some in groupby(frames, of):
        assert one is not None
        yield one, (frame for frame in some if not isinstance(frame, ModelFrame))


def _key(frame: ModelFrame) -> ModelKey:
    try:
        return ModelKey.of(frame.model, frame.version)
    except ValueError as error:
        raise StateError(f"the file names a model key that there cannot be: {error}") from error
