"""Following snapshots on a thread of its own, so that a request never waits for the state once its model is known."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from typing import NamedTuple

from stream_calib.config import Config
from stream_calib.config_identity import configured_keys, scored_keys, semantic_content
from stream_calib.config_values import mask_url
from stream_calib.errors import RequestError, SnapshotError, StateUnavailableError, StreamCalibError
from stream_calib.events.contracts import ModelKey
from stream_calib.live.forked_child import abandon, in_a_forked_child
from stream_calib.redis_clients import RedisClient
from stream_calib.redis_connection import answering, connect
from stream_calib.snapshot.served_metrics import ServedMetrics
from stream_calib.snapshot.served_models import ServedModels, Serving
from stream_calib.windows.generations import LiveStates
from stream_calib.windows.model_registry import ModelRegistry, deployment_scope
from stream_calib.windows.redis_news import PointerNews
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.registration import check_blocks

_LOG = logging.getLogger(__name__)

_FIRST_LOOK_WITHIN_S = 2.0
_FORGOTTEN_AFTER_MS = 3_600_000
_CLOSE_WITHIN_S = 2.0


class Followed(NamedTuple):
    """What is known of one model key."""

    serving: Serving | SnapshotError
    read_at_ms: int
    """When the state was last read for it, by the monotonic clock."""


class SnapshotWatch:
    """What to serve each model key by, as of the last look at the state. Thread-safe.

    The thread begins with the first question, in a forked child again.
    """

    def __init__(self, config: Config, after_look: Callable[[ServedModels], None] | None = None) -> None:
        """`after_look`: called on the thread after each look at the state, in place of exporting metrics only."""
        self._config, self._after_look = config, after_look or ServedMetrics().observe
        self._client: RedisClient | None = None
        self._news: PointerNews | None = None
        self._closed = False
        self._reset()
        in_a_forked_child(self._forked)

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._followed: dict[ModelKey, Followed] = {}
        self._wanted: dict[ModelKey, Future[Followed]] = {}
        self._used_ms: dict[ModelKey, int] = {}
        self._failure: StreamCalibError | None = None
        self._heard = False
        """A pointer may have moved since the last look."""

    def _forked(self) -> None:
        """In the child. What the parent served by is left too: a thread may have been in the middle of it."""
        abandon(self._client, self._news, self._condition, self._followed)
        self._client = self._news = None
        self._reset()

    def follows(self, key: ModelKey) -> bool:
        """Whether `serving` answers at once."""
        return key in self._followed

    def serving(self, key: ModelKey) -> tuple[Serving, int]:
        """What to serve the key by, and for how many milliseconds the state has not been read.

        Waits for the state where the key is new here, for two seconds at most. Raises StateUnavailableError where the
        state was never reached, or not for `max_snapshot_staleness`; SnapshotError where the snapshot cannot be served;
        RequestError where the deployment has `model.max_keys` others.
        """
        if self._closed:
            raise StateUnavailableError("this calibrator is closed")
        followed = self._followed.get(key) or self._first_look(key)
        now = _monotonic_ms()
        self._used_ms[key] = now
        staleness_ms = max(0, now - followed.read_at_ms)
        if staleness_ms > self._config.serving.max_snapshot_staleness_ms:
            raise StateUnavailableError(
                f"the state has been away for {staleness_ms} ms, longer than serving.max_snapshot_staleness; what is"
                f" held is too old to go on with: {self._failure}"
            )
        if isinstance(followed.serving, SnapshotError):
            raise SnapshotError(str(followed.serving))  # an exception belongs to the thread that it was raised in
        return followed.serving, staleness_ms

    def not_ready(self) -> str | None:
        """Why one of the configured model keys cannot be served; None where all can be."""
        for key in scored_keys(self._config):
            followed = self._followed.get(key)
            if followed is None:
                return f"waits for the state: {self._failure or 'not read yet'}"
            try:
                serving, _ = self.serving(key)
            except StreamCalibError as error:
                return str(error)
            if serving.served is None and self._config.serving.bootstrap == "wait":
                return f"waits for a first snapshot of {key} (serving.bootstrap = wait)"
        return None

    def start(self) -> None:
        """Looks at the state from now on, without waiting for it."""
        with self._condition:
            self._ensure_thread()

    def close(self) -> None:
        """Ends the thread, within two seconds."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_WITHIN_S)

    # --- callers' side

    def _first_look(self, key: ModelKey) -> Followed:
        with self._condition:
            if key in self._followed:
                return self._followed[key]
            if self._failure is not None:
                # The thread tries again at its own pace; requests do not wait for that.
                raise StateUnavailableError(str(self._failure))
            self._ensure_thread()
            answer = self._wanted.setdefault(key, Future())
            self._condition.notify_all()
        try:
            return answer.result(_FIRST_LOOK_WITHIN_S)
        except NotInTimeError:
            raise StateUnavailableError(
                f"the state at {self._server()} has not answered for {key} within {_FIRST_LOOK_WITHIN_S:.0f} s"
            ) from None

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
            self._thread.start()

    # --- the thread

    def _run(self) -> None:
        models: ServedModels | None = None
        while not self._closed:
            try:
                if models is None:
                    models = self._connected()
                self._look(models)
            except StreamCalibError as error:
                self._failed(error)
            except Exception as error:
                # A fault of ours must not end what keeps the snapshots fresh; what is held is served on meanwhile.
                _LOG.exception("following snapshots failed")
                self._failed(StateUnavailableError(f"following snapshots failed: {error!r}"))
            with self._condition:
                wait_s = self._config.serving.snapshot_poll_ms / 1000
                self._condition.wait_for(
                    lambda: self._closed or self._heard or (self._wanted and self._failure is None), wait_s
                )
                self._heard = False
        if self._news is not None:
            self._news.close()
        if self._client is not None:
            self._client.close()

    def _connected(self) -> ServedModels:
        config = self._config
        with answering(StateUnavailableError, f"connecting to the state at {self._server()}"):
            client = self._client = connect(config.redis)
        registry = ModelRegistry(RedisState(client, deployment_scope(config.log.group_prefix)), config.model.max_keys)
        states = LiveStates(client)
        for key in configured_keys(config):
            check_blocks(key, states(key), semantic_content(config))
        self._news = PointerNews(config.redis, self._hear)
        return ServedModels(config, registry, states, _monotonic_ms, self._news.came)

    def _hear(self) -> None:
        with self._condition:
            self._heard = True
            self._condition.notify_all()

    def _look(self, models: ServedModels) -> None:
        models.refresh()
        now = _monotonic_ms()
        with self._condition:
            wanted = dict(self._wanted)
        fresh = [k for k in self._followed if now - self._used_ms.setdefault(k, now) <= _FORGOTTEN_AFTER_MS]
        followed: dict[ModelKey, Followed] = {}
        refused: dict[ModelKey, Exception] = {}
        for key in dict.fromkeys((*scored_keys(self._config), *fresh, *wanted)):
            try:
                if not models.admit(key):
                    refused[key] = RequestError(
                        f"model {key} would be one more than model.max_keys = {self._config.model.max_keys}"
                    )
                    continue
                followed[key] = self._followed_key(models, key, now)
            except StateUnavailableError as error:
                if key in self._followed:
                    followed[key] = self._followed[key]
                else:
                    refused[key] = error
        with self._condition:
            self._followed, self._failure = followed, None
            for key in wanted:
                del self._wanted[key]
        for key, answer in wanted.items():
            if key in followed:
                answer.set_result(followed[key])
            else:
                answer.set_exception(refused[key])
        self._after_look(models)

    @staticmethod
    def _followed_key(models: ServedModels, key: ModelKey, now: int) -> Followed:
        try:
            serving: Serving | SnapshotError = models.serving(key)
        except SnapshotError as error:
            serving = error
        follower = models.followers.get(key)
        return Followed(serving, now - max(models.staleness_ms, follower.staleness_ms if follower else 0))

    def _failed(self, error: StreamCalibError) -> None:
        if str(error) != str(self._failure):
            _LOG.warning("what is held is served on: %s", error, extra={"server": "state"})
        with self._condition:
            self._failure = error
            wanted, self._wanted = self._wanted, {}
        for answer in wanted.values():
            answer.set_exception(error)

    def _server(self) -> str:
        return mask_url(self._config.redis.url)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
