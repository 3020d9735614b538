"""Hearing at once that a snapshot pointer moved, in place of at the next poll.

The commit that moves a pointer says so on the channel of its state's key `f` (commit.lua). That is only to hurry:
whoever misses it, or may not listen, polls the pointer as before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from redis.exceptions import NoPermissionError, RedisError

from stream_calib.config_connections import RedisSection
from stream_calib.errors import StreamCalibError
from stream_calib.redis_connection import unchecked_client

_LOG = logging.getLogger(__name__)

_CHANNELS = "sc:*"
"""Of all deployments on the server: a pointer moves seldom, and this is a pattern that rights can name."""
_LISTEN_S = 0.5
_TRY_AGAIN_S = 5.0


class PointerNews:
    """Listens on a thread and a connection of its own, from the start until `close`."""

    def __init__(self, section: RedisSection, notify: Callable[[], None] = lambda: None) -> None:
        """`notify`: called on the thread after each piece of news."""
        self._section, self._notify = section, notify
        self._came, self._closed = threading.Event(), threading.Event()
        self._told: str | None = None
        self._thread = threading.Thread(target=self._run, name="snapshot news", daemon=True)
        self._thread.start()

    def came(self) -> bool:
        """Whether a pointer may have moved since this was asked last."""
        if not self._came.is_set():
            return False
        self._came.clear()
        return True

    def close(self) -> None:
        """The thread ends, half a second later at most; nobody has to wait for it."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except NoPermissionError as error:
                _LOG.info(
                    "new snapshots are seen at the next poll only: %s; docs/operations.md has the rights that it takes"
                    " to hear of them at once",
                    error,
                )
                return
            except (StreamCalibError, RedisError, OSError) as error:
                # Serving goes on by polling, which is told of the same server, and stops where it must.
                if str(error) != self._told:
                    _LOG.info("new snapshots are seen at the next poll only, for now: %s", error)
                self._told = str(error)
                self._closed.wait(_TRY_AGAIN_S)

    def _listen(self) -> None:
        client = unchecked_client(self._section)
        try:
            with client.pubsub() as pubsub:  # type: ignore[no-untyped-call]  # redis-py
                pubsub.psubscribe(_CHANNELS)
                while not self._closed.is_set():
                    message = pubsub.get_message(timeout=_LISTEN_S)
                    # The answer to the subscription counts too: what came before it was missed.
                    if message is not None:
                        self._told = None
                        self._came.set()
                        self._notify()
        finally:
            client.close()
