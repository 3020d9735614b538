"""A proxy before a local server: an address that can be pointed elsewhere, and TLS for a server that speaks none."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress


class TcpProxy:
    """Listens on a free port of 127.0.0.1. Open connections stay where they are when it is pointed elsewhere. Context
    manager."""

    def __init__(self, to_port: int, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: what it speaks to clients; the server behind is spoken to without."""
        self.to_port = to_port
        self.port = 0
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        started = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        server = asyncio.run_coroutine_threadsafe(started, self._loop).result(10)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to_port)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # either end may close at any time
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
