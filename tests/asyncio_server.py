"""A server for tests on an event loop of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from typing import TypeVar

Self = TypeVar("Self", bound="AsyncioServer")
_WITHIN_S = 10.0


class AsyncioServer(ABC):
    """Listens on a free port of 127.0.0.1. Context manager."""

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @abstractmethod
    async def _listen(self) -> asyncio.Server:
        """The server, at 127.0.0.1 and port 0."""

    def __enter__(self: Self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_WITHIN_S)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WITHIN_S)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
