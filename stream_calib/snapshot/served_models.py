"""The snapshots of all model keys of a deployment, followed from a process that serves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, scored_keys
from stream_calib.config_values import duration_text
from stream_calib.errors import SnapshotError, StateError, StateUnavailableError, TooManyModelsError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.follower import Served, SnapshotFollower
from stream_calib.windows.model_registry import ModelRegistry, Registered
from stream_calib.windows.state_store import StateStore

_LOG = logging.getLogger(__name__)

_PAUSE_FACTOR = 9
"""After an attempt that failed, so many times as long is for serving."""
_LONGEST_PAUSE_MS = 30_000
_FORGOTTEN_AFTER_MS = 3_600_000


class Serving(NamedTuple):
    """What to serve a model key by. Take it once for a batch."""

    served: Served | None
    """None: the raw score."""
    status: Literal["calibrated", "previous_version", "identity"]


class ServedModels:
    """Follows the snapshot of each model key: the constants of the configuration from the start, the others from their
    first score on, until an hour after their last one or until they are retired.

    Keys that are new to the deployment are registered. While the state is away all keys that are followed are served
    on, for `max_snapshot_staleness`; a key that nobody has registered has no snapshot yet, so it is served too, and is
    registered later. Not thread-safe.
    """

    def __init__(
        self,
        config: Config,
        registry: ModelRegistry,
        state_of: Callable[[ModelKey], StateStore],
        clock_ms: Callable[[], int],
        news: Callable[[], bool] = lambda: False,
    ) -> None:
        """`state_of`: the state of a model key, the same object until another one takes its place. `clock_ms`:
        monotonic, milliseconds. `news`: whether a pointer may have moved since it was asked last: then the next look is
        due at once."""
        self._registry, self._state_of, self._clock_ms, self._news = registry, state_of, clock_ms, news
        self._serving = config.serving
        self._attributes = list(config.scores.attributes)
        self._constants, self._scored = configured_keys(config), scored_keys(config)
        self._max_keys = config.model.max_keys
        self._followers: dict[ModelKey, SnapshotFollower] = {}
        self._used_ms: dict[ModelKey, int] = {}
        self._unusable: dict[ModelKey, SnapshotError] = {}
        self._known: list[ModelKey] = []
        self._unregistered: dict[ModelKey, None] = dict.fromkeys(self._constants)
        self._reached_ms: int | None = None
        self._next_poll_ms: int | None = None
        self._away = self._register_failed = False

    @property
    def staleness_ms(self) -> int:
        """Time since the state was last read, 0 before the first time."""
        return 0 if self._reached_ms is None else self._clock_ms() - self._reached_ms

    @property
    def followers(self) -> dict[ModelKey, SnapshotFollower]:
        """Of each key that is followed."""
        return self._followers

    def refresh(self) -> None:
        """Looks for new snapshots and new keys, at most once in `snapshot_poll`, but at once where there is news; less
        often while the state is away and each attempt takes long. Call it before each batch.

        Raises StateUnavailableError where the state has been away for longer than `max_snapshot_staleness`, or was
        never reached, TooManyModelsError where the constants of the configuration are too many for the deployment.
        """
        now = self._clock_ms()
        if self._next_poll_ms is not None and now < self._next_poll_ms and not self._news():
            return
        try:
            registered = self._registry.look()
        except StateUnavailableError as error:
            too_stale = self._too_stale_ms()
            if too_stale is None:
                raise
            if now >= too_stale:
                raise StateUnavailableError(
                    f"the state has been away for {self.staleness_ms} ms, longer than serving.max_snapshot_staleness;"
                    f" what is held is too old to go on with: {error}"
                ) from error
            after = self._clock_ms()
            pause_ms = min(_PAUSE_FACTOR * (after - now), _LONGEST_PAUSE_MS)
            self._next_poll_ms = min(max(now + self._serving.snapshot_poll_ms, after + pause_ms), too_stale)
            if not self._away:
                bound = duration_text(self._serving.max_snapshot_staleness_ms)
                _LOG.warning("the state is away; what is held is served on for up to %s: %s", bound, error)
            self._away = True
            return
        if self._away:
            _LOG.info("the state is back, after %.0f s", self.staleness_ms / 1000)
        self._away = False
        self._known = registered.known
        self._register()
        self._drop_unused(now, registered)
        for key in {**dict.fromkeys(self._constants), **self._followers}:
            self._poll(key)
        self._reached_ms, self._next_poll_ms = now, now + self._serving.snapshot_poll_ms

    def waited_for(self) -> list[ModelKey]:
        """With ``bootstrap = "wait"``: the constants of the configuration that have no snapshot yet. A key that comes
        from records is served the raw score before its first one: what waits for it would hold up all others. So is the
        fused one: only what is served can become its first snapshot."""
        if self._serving.bootstrap != "wait":
            return []
        return [key for key in self._scored if self._held(key) is None]

    def admit(self, key: ModelKey) -> bool:
        """Whether the deployment may have this key; a new one is registered."""
        if key in self._followers or key in self._known or key in self._unregistered:
            return True
        if len({*self._known, *self._unregistered}) >= self._max_keys:
            return False
        self._unregistered[key] = None
        if not self._away:
            self._register()
        return key in self._known or key in self._unregistered

    def serving(self, key: ModelKey) -> Serving:
        """What to serve an admitted key by.

        Raises StateUnavailableError for a key that has not been followed lately, while the state is away: it may have a
        snapshot. SnapshotError where its snapshot cannot be served and there is none to go on with.
        """
        served = self._held(key)
        if served is not None:
            return Serving(served, "calibrated")
        if key in self._unusable:
            raise self._unusable[key]
        if self._serving.bootstrap == "previous_version":
            for other in reversed(self._known):
                if other.model == key.model and other != key and (before := self._held(other)) is not None:
                    return Serving(before, "previous_version")
        return Serving(None, "identity")

    def _held(self, key: ModelKey) -> Served | None:
        self._used_ms[key] = self._clock_ms()
        if key not in self._followers and not (self._away and key in self._unregistered):
            self._poll(key)
        return self._followers[key].held if key in self._followers else None

    def _poll(self, key: ModelKey) -> None:
        """Raises StateUnavailableError where the key's state was never reached, or not for too long."""
        held = self._followers.get(key)
        follower = self._follower_of(key, held)
        try:
            follower.current()
            self._unusable.pop(key, None)
        except SnapshotError as error:
            if key not in self._unusable:
                _LOG.error("the snapshot of %s cannot be served: %s", key, error)
            self._unusable[key] = error
            # What another generation's state gave before is served on.
            follower = follower if held is None or held.held is None else held
        self._followers[key] = follower

    def _follower_of(self, key: ModelKey, held: SnapshotFollower | None) -> SnapshotFollower:
        """`held`, but where another state has become the key's own: then another one, that knows nothing yet."""
        try:
            state = self._state_of(key)
        except StateError:  # away, or which one is live cannot be read
            if held is None:
                raise
            return held
        if held is not None and held.state is state:
            return held
        return SnapshotFollower(
            state,
            self._attributes,
            poll_ms=0,
            max_staleness_ms=self._serving.max_snapshot_staleness_ms,
            clock_ms=self._clock_ms,
        )

    def _register(self) -> None:
        """What cannot be registered, because the state is away or full, is kept for later: serving does not need it."""
        for key in list(self._unregistered):
            try:
                if key not in self._known:
                    self._registry.add(key)
                    self._known.append(key)
            except StateUnavailableError as error:
                if not self._register_failed:
                    _LOG.warning("%s is served, but cannot be registered yet: %s", key, error)
                self._register_failed = True
                return
            except TooManyModelsError as error:
                if key in self._constants:
                    raise
                _LOG.error("%s is rejected: %s", key, error)
                self._drop(key)
                self._known = self._registry.known()
            del self._unregistered[key]
        self._register_failed = False

    def _too_stale_ms(self) -> int | None:
        """When what is served is too old to go on with, None before the state was reached."""
        return None if self._reached_ms is None else self._reached_ms + self._serving.max_snapshot_staleness_ms + 1

    def _drop_unused(self, now: int, registered: Registered) -> None:
        for key in [k for k in self._followers if k not in self._constants]:
            retired = registered.gone(key) and key not in self._known and key not in self._unregistered
            if retired or now - self._used_ms.setdefault(key, now) > _FORGOTTEN_AFTER_MS:
                self._drop(key)

    def _drop(self, key: ModelKey) -> None:
        for held in (self._followers, self._used_ms, self._unusable):
            held.pop(key, None)
